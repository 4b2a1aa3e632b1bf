/* SPDX-License-Identifier: MIT
 *
 * Hits that end inside a block: which block they are copied from, who holds that until when, and
 * that what follows has the bits of a run that computed everything. */
#include <string.h>

#include "reuse_case.h"

static struct prefix_seq a, b, d, e;

/* A cache of blocks of 16 tokens. */
static void init(struct runtime_case *c)
{
    prefix_init(c);
    c->config.no_partial_hits = false;
    c->groups[0].block_size = 16;
    c->config.max_seq_len = 256;
    c->config.max_step_tokens = 256;
}

/* seq has the ids of another one up to `at`, and its own from there on. */
static enum pkv_status create_like(struct runtime_case *c, struct prefix_seq *seq,
                                   const struct prefix_seq *other, int32_t at, int32_t own)
{
    const enum pkv_status status = prefix_create(c, seq, own, NULL);
    memcpy(seq->ids, other->ids, (size_t)at * sizeof seq->ids[0]);
    return status;
}

/* The same, admitted with num_tokens, reserve 0: what it found. */
static int32_t admit_like(struct runtime_case *c, struct prefix_seq *seq,
                          const struct prefix_seq *other, int32_t at, int32_t num_tokens)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, create_like(c, seq, other, at, 5000 + 1000 * (at % 7)));
    const struct pkv_probe probe = prefix_probe(c, seq, num_tokens, 0);
    ASSERT_STATUS(PKV_OK, prefix_admit(c, seq, num_tokens, 0, &num_cached));
    CU_ASSERT_EQUAL(probe.num_cached, num_cached);
    CU_ASSERT_EQUAL(probe.num_copied, num_cached % c->groups[0].block_size);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_cached;
}

/* A finished sequence of ids 0, 1, .. */
static void cache_tokens(struct runtime_case *c, struct prefix_seq *seq, int32_t num_tokens)
{
    prefix_run(c, seq, 0, num_tokens);
    prefix_destroy(c, seq);
}

static int32_t entry(struct runtime_case *c, struct prefix_seq *seq, int32_t i)
{
    int32_t table[64];
    int32_t num_blocks = 0;
    ASSERT_STATUS(PKV_OK, pkv_seq_table(c->cache, seq->seq.handle, 0, table, 64, &num_blocks));
    return i < num_blocks ? table[i] : -1;
}

/* A tail has no priority of its own: it does not keep that of its parent up, and a request that
 * copies from it raises its parents alone. */
static void a_tail_follows_no_priority(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 40);
    int32_t num_changed = 0;
    ASSERT_STATUS(PKV_OK, pkv_prefix_set_priority(c.cache, NULL, PROMPT(a.ids, 40), 0, 32,
                                                  PKV_PRIORITY_EVICT_FIRST, &num_changed));
    CU_ASSERT_EQUAL(num_changed, 32);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 38, 60), 38);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, pkv_prefix_set_priority(c.cache, NULL, PROMPT(a.ids, 40), 0, 32,
                                                  PKV_PRIORITY_EVICT_FIRST, &num_changed));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    case_close(&c);
}

/* Of 40 + 7 tokens in common, with blocks of 16, all 47 are adopted: two blocks and 15 cells. */
static void a_hit_ends_inside_a_block(void)
{
    struct runtime_case c;
    for (int32_t at = 0; at <= 64; at++) {
        init(&c);
        case_open(&c);
        cache_tokens(&c, &a, 64);
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, at, 80), at);
        CU_ASSERT_EQUAL(prefix_stats(&c).hit_tokens, (uint64_t)at);
        CU_ASSERT_EQUAL(prefix_stats(&c).copied_hit_tokens, (uint64_t)at % 16);
        prefix_append(&c, &b, 80 - at);
        CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, at % 16 > 0);
        prefix_destroy(&c, &b);
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        case_close(&c);
    }
}

/* A prompt that is cached as a whole is adopted but for its last token. */
static void the_last_token_is_always_computed(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    for (int32_t n = 0; n <= 64; n++) {
        const int32_t before = n > 0 ? n - 1 : 0;
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 64, n), before);
        if (n > 0) {
            prefix_append(&c, &b, 1);
        }
        prefix_destroy(&c, &b);
    }
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 63);
    case_close(&c);
}

