/* SPDX-License-Identifier: MIT
 *
 * Prefix hits of the managed cache: what is found, what is not, and that what is found is never
 * written. Block size 4 throughout; a sequence of base b holds tokens b, b + 1, ... */
#include <string.h>

#include "reuse_case.h"
#include "reuse_oracle.h"

static struct prefix_seq a, b, d, e;

/* D6: the last token of a prompt is never adopted, for it has to be computed. */
static void hit_ends_before_the_last_token(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    CU_ASSERT_EQUAL(prefix_run(&c, &a, 100, 8), 0);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 8), 4);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 9), 8);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 4), 0);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 1), 0);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 0), 0);
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 8, 0, &cached));
    CU_ASSERT_EQUAL(cached, 4);
    prefix_append(&c, &b, 4);
    CU_ASSERT_EQUAL(case_length(&c, b.seq.handle), 8);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* A repeated prompt gives the same bits as the first time, and max_cached bounds what is adopted */
static void max_cached_bounds_the_hit(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 20);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    struct pkv_admission admission = {.size = sizeof admission};
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, b.seq.handle, PROMPT(b.ids, 20), 0, 11, &admission, NULL));
    CU_ASSERT_EQUAL(admission.num_cached, 8);
    CU_ASSERT_EQUAL(admission.num_to_write, 12);
    ASSERT_STATUS(PKV_OK, pkv_seq_truncate(c.cache, b.seq.handle, 0));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, b.seq.handle, PROMPT(b.ids, 20), 0, 0, &admission, NULL));
    CU_ASSERT_EQUAL(admission.num_cached, 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* B6: what is left to write is counted after the hit, by the cache itself. */
static void admission_says_what_is_left_to_write(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].block_size = 256;
    c.groups[0].num_blocks = 8;
    c.config.max_seq_len = 1024;
    c.config.max_step_tokens = 1024;
    case_open(&c);
    prefix_run(&c, &a, 7, 300);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 7, NULL));
    b.ids[256] = -1;
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 465, 0, &cached));
    CU_ASSERT_EQUAL(cached, 256);
    struct case_step step = {0};
    case_row(&step, &b.seq, 1024 - 256 + 1);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, prefix_begin(&c, &step, 1));
    prefix_append(&c, &b, 209);
    CU_ASSERT_EQUAL(case_length(&c, b.seq.handle), 465);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* D2: token lists that a rolling hash cannot tell apart are told apart. */
static void polynomial_twins_are_not_found(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    const int32_t first[] = {100, 200, 300, 400};
    const int32_t twin[] = {131, 199, 300, 400};
    memcpy(a.ids, first, sizeof first);
    prefix_append(&c, &a, 4);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    memcpy(b.ids, first, sizeof first);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 5), 4);
    memcpy(b.ids, twin, sizeof twin);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 5), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static int32_t hit_in(struct runtime_case *c, const struct pkv_namespace_field *fields,
                      int32_t num_fields)
{
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = fields, .num_namespace_fields = num_fields};
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 0, &options));
    const int32_t hit = prefix_hit(c, &b, 13);
    prefix_destroy(c, &b);
    return hit;
}

static void fill_in(struct runtime_case *c, const struct pkv_namespace_field *fields,
                    int32_t num_fields)
{
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = fields, .num_namespace_fields = num_fields};
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, 0, &options));
    prefix_append(c, &a, 12);
    prefix_destroy(c, &a);
}

/* D3: namespace fields carry tag and length; an absent field is not an empty one. */
static void namespace_fields_are_told_apart(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    const struct pkv_namespace_field lora[] = {prefix_field_of(1, "S", 0)};
    const struct pkv_namespace_field salt[] = {prefix_field_of(2, "S", 0)};
    const struct pkv_namespace_field split1[] = {prefix_field_of(1, "org_1", 0),
                                                 prefix_field_of(2, "2345", 0)};
    const struct pkv_namespace_field split2[] = {prefix_field_of(1, "org_12345", 0),
                                                 prefix_field_of(2, "", 0)};
    const struct pkv_namespace_field absent[] = {prefix_field_of(1, "org_12345", 0)};
    const struct pkv_namespace_field turned[] = {split1[1], split1[0]};
    fill_in(&c, lora, 1);
    fill_in(&c, split1, 2);
    CU_ASSERT_EQUAL(hit_in(&c, lora, 1), 12);
    CU_ASSERT_EQUAL(hit_in(&c, salt, 1), 0);
    CU_ASSERT_EQUAL(hit_in(&c, NULL, 0), 0);
    CU_ASSERT_EQUAL(hit_in(&c, split1, 2), 12);
    CU_ASSERT_EQUAL(hit_in(&c, turned, 2), 12);
    CU_ASSERT_EQUAL(hit_in(&c, split2, 2), 0);
    CU_ASSERT_EQUAL(hit_in(&c, absent, 1), 0);
    fill_in(&c, split2, 2);
    CU_ASSERT_EQUAL(hit_in(&c, split2, 2), 12);
    CU_ASSERT_EQUAL(hit_in(&c, absent, 1), 0);
    case_close(&c);
}