/* max_cached is one rank's answer for all: any number of tokens. */
static void max_cached_bounds_it_to_the_token(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    for (int32_t most = 0; most <= 70; most++) {
        struct pkv_admission admission = {.size = sizeof admission};
        const int32_t expected = most < 60 ? most : 60;
        ASSERT_STATUS(PKV_OK, create_like(&c, &b, &a, 60, 9000));
        const struct pkv_prompt prompt = prefix_prompt(&b, 70);
        ASSERT_STATUS(PKV_OK,
                      pkv_seq_admit(c.cache, b.seq.handle, &prompt, 0, most, &admission, NULL));
        CU_ASSERT_EQUAL(admission.num_cached, expected);
        CU_ASSERT_EQUAL(admission.num_copied, expected % 16);
        CU_ASSERT_EQUAL(admission.num_to_write, 70 - expected);
        prefix_destroy(&c, &b);
    }
    case_close(&c);
}

/* Of many blocks behind one prefix, that with the longest common part is copied from, whatever the
 * order in which they came; of several, the last one before the prompt in the order of tokens. */
static void the_longest_common_part_is_found(void)
{
    static const int32_t parts[] = {3, 15, 9, 1, 12, 0, 7};
    struct runtime_case c;
    for (int order = 0; order < 24; order++) {
        int at[4];
        init(&c);
        c.groups[0].num_blocks = 64;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        case_permutation(order, 4, at);
        int32_t source = -1;
        for (int i = 0; i < 4; i++) {
            admit_like(&c, &b, &a, 32 + parts[at[i]], 48);
            prefix_append(&c, &b, 48 - b.seq.length);
            source = at[i] == 1 ? entry(&c, &b, 2) : source;
            prefix_destroy(&c, &b);
        }
        CU_ASSERT_EQUAL(admit_like(&c, &d, &a, 64, 64), 32 + 15);
        CU_ASSERT_EQUAL(entry(&c, &d, 2), source);
        prefix_append(&c, &d, 64 - 47);
        prefix_destroy(&c, &d);
        case_close(&c);
    }
}

/* Tokens with other extras, or in another namespace, are other tokens. */
static void extras_and_namespaces_are_part_of_it(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    const struct pkv_namespace_field field = prefix_field_of(1, "ann", 20);
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    cache_tokens(&c, &a, 64);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    b.has_extra = true;
    memset(b.extra, 0, sizeof b.extra);
    b.extra[37] = (uint64_t)1 << 63;
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 64), 37);
    b.extra[37] = 0;
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 64), 63);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, &options)); /* its field counts from block 1 */
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 64), 16);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &d, 64, 0, NULL));
    prefix_append(&c, &d, 48);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &e, 0, &options));
    e.ids[45] = -1;
    CU_ASSERT_EQUAL(prefix_hit(&c, &e, 64), 45);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    prefix_destroy(&c, &e);
    case_close(&c);
}

/* --- the source */

struct wanted {
    int32_t block;
    int32_t ref_count;
};

static bool see_block(void *context, const struct pkv_block_info *info)
{
    struct wanted *wanted = context;
    if (info->group == 0 && info->block == wanted->block) {
        wanted->ref_count = info->ref_count;
    }
    return true;
}

static int32_t ref_count(struct runtime_case *c, int32_t block)
{
    struct wanted wanted = {block, -1};
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c->cache, see_block, &wanted, NULL));
    return wanted.ref_count;
}