/* D4, D5: another salt or adapter finds only what lies before the token where its field begins. */
static void salt_separates_from_where_it_begins(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    const struct pkv_namespace_field ann[] = {prefix_field_of(1, "ann", 0)};
    const struct pkv_namespace_field bob[] = {prefix_field_of(1, "bob", 0)};
    const struct pkv_namespace_field late_ann[] = {prefix_field_of(1, "ann", 8)};
    const struct pkv_namespace_field late_bob[] = {prefix_field_of(1, "bob", 9)};
    fill_in(&c, ann, 1);
    CU_ASSERT_EQUAL(hit_in(&c, ann, 1), 12);
    CU_ASSERT_EQUAL(hit_in(&c, bob, 1), 0);
    fill_in(&c, late_ann, 1);
    CU_ASSERT_EQUAL(hit_in(&c, late_ann, 1), 12);
    CU_ASSERT_EQUAL(hit_in(&c, late_bob, 1), 8);
    CU_ASSERT_EQUAL(hit_in(&c, NULL, 0), 8);
    case_close(&c);
}

static void extras_are_part_of_the_content(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    a.has_extra = true;
    memset(a.extra, 0, sizeof a.extra);
    a.extra[5] = 77;
    prefix_append(&c, &a, 12);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 4);
    b.has_extra = true;
    memset(b.extra, 0, sizeof b.extra);
    b.extra[5] = 77;
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 12);
    b.extra[5] = 78;
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 4);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* Takes n plain or cached blocks by a sequence that nobody can find. */
static void press(struct runtime_case *c, struct prefix_seq *seq, int32_t num_blocks)
{
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, 900000, &options));
    prefix_append(c, seq, 4 * num_blocks);
}

/* D7, D8: a sequence is evicted from its end, and nothing behind a block that is gone is counted as
 * a hit. */
static void chain_is_evicted_from_its_end(void)
{
    for (int32_t evicted = 0; evicted <= 5; evicted++) {
        struct runtime_case c;
        prefix_open(&c, 8);
        prefix_warm(&c, &a, 0, 20);
        press(&c, &b, 3 + evicted);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 21), 20 - 4 * evicted);
        prefix_destroy(&c, &a);
        prefix_destroy(&c, &b);
        case_close(&c);
    }
}

/* D7: a hit is looked up again at admission. */
static void hit_that_went_meanwhile_is_not_adopted(void)
{
    struct runtime_case c;
    prefix_open(&c, 8);
    prefix_warm(&c, &a, 0, 12);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 12);
    press(&c, &b, 7);
    prefix_destroy(&c, &b);
    int32_t cached = -1;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 13, 0, &cached));
    CU_ASSERT_EQUAL(cached, 4);
    prefix_append(&c, &a, 9);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* D8: a block is at least as important as the blocks that follow it in its sequences. */