/* From admission on the source is held, until the first step that keeps a token has ended. */
static void the_source_is_held_until_it_is_copied(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
    const int32_t source = entry(&c, &b, 2);
    CU_ASSERT_EQUAL(ref_count(&c, source), 1);
    const int32_t num_free = case_free(&c, 0);
    for (int i = 0; i < 3; i++) { /* an abort, a step that keeps nothing, a step that keeps one */
        struct case_step step = {0};
        struct pkv_step_view view = {.size = sizeof view};
        const int32_t keep = i == 2;
        case_row(&step, &b.seq, 20);
        ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
        ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
        CU_ASSERT_EQUAL(view.num_copies, 1);
        CU_ASSERT_EQUAL(view.copies[0].src, source);
        CU_ASSERT_EQUAL(view.copies[0].num_cells, 8);
        CU_ASSERT(view.copies[0].dst != source);
        CU_ASSERT_EQUAL(ref_count(&c, source), 1);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        case_attend_all(&c, &step);
        if (i == 0) {
            case_abort(&c, &step);
        } else {
            case_commit(&c, &step, &keep);
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        CU_ASSERT_EQUAL(ref_count(&c, source), i < 2);
        CU_ASSERT_EQUAL(case_free(&c, 0), num_free + (i == 2));
        CU_ASSERT_EQUAL(entry(&c, &b, 2) == source, i < 2);
    }
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 63); /* and it is cached as before */
    prefix_append(&c, &b, 19);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* Whatever ends the request, or cuts it to whole blocks, before its first step lets go of it. */
static void what_ends_the_request_lets_go_of_the_source(void)
{
    struct runtime_case c;
    for (int end = 0; end < 5; end++) {
        init(&c);
        case_open(&c);
        cache_tokens(&c, &a, 64);
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
        const int32_t source = entry(&c, &b, 2);
        if (end == 0) {
            prefix_destroy(&c, &b);
        } else if (end == 1) {
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
        } else if (end == 2) {
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 32));
        } else if (end == 3) {
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 20)); /* into a block it shares */
        } else {
            struct case_step step = {0};
            case_row(&step, &b.seq, 3);
            ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
            prefix_destroy(&c, &b); /* of the open step: it is let go of when that ends */
            CU_ASSERT_EQUAL(ref_count(&c, source), 1);
            ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step.handle));
        }
        CU_ASSERT_EQUAL(ref_count(&c, source), 0);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        if (end >= 1 && end <= 3) {
            prefix_append(&c, &b, 60 - b.seq.length);
            prefix_destroy(&c, &b);
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        case_close(&c);
    }
}

/* Cut to fewer tokens inside the same block, those are copied. */
static void a_cut_inside_the_block_copies_less(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
    const int32_t free_before = case_free(&c, 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 34));
    CU_ASSERT_EQUAL(case_free(&c, 0), free_before);
    b.ids[34] = -5;
    prefix_append(&c, &b, 26);
    CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* A source that is evicted, flushed or written right after the step changes nothing. */
static void a_source_that_goes_after_the_step_changes_nothing(void)
{
    struct runtime_case c;
    for (int flushes = 0; flushes < 2; flushes++) {
        init(&c);
        c.groups[0].num_blocks = 8;
        case_open(&c);
        cache_tokens(&c, &a, 64);
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 48), 40);
        const int32_t source = entry(&c, &b, 2);
        prefix_append(&c, &b, 1);
        if (flushes) {
            struct pkv_flush_report report = {.size = sizeof report};
            ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
        }
        prefix_run(&c, &d, 9000, 80); /* takes every free block */
        CU_ASSERT_EQUAL(ref_count(&c, source), 1);
        prefix_append(&c, &b, 7);
        prefix_destroy(&c, &b);
        prefix_destroy(&c, &d);
        case_close(&c);
    }
}

/* A flush between admission and the first step: the tokens were adopted, and stay. */
static void a_flush_before_the_step_takes_nothing_away(void)
{
    struct runtime_case c;
    struct pkv_flush_report report = {.size = sizeof report};
    for (int shares = 0; shares < 2; shares++) {
        init(&c);
        case_open(&c);
        cache_tokens(&c, &a, 64);
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
        if (shares) {
            CU_ASSERT_EQUAL(admit_like(&c, &d, &a, 41, 60), 41);
        }
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
        prefix_append(&c, &b, 20);
        if (shares) {
            prefix_append(&c, &d, 19);
            prefix_destroy(&c, &d);
        }
        prefix_destroy(&c, &b);
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 0);
        case_close(&c);
    }
}

/* --- room */

/* Where there is no block for the source beside what is promised, the hit ends with whole blocks;
 * no request is refused, or waits, for the sake of a longer hit. */
static void it_needs_no_more_room_than_a_hit_of_whole_blocks(void)
{
    struct runtime_case c;
    for (int32_t num_blocks = 4; num_blocks <= 7; num_blocks++) {
        init(&c);
        c.groups[0].num_blocks = num_blocks;
        case_open(&c);
        cache_tokens(&c, &a, 48);
        const int32_t expected = num_blocks > 4 ? 40 : 32;
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 64), expected);
        CU_ASSERT_EQUAL(case_free(&c, 0), num_blocks - 4 - (num_blocks > 4));
        prefix_append(&c, &b, 1);
        CU_ASSERT_EQUAL(case_free(&c, 0), num_blocks - 4);
        prefix_append(&c, &b, 63 - expected);
        prefix_destroy(&c, &b);
        case_close(&c);
    }
}