static void priority_of_a_leaf_keeps_its_ancestors(void)
{
    struct runtime_case c;
    prefix_open(&c, 12);
    const struct pkv_seq_options high = {.size = sizeof high, .priority = 3};
    prefix_run(&c, &a, 0, 8); /* priority 0 */
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &high));
    ASSERT_STATUS(PKV_OK,
                  prefix_admit(&c, &a, 12, 0, NULL)); /* goes on from them with priority 3 */
    prefix_append(&c, &a, 4);
    prefix_destroy(&c, &a);
    prefix_warm(&c, &a, 5000, 20);
    press(&c, &b, 9); /* 4 plain ones, and the 5 of priority 0, although they are more recent */
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 5000, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 12);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 21), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* D10: a committed block never changes; an adopter writes into a block of its own. */
static void adopters_do_not_write_what_they_found(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 10);
    struct prefix_seq *adopters[] = {&b, &d};
    for (int32_t i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, prefix_create(&c, adopters[i], 0, NULL));
        adopters[i]->ids[8] = 1000 + i;
        int32_t cached = 0;
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, adopters[i], 9, 0, &cached));
        CU_ASSERT_EQUAL(cached, 8);
        prefix_append(&c, adopters[i], 6);
    }
    prefix_destroy(&c, &d);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 20), 8);
    prefix_append(&c, &a, 1);
    prefix_append(&c, &b, 1);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* D10: a sequence that is cut back into an indexed block goes on in a copy of it. */
static void truncated_owner_copies_an_indexed_block(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 12);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 6));
    for (int32_t i = 6; i < 12; i++) {
        a.ids[i] = 500 + i;
    }
    prefix_append(&c, &a, 6);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 13, 0, &cached));
    CU_ASSERT_EQUAL(cached, 12);
    prefix_append(&c, &b, 3);
    memcpy(d.ids, a.ids, sizeof d.ids);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    memcpy(d.ids, a.ids, sizeof d.ids);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 13), 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, 1);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* A10: the table names the canonical block before the sequence's own one is released. */
static void equal_blocks_computed_twice_become_one(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    struct case_step step = {0};
    case_row(&step, &a.seq, 8);
    case_row(&step, &b.seq, 8);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 2));
    CU_ASSERT_EQUAL(case_held(&c, 0), 4);
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_held(&c, 0), 2); /* freed blocks are NaN now: poison_freed */
    CU_ASSERT_EQUAL(prefix_stats(&c).deduplicated_blocks, 2);
    int32_t tables[2][2];
    case_table(&c, &a.seq, 0, tables[0], 2);
    case_table(&c, &b.seq, 0, tables[1], 2);
    CU_ASSERT(memcmp(tables[0], tables[1], sizeof tables[0]) == 0);
    prefix_append(&c, &a, 3);
    prefix_append(&c, &b, 3);
    prefix_destroy(&c, &a);
    prefix_append(&c, &b, 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* With no block to copy to, the indexed block is uncached and written in place */
static void truncated_owner_of_a_full_pool_goes_on(void)
{
    struct runtime_case c;
    prefix_open(&c, 4);
    prefix_run(&c, &a, 0, 16);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 14));
    a.ids[14] = -3;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 17), 16);
    struct case_step step = {0}; /* aborted, it is uncached all the same */
    case_row(&step, &a.seq, 1);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    case_abort(&c, &step);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 17), 12);
    prefix_append(&c, &a, 2);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 17), 12);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 17), 16);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 14));
    pkv_pin pin = {0};
    int32_t num_pinned = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 16), 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 16);
    memset(&step, 0, sizeof step);
    case_row(&step, &a.seq, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_begin(&c, &step, 1));
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    prefix_append(&c, &a, 2);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void rejected_drafts_are_never_found(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 4};
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    prefix_append(&c, &a, 11);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 4); /* 4 behind: block 1 ends at 8, 11 - 4 = 7 */
    struct case_step step = {0};
    case_row(&step, &a.seq, 5);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    case_attend_all(&c, &step);
    const int32_t keep = 1;
    case_commit(&c, &step, &keep);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 8);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 8));
    a.ids[8] = 4711;
    prefix_append(&c, &a, 8);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 8);
    CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void no_publish_finds_and_is_not_found(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    prefix_run(&c, &a, 0, 8);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &options));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 16, 0, &cached));
    CU_ASSERT_EQUAL(cached, 8);
    prefix_append(&c, &b, 8);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 17), 8);
    prefix_destroy(&c, &b);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 17), 8);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* D12: equal tokens under another parent are another block, and forks share their parents. */
static void fork_shares_and_goes_its_own_way(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 10);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 6, &b.seq));
    memcpy(b.ids, a.ids, sizeof b.ids);
    b.has_extra = false;
    b.options = a.options;
    for (int32_t i = 6; i < 20; i++) {
        b.ids[i] = 300 + i;
    }
    prefix_append(&c, &a, 4);
    prefix_append(&c, &b, 8);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 20), 12);
    memcpy(d.ids, b.ids, sizeof d.ids);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 20), 12);
    for (int32_t i = 0; i < 4; i++) {
        d.ids[i] = 40 + i; /* b's second and third block, but not its first */
    }
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 20), 0);
    prefix_destroy(&c, &a);
    prefix_append(&c, &b, 2);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* D8: a fork shares an uncached block that another sequence has published, with no spare block to
 * change it for. What goes on from it is not left behind when free blocks are evicted. */
static void a_block_shared_by_a_fork_is_cached_before_what_follows(void)
{
    const struct pkv_seq_options rewinds = {.size = sizeof rewinds, .max_rewind = 4};
    for (int32_t ends_early = 0; ends_early < 2; ends_early++) {
        struct runtime_case c;
        prefix_open(&c, 9 - ends_early);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &rewinds));
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 8, 8, NULL));
        prefix_append(&c, &a, 8);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 8, &d.seq));
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
        prefix_append(&c, &b, 8);
        if (ends_early) {
            prefix_destroy(&c, &b);
        }
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &e, 1000, NULL));
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &e, 16, 0, NULL));
        prefix_append(&c, &a, 4);
        prefix_append(&c, &a, 4);
        if (!ends_early) {
            prefix_destroy(&c, &b);
        }
        CU_ASSERT_EQUAL(case_taken(&c, 0), ends_early ? 4 : 5); /* what b has published stays */
        prefix_append(&c, &e, 16);
        reuse_check_chains(&c, false);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
        CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 12);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        prefix_destroy(&c, &a);
        prefix_destroy(&c, &e);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, d.seq.handle));
        prefix_destroy(&c, &b);
        case_close(&c);
    }
}

/* An undone row is the writer of its block again, but not of a block that a row before it
 * has published: what is cached is written by nobody. */
static void an_undone_row_does_not_write_what_another_published(void)
{
    struct runtime_case c;
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 4};
    static const int32_t keep[] = {4, 0};
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    prefix_append(&c, &a, 8);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 8, &b.seq));
    memcpy(b.ids, a.ids, sizeof b.ids);
    b.has_extra = false;
    prefix_own_options(&b, &options);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 7));
    a.ids[7] = 500;
    struct case_step step = {0};
    case_row(&step, &b.seq, 4);
    case_row(&step, &a.seq, 1);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 2));
    case_attend_all(&c, &step);
    case_commit(&c, &step, keep);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &b);
    prefix_append(&c, &a, 3);
    CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, 2);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 13), 8);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* Metrics that mean something: 17 tokens in blocks of 16 */
static void used_cells_are_counted(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].block_size = 16;
    case_open(&c);
    prefix_run(&c, &a, 0, 17);
    const struct pkv_stats stats = prefix_stats(&c);
    CU_ASSERT_EQUAL(stats.held_blocks, 2);
    CU_ASSERT_EQUAL(stats.table_cells, 32);
    CU_ASSERT_EQUAL(stats.used_cells, 17);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(hit_ends_before_the_last_token),
    TEST(max_cached_bounds_the_hit),
    TEST(admission_says_what_is_left_to_write),
    TEST(polynomial_twins_are_not_found),
    TEST(namespace_fields_are_told_apart),
    TEST(salt_separates_from_where_it_begins),
    TEST(extras_are_part_of_the_content),
    TEST(chain_is_evicted_from_its_end),
    TEST(hit_that_went_meanwhile_is_not_adopted),
    TEST(priority_of_a_leaf_keeps_its_ancestors),
    TEST(adopters_do_not_write_what_they_found),
    TEST(truncated_owner_copies_an_indexed_block),
    TEST(equal_blocks_computed_twice_become_one),
    TEST(truncated_owner_of_a_full_pool_goes_on),
    TEST(rejected_drafts_are_never_found),
    TEST(no_publish_finds_and_is_not_found),
    TEST(fork_shares_and_goes_its_own_way),
    TEST(a_block_shared_by_a_fork_is_cached_before_what_follows),
    TEST(an_undone_row_does_not_write_what_another_published),
    TEST(used_cells_are_counted),
    TEST_END,
};
const struct test_suite suite_runtime_reuse = {"runtime_reuse", cases};