/* The copy is promised: requests that wait with one source have their blocks when no other is
 * left. */
static void the_copy_is_promised(void)
{
    struct runtime_case c;
    init(&c);
    c.groups[0].num_blocks = 9; /* 2 whole ones and the source, twice 2 of their own, and 2 */
    case_open(&c);
    cache_tokens(&c, &a, 48);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 64), 40);
    CU_ASSERT_EQUAL(admit_like(&c, &d, &a, 39, 64), 39);
    CU_ASSERT_EQUAL(entry(&c, &b, 2), entry(&c, &d, 2));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    prefix_run(&c, &e, 9000, 32);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &d.seq, 32)); /* gives up its copy for a block */
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    prefix_append(&c, &d, 32);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0); /* the source is held for the other one */
    prefix_append(&c, &b, 24);
    CU_ASSERT_EQUAL(prefix_stats(&c).copied_blocks, 1);
    CU_ASSERT_EQUAL(case_free(&c, 0), 1);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    prefix_destroy(&c, &e);
    case_close(&c);
}

/* What a step takes of a window row's promise is promised again after an abort, though others were
 * admitted meanwhile. */
static void an_abort_restores_the_promise_of_a_window_row(void)
{
    struct runtime_case c;
    for (int commits = 0; commits < 2; commits++) {
        init(&c);
        c.groups[0].sliding_window = 20;
        c.groups[0].num_blocks = 16;
        case_open(&c);
        cache_tokens(&c, &a, 48);
        int32_t num_cached = -1;
        ASSERT_STATUS(PKV_OK, create_like(&c, &b, &a, 40, 9000));
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 64, 128, &num_cached));
        CU_ASSERT_EQUAL(num_cached, 40);
        struct case_step step = {0};
        case_row(&step, &b.seq, 3);
        ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
        while (case_free(&c, 0) > 0) { /* others take all that is left */
            struct prefix_seq *seq = case_free(&c, 0) % 2 ? &d : &e;
            ASSERT_STATUS(PKV_OK, prefix_create(&c, seq, 20000, NULL));
            ASSERT_STATUS(PKV_OK, prefix_admit(&c, seq, 1, 0, NULL));
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        case_attend_all(&c, &step);
        if (commits) {
            case_commit(&c, &step, NULL);
        } else {
            case_abort(&c, &step);
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        while (b.seq.length < 192) {
            prefix_append(&c, &b, 1);
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        CU_ASSERT_EQUAL(pkv_cache_destroy(c.cache, false), PKV_OK);
        c.cache = NULL;
        CU_ASSERT_EQUAL(c.memory.live, 0);
    }
}

/* Quotas count the sequence's own block, and not its source beside it. */
static void quotas_count_whole_blocks_alike(void)
{
    struct runtime_case c;
    const struct pkv_namespace_field field = prefix_field_of(1, "ann", 0);
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 4));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    prefix_append(&c, &a, 64);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &options));
    b.ids[40] = -1;
    CU_ASSERT_EQUAL(prefix_probe(&c, &b, 65, 0).status, PKV_NEVER_FITS);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 64, 0, NULL));
    CU_ASSERT_EQUAL(b.seq.length, 40);
    prefix_append(&c, &b, 24);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* --- what a sequence does before its first step */

/* A fork before the first step: parent and child copy for themselves. */
static void a_fork_before_the_copy_copies_too(void)
{
    struct runtime_case c;
    for (int32_t at = 30; at <= 40; at++) {
        for (int first = 0; first < 2; first++) {
            init(&c);
            case_open(&c);
            cache_tokens(&c, &a, 64);
            CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
            ASSERT_STATUS(PKV_OK, case_fork(&c, &b.seq, at, &d.seq));
            memcpy(d.ids, b.ids, sizeof d.ids);
            prefix_own_options(&d, &b.options);
            d.has_extra = false;
            d.ids[at] = -9;
            CU_ASSERT_EQUAL(case_check(&c), 0);
            prefix_append(&c, first ? &b : &d, 10);
            prefix_append(&c, first ? &d : &b, 10);
            prefix_append(&c, &b, 10);
            prefix_append(&c, &d, 10);
            prefix_destroy(&c, first ? &d : &b);
            prefix_append(&c, first ? &b : &d, 5);
            prefix_destroy(&c, first ? &b : &d);
            CU_ASSERT_EQUAL(case_held(&c, 0), 0);
            case_close(&c);
        }
    }
}

/* A preempted request finds what it had, to the token, and that is counted apart. */
static void a_readmission_ends_inside_a_block_too(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 60, 0, NULL));
    CU_ASSERT_EQUAL(b.seq.length, 40);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 60, 10, NULL));
    prefix_append(&c, &b, 20);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 60, 0, NULL));
    CU_ASSERT_EQUAL(b.seq.length, 59); /* of its own 60, the last 12 in a tail */
    const struct pkv_stats stats = prefix_stats(&c);
    CU_ASSERT(stats.hit_tokens == 40 && stats.rehit_tokens == 40 + 40 + 59);
    CU_ASSERT_EQUAL(stats.copied_hit_tokens, 8 + 8 + 8 + 11);
    prefix_append(&c, &b, 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* --- tails */

/* What a finished sequence has behind its last whole block is found too: the next turn of a chat
 * computes its own tokens alone, whatever the block size. */
static void a_chat_finds_all_that_it_had(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    int32_t length = 7;
    prefix_run(&c, &a, 0, length);
    prefix_destroy(&c, &a);
    for (int32_t turn = 1; turn < 12; turn++) {
        const int32_t next = length + 3 + turn % 5;
        CU_ASSERT_EQUAL(prefix_run(&c, &a, 0, next), length);
        prefix_destroy(&c, &a);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        length = next;
    }
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c.cache, 0, &usage));
    CU_ASSERT_EQUAL(usage.cached, (length + 15) / 16);                     /* one tail: the last */
    CU_ASSERT_EQUAL(prefix_stats(&c).num_events, (uint64_t)(length / 16)); /* and none of tails */
    case_close(&c);
}

/* A tail takes the memory of a block for fewer tokens, and goes before whole blocks. */
static void a_tail_is_evicted_first(void)
{
    struct runtime_case c;
    init(&c);
    c.groups[0].num_blocks = 6;
    case_open(&c);
    cache_tokens(&c, &a, 40);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 40);
    prefix_run(&c, &d, 9000, 64); /* needs one of the three */
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 32);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* Tokens that may still be taken back, that others go on with, or that are not to be published
 * become no tail. */
static void what_may_change_becomes_no_tail(void)
{
    struct runtime_case c;
    const struct pkv_seq_options rewinds = {.size = sizeof rewinds, .max_rewind = 3};
    const struct pkv_seq_options secret = {.size = sizeof secret, .no_publish = true};
    init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &rewinds));
    prefix_append(&c, &a, 40);
    prefix_destroy(&c, &a);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 37);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, &secret));
    prefix_append(&c, &b, 8);
    prefix_destroy(&c, &b);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 64), 0);
    prefix_run(&c, &d, 2000, 8);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &d.seq, 8, &e.seq));
    prefix_destroy(&c, &d);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 64), 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, e.seq.handle)); /* the last that holds it */
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 64), 8);
    case_close(&c);
}

/* A flushed namespace has no tail, and an index that is full takes none. */
static void a_tail_is_flushed_with_its_namespace(void)
{
    struct runtime_case c;
    struct pkv_flush_report report = {.size = sizeof report};
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 40);
    prefix_run(&c, &b, 500, 40);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 64), 0);
    prefix_destroy(&c, &b); /* of the epoch before */
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 64), 0);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    case_close(&c);
}

/* An equal block that is filled from a copy becomes the cached one at commit. */
static void a_copy_that_becomes_equal_is_merged(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 64, 48), 47);
    const int32_t source = entry(&c, &b, 2);
    prefix_append(&c, &b, 1);
    CU_ASSERT_EQUAL(entry(&c, &b, 2), source);
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    CU_ASSERT_EQUAL(prefix_stats(&c).deduplicated_blocks, 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* Pins hold whole blocks, and a copy is no event. */
static void pins_and_events_know_whole_blocks_alone(void)
{
    struct runtime_case c;
    pkv_pin pin;
    int32_t num_pinned = -1;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    const uint64_t num_events = prefix_stats(&c).num_events;
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
    const struct pkv_prompt prompt = prefix_prompt(&b, 40);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, &prompt, 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 32);
    prefix_append(&c, &b, 1);
    CU_ASSERT_EQUAL(prefix_stats(&c).num_events, num_events);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* Off by config, and for callers whose headers promise whole blocks. */
static void it_can_be_switched_off(void)
{
    struct runtime_case c;
    for (int is_old = 0; is_old < 2; is_old++) {
        init(&c);
        c.config.no_partial_hits = !is_old;
        c.config.size = is_old ? offsetof(struct pkv_cache_config, event_tokens) : c.config.size;
        case_open(&c);
        cache_tokens(&c, &a, 64);
        CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 32);
        prefix_append(&c, &b, 28);
        prefix_destroy(&c, &b);
        case_close(&c);
    }
}

/* Each group's part in a hit: the group that has lost a window ends it with whole blocks. */
static void every_group_must_have_the_source(void)
{
    struct runtime_case c;
    int32_t group_cached[2] = {-1, -1};
    int32_t num_cached = -1;
    init(&c);
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 20;
    window->num_blocks = 8;
    c.groups[0].num_blocks = 64;
    case_add_layer(&c, 1);
    case_open(&c);
    cache_tokens(&c, &a, 80);
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40); /* all blocks are there still */
    prefix_append(&c, &b, 20);
    prefix_destroy(&c, &b);
    prefix_run(&c, &d, 9000, 128); /* takes blocks of the window group */
    ASSERT_STATUS(PKV_OK, create_like(&c, &b, &a, 40, 7000));
    const struct pkv_prompt prompt = prefix_prompt(&b, 60);
    ASSERT_STATUS(PKV_OK,
                  pkv_cache_probe_groups(c.cache, NULL, &prompt, 60, group_cached, &num_cached));
    CU_ASSERT_EQUAL(num_cached, prefix_hit(&c, &b, 60));
    CU_ASSERT(group_cached[0] >= num_cached && group_cached[1] >= num_cached);
    CU_ASSERT_EQUAL(num_cached % 16, 0);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* Admission takes no memory, with a copy or without. */
static void it_takes_no_memory(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    cache_tokens(&c, &a, 64);
    cache_tokens(&c, &b, 64); /* scratch of attention is there */
    c.memory.fail_at = c.memory.calls + 1;
    CU_ASSERT_EQUAL(admit_like(&c, &b, &a, 40, 60), 40);
    c.memory.fail_at = 0;
    struct case_step step = {0};
    case_row(&step, &b.seq, 20);
    c.memory.fail_at = c.memory.calls + 1;
    const enum pkv_status status = prefix_begin(&c, &step, 1);
    c.memory.fail_at = 0;
    CU_ASSERT(status == PKV_OK || status == PKV_NO_MEMORY); /* a plan may grow; nothing is lost */
    if (status == PKV_OK) {
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_hit_ends_inside_a_block),
    TEST(the_last_token_is_always_computed),
    TEST(max_cached_bounds_it_to_the_token),
    TEST(the_longest_common_part_is_found),
    TEST(extras_and_namespaces_are_part_of_it),
    TEST(the_source_is_held_until_it_is_copied),
    TEST(what_ends_the_request_lets_go_of_the_source),
    TEST(a_cut_inside_the_block_copies_less),
    TEST(a_source_that_goes_after_the_step_changes_nothing),
    TEST(a_flush_before_the_step_takes_nothing_away),
    TEST(it_needs_no_more_room_than_a_hit_of_whole_blocks),
    TEST(the_copy_is_promised),
    TEST(an_abort_restores_the_promise_of_a_window_row),
    TEST(quotas_count_whole_blocks_alike),
    TEST(a_fork_before_the_copy_copies_too),
    TEST(a_readmission_ends_inside_a_block_too),
    TEST(a_chat_finds_all_that_it_had),
    TEST(a_tail_is_evicted_first),
    TEST(what_may_change_becomes_no_tail),
    TEST(a_tail_is_flushed_with_its_namespace),
    TEST(a_copy_that_becomes_equal_is_merged),
    TEST(pins_and_events_know_whole_blocks_alone),
    TEST(a_tail_follows_no_priority),
    TEST(it_can_be_switched_off),
    TEST(every_group_must_have_the_source),
    TEST(it_takes_no_memory),
    TEST_END,
};
const struct test_suite suite_runtime_partial = {"runtime_partial", cases};
