/* SPDX-License-Identifier: MIT
 *
 * Random calls of the whole surface with a prefix cache. Sequences are plain lists of tokens, from
 * which attention is recomputed in every step; a hit is recomputed without a hash, by comparing the
 * tokens of every node of the index with those of the prompt and then asking of every key that is
 * seen whether its block is there. The cache checks itself after each call.
 *
 * Each run is made with several hash masks. They differ in seed, buckets and collisions, so equal
 * histories show that no answer, block id or eviction depends on those. PKV_TEST_SEED replays a
 * run, PKV_TEST_OPS makes it longer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"
#include "reuse_oracle.h"
#include "runtime/cache.h"
#include "runtime/reservation.h"

#define MAX_SEQS 6
#define MAX_LENGTH 40
#define NUM_FIELDS 4

struct entry {
    struct prefix_seq p; /* first */
    bool is_alive;
    bool was_admitted;
    bool is_swapped; /* out */
    int32_t
        high; /* the longest that it, or who it was forked from, was: its windows moved so far */
};

struct model {
    struct runtime_case c;
    struct test_random random;
    struct entry entries[MAX_SEQS];
    struct case_step step;
    pkv_pin pins[4];
    uint64_t now_ns;
    uint64_t digest;
    struct pkv_namespace_field fields[NUM_FIELDS];
    bool has_orphans;
    int64_t num_partial; /* admissions whose hit ended inside a block */
};

static int32_t below(struct model *m, int32_t count)
{
    return random_between(&m->random, 0, count - 1);
}

static void note(struct model *m, uint64_t value)
{
    m->digest = (m->digest ^ value) * 0x100000001b3u;
}

static struct entry *pick_any(struct model *m, bool is_alive)
{
    const int32_t first = below(m, MAX_SEQS);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        struct entry *e = &m->entries[(first + i) % MAX_SEQS];
        if (e->is_alive == is_alive && (is_alive || !case_is_row(&m->step, &e->p.seq))) {
            return e;
        }
    }
    return NULL;
}

/* One that is not swapped out. */
static struct entry *pick(struct model *m, bool is_alive)
{
    struct entry *e = pick_any(m, is_alive);
    return e != NULL && e->is_alive && e->is_swapped ? NULL : e;
}

/* Few different tokens, and often another sequence's beginning: prompts share prefixes. */
static void choose_tokens(struct model *m, struct prefix_seq *seq)
{
    const struct prefix_seq *other = &m->entries[below(m, MAX_SEQS)].p;
    const int32_t shared = other == seq ? 0 : below(m, MAX_LENGTH);
    seq->has_extra = below(m, 3) == 0;
    for (int32_t i = 0; i < MAX_LENGTH + 8; i++) {
        seq->ids[i] = i < shared ? other->ids[i] : below(m, 2);
        seq->extra[i] = seq->has_extra && i % 7 == 3 ? (uint64_t)below(m, 2) : 0;
    }
}

/* Is there room for a source beside all that a sequence of so many tokens could be promised? */
static bool has_room(const struct model *m, int32_t num_tokens)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        const int32_t spare = seq_table_num_spare(&m->c.cache->groups[g].tables);
        if (m->c.groups[g].sliding_window > 0 ||
            spare - m->c.config.watermark_blocks <=
                (num_tokens - 1) / m->c.groups[g].block_size + 1) {
            return false;
        }
    }
    return true;
}

/* A hit ends inside a block, unless there is no room for that. */
static void check_hit(const struct model *m, int32_t num_cached, int32_t whole, int32_t copied,
                      int32_t num_tokens)
{
    CU_ASSERT(num_cached == whole + copied || (num_cached == whole && !has_room(m, num_tokens)));
}

static struct pkv_seq_options random_options(struct model *m, struct pkv_namespace_field *fields)
{
    struct pkv_seq_options options = {.size = sizeof options,
                                      .max_rewind = below(m, 3) == 0 ? below(m, 5) : 0,
                                      .priority = below(m, PKV_NUM_PRIORITIES),
                                      .retention_ns = (uint64_t)below(m, 3) * 7,
                                      .no_publish = below(m, 8) == 0};
    const int32_t kind = below(m, 6);
    fields[0] = m->fields[below(m, NUM_FIELDS)];
    fields[1] = m->fields[below(m, NUM_FIELDS)];
    fields[1].tag = 9;
    static const int64_t kept_prefix = 5;
    options.kept_prefix = below(m, 5) == 0 ? &kept_prefix : NULL;
    options.namespace_fields = fields;
    options.num_namespace_fields = kind < 3 ? 0 : kind < 5 ? 1 : 2;
    return options;
}

static void admit_entry(struct model *m, struct entry *e)
{
    if (e == NULL || e->p.seq.length > 0 || case_is_row(&m->step, &e->p.seq) || e->was_admitted) {
        return;
    }
    const int32_t n = below(m, MAX_LENGTH - 8);
    const int32_t reserve = below(m, 8);
    int32_t copied = 0;
    const int32_t whole = reuse_reference_hit(&m->c, &e->p, n, &copied);
    const struct pkv_probe probe = prefix_probe(&m->c, &e->p, n, reserve);
    int32_t cached = 0;
    check_hit(m, probe.num_cached, whole, copied, n + reserve);
    const enum pkv_status status = prefix_admit(&m->c, &e->p, n, reserve, &cached);
    CU_ASSERT_EQUAL(probe.status, status);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    CU_ASSERT(status != PKV_OK || cached == probe.num_cached);
    m->num_partial += status == PKV_OK && probe.num_copied > 0;
    CU_ASSERT(probe.num_pending == 0 ||
              reuse_ends_in_all(&m->c, probe.num_pending + probe.num_cached));
    e->was_admitted = status == PKV_OK;
    e->high = e->p.seq.length;
    note(m, (uint64_t)(status == PKV_OK ? cached : 1000 + (int32_t)status));
    note(m, (uint64_t)probe.num_pending);
}

static void do_admit(struct model *m)
{
    admit_entry(m, pick(m, true));
}

static void do_create(struct model *m)
{
    struct entry *e = pick(m, false);
    struct pkv_namespace_field fields[2];
    const struct pkv_seq_options options = random_options(m, fields);
    if (e == NULL) {
        return;
    }
    choose_tokens(m, &e->p);
    const struct prefix_seq tokens = e->p;
    const enum pkv_status status = prefix_create(&m->c, &e->p, 0, &options);
    CU_ASSERT(status == PKV_OK || (status == PKV_NO_BLOCKS && m->step.handle.id != 0));
    memcpy(e->p.ids, tokens.ids, sizeof tokens.ids);
    e->p.has_extra = tokens.has_extra;
    e->is_alive = status == PKV_OK;
    e->is_swapped = false;
    e->was_admitted = false;
    e->high = 0;
    note(m, (uint64_t)status);
    if (e->is_alive && below(m, 4) != 0) {
        admit_entry(m, e);
    }
}

static void do_probe(struct model *m)
{
    static struct prefix_seq seq;
    struct pkv_namespace_field fields[2];
    const struct pkv_seq_options options = random_options(m, fields);
    prefix_own_options(&seq, &options);
    choose_tokens(m, &seq);
    const int32_t n = below(m, MAX_LENGTH);
    int32_t copied = 0;
    const int32_t whole = reuse_reference_hit(&m->c, &seq, n, &copied);
    check_hit(m, prefix_hit(&m->c, &seq, n), whole, copied, n);
}

static void do_fork(struct model *m)
{
    struct entry *e = pick(m, true);
    struct entry *child = pick(m, false);
    if (e == NULL || child == NULL) {
        return;
    }
    const int32_t at = below(m, e->p.seq.length + 1);
    struct case_seq made = child->p.seq;
    const enum pkv_status status = case_fork(&m->c, &e->p.seq, at, &made);
    CU_ASSERT(status == PKV_OK || status == PKV_BUSY || status == PKV_NOT_RESIDENT ||
              (status == PKV_NO_BLOCKS && (m->step.handle.id != 0 || e->was_admitted)));
    CU_ASSERT_EQUAL(status == PKV_BUSY, case_is_row(&m->step, &e->p.seq));
    note(m, (uint64_t)status);
    if (status == PKV_OK) {
        child->p = e->p;
        prefix_own_options(&child->p, &e->p.options);
        child->p.seq = made;
        child->is_alive = true;
        child->is_swapped = false;
        child->was_admitted = false;
        child->high = e->high;
        for (int32_t i = at; i < MAX_LENGTH + 8 && below(m, 2) == 0; i++) {
            child->p.ids[i] = below(m, 3);
        }
    }
}

static void do_truncate(struct model *m)
{
    struct entry *e = pick(m, true);
    if (e == NULL) {
        return;
    }
    const int32_t kind = below(m, 8);
    const int32_t back = kind < 2   ? e->p.seq.length
                         : kind < 4 ? below(m, e->p.seq.length + 1)
                                    : below(m, 6);
    const int32_t length = e->p.seq.length > back ? e->p.seq.length - back : 0;
    const bool must = length == 0 || e->high - length <= e->p.options.max_rewind;
    const enum pkv_status status = case_truncate(&m->c, &e->p.seq, length);
    CU_ASSERT(status == PKV_OK || status == PKV_BUSY || (status == PKV_NOT_RESIDENT && !must));
    CU_ASSERT_EQUAL(status == PKV_BUSY, case_is_row(&m->step, &e->p.seq));
    note(m, (uint64_t)status);
    if (status == PKV_OK) {
        e->was_admitted = e->was_admitted && length > 0;
        e->high = length > 0 ? e->high : 0;
        for (int32_t i = length; i < MAX_LENGTH + 8 && below(m, 2) == 0; i++) {
            e->p.ids[i] = below(m, 3);
        }
    }
}

static void do_swap(struct model *m)
{
    struct entry *e = pick_any(m, true);
    if (e == NULL) {
        return;
    }
    const pkv_seq handle = e->p.seq.handle;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const enum pkv_status status = e->is_swapped ? pkv_seq_swap_in(m->c.cache, handle, &shortage)
                                                 : pkv_seq_swap_out(m->c.cache, handle, &shortage);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_BUSY ||
              status == PKV_NEVER_FITS);
    CU_ASSERT_EQUAL(status == PKV_BUSY, case_is_row(&m->step, &e->p.seq));
    e->is_swapped = status == PKV_OK ? !e->is_swapped : e->is_swapped;
    note(m, (uint64_t)status);
    note(m, (uint64_t)shortage.need * 100 + (uint64_t)shortage.free);
}

static void do_destroy(struct model *m)
{
    struct entry *e = pick_any(m, true);
    if (e != NULL) {
        prefix_destroy(&m->c, &e->p);
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(m->c.cache, e->p.seq.handle));
        e->is_alive = false;
    }
}

static void do_pin(struct model *m)
{
    struct prefix_seq *seq = &m->entries[below(m, MAX_SEQS)].p;
    pkv_pin *pin = &m->pins[below(m, 4)];
    const int32_t kind = below(m, 4);
    int32_t num_pinned = -1;
    if (kind == 0) {
        const enum pkv_status status =
            pkv_prefix_refresh(m->c.cache, *pin, (uint64_t)below(m, 20), m->now_ns);
        CU_ASSERT(status == PKV_OK || status == PKV_STALE_HANDLE);
        note(m, (uint64_t)status);
    } else if (kind == 1) {
        const enum pkv_status status = pkv_prefix_unpin(m->c.cache, *pin);
        CU_ASSERT(status == PKV_OK || status == PKV_STALE_HANDLE);
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(m->c.cache, *pin));
        note(m, (uint64_t)status);
    } else if (seq->options.size != 0) {
        const int32_t n = below(m, MAX_LENGTH);
        const struct pkv_prompt prompt = prefix_prompt(seq, n);
        const int32_t longest = reuse_reference_hit(&m->c, seq, n + 1, NULL);
        const enum pkv_status status = pkv_prefix_pin(m->c.cache, &seq->options, &prompt,
                                                      (uint64_t)below(m, 20), 0, pin, &num_pinned);
        CU_ASSERT(status == PKV_NO_BLOCKS || (status == PKV_OK && num_pinned <= longest));
        note(m, (uint64_t)num_pinned);
    }
}

/* No effect but on the order of eviction, which the cache checks itself. */
static void do_priority(struct model *m)
{
    const struct prefix_seq *seq = &m->entries[below(m, MAX_SEQS)].p;
    const int32_t n = below(m, MAX_LENGTH);
    const int32_t from = below(m, n + 1);
    const struct pkv_prompt prompt = prefix_prompt(seq, n);
    int32_t num_changed = -1;
    if (seq->options.size != 0) {
        ASSERT_STATUS(PKV_OK,
                      pkv_prefix_set_priority(m->c.cache, &seq->options, &prompt, from, n,
                                              below(m, PKV_NUM_PRIORITIES + 1) - 1, &num_changed));
        CU_ASSERT(num_changed >= 0 && num_changed <= n - from);
        note(m, (uint64_t)num_changed);
    }
}

static void do_flush(struct model *m)
{
    struct pkv_flush_report report = {.size = sizeof report};
    const int32_t kind = below(m, 8);
    if (kind == 0) {
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(m->c.cache, true, &report));
    } else if (kind == 1) {
        const enum pkv_status status = pkv_cache_reset(m->c.cache, false, &report);
        CU_ASSERT_EQUAL(status, report.held > 0 ? PKV_BUSY : PKV_OK);
    } else if (kind < 5) {
        const struct pkv_namespace_field *field = &m->fields[below(m, NUM_FIELDS)];
        ASSERT_STATUS(PKV_OK, pkv_namespace_flush(m->c.cache, field, &report));
    } else {
        m->now_ns += (uint64_t)below(m, 10);
        ASSERT_STATUS(PKV_OK, pkv_prefix_expire(m->c.cache, m->now_ns, NULL));
    }
    note(m, (uint64_t)report.held * 10000 + (uint64_t)report.orphaned * 100 +
                (uint64_t)report.removed);
}

static void do_quota(struct model *m)
{
    const int64_t num_blocks = below(m, 2) == 0 ? 0 : 4 + below(m, 12);
    ASSERT_STATUS(PKV_OK,
                  pkv_namespace_quota(m->c.cache, &m->fields[below(m, NUM_FIELDS)], num_blocks));
}

/* Calls of other threads that fall into the open step. */
static void disturb(struct model *m)
{
    switch (below(m, 24)) {
    case 0: do_create(m); break;
    case 1: do_admit(m); break;
    case 2: do_fork(m); break;
    case 3: do_truncate(m); break;
    case 4: do_destroy(m); break;
    case 5: do_pin(m); break;
    case 6: do_flush(m); break;
    case 7: do_probe(m); break;
    case 8: CU_ASSERT_EQUAL(case_check(&m->c), 0); break;
    case 9: do_swap(m); break;
    default: break;
    }
}

/* A row that found no spare block wrote into an indexed one: what is cached behind it in blocks
 * that are promised stays, but is found no more. */
static void note_uncached(struct model *m)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        for (int32_t i = 0; i < m->step.num_rows; i++) {
            m->has_orphans |= m->c.cache->groups[g].step.reservations[i].uncaches_tail &&
                              case_taken(&m->c, g) < m->c.groups[g].num_blocks;
        }
    }
}

static bool open_step(struct model *m)
{
    const int32_t first = below(m, MAX_SEQS);
    memset(&m->step, 0, sizeof m->step);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        struct entry *e = &m->entries[(first + i) % MAX_SEQS];
        const int32_t q_len = below(m, 3) == 0 ? below(m, 12) : 1 + below(m, 3);
        if (e->is_alive && !e->is_swapped && below(m, 3) != 0 &&
            e->p.seq.length + q_len <= MAX_LENGTH) {
            case_row(&m->step, &e->p.seq, q_len);
        }
    }
    const int32_t num_required = below(m, m->step.num_rows + 1);
    const enum pkv_status status = prefix_begin(&m->c, &m->step, num_required);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    note(m, (uint64_t)m->step.shortage.row);
    if (status != PKV_OK) {
        memset(&m->step, 0, sizeof m->step);
    }
    note_uncached(m);
    return status == PKV_OK;
}

static void do_step(struct model *m)
{
    int32_t keep[CASE_MAX_ROWS] = {0};
    if (!open_step(m)) {
        return;
    }
    for (int32_t layer = 0; layer < m->c.config.num_layers; layer++) {
        disturb(m);
        CU_ASSERT(case_attend(&m->c, &m->step, layer));
    }
    disturb(m);
    const bool keeps_all = below(m, 4) != 0;
    for (int32_t i = 0; i < m->step.num_rows; i++) {
        keep[i] = keeps_all ? m->step.rows[i].q_len : below(m, m->step.rows[i].q_len + 1);
    }
    if (below(m, 8) == 0) {
        case_abort(&m->c, &m->step);
    } else {
        case_commit(&m->c, &m->step, keep);
    }
    for (int32_t i = 0; i < m->step.num_rows; i++) {
        struct entry *e = (struct entry *)(void *)m->step.rows[i].seq;
        e->high = e->high > e->p.seq.length ? e->high : e->p.seq.length;
    }
    memset(&m->step, 0, sizeof m->step);
}

static void do_any(struct model *m)
{
    switch (below(m, 24)) {
    case 0:
    case 1:
    case 2: do_create(m); break;
    case 3:
    case 4:
    case 5: do_admit(m); break;
    case 6: do_fork(m); break;
    case 7:
    case 8: do_truncate(m); break;
    case 9:
    case 10: do_destroy(m); break;
    case 11:
    case 12: do_probe(m); break;
    case 13:
        do_pin(m);
        do_priority(m);
        break;
    case 14:
        if (below(m, 6) == 0) {
            do_flush(m);
        }
        break;
    case 15: do_quota(m); break;
    case 16: do_swap(m); break;
    default: do_step(m); break;
    }
}

/* Two or three groups of one, two and three nodes a block, in any order. */
static void mix_sizes(struct model *m)
{
    static const int32_t spans[][3] = {{1, 2, 2}, {2, 1, 3}, {3, 1, 2}, {2, 1, 2}, {1, 3, 3}};
    const int32_t *span = spans[below(m, 5)];
    const int32_t node_size = 1 + below(m, 3);
    const int32_t num_groups = 2 + below(m, 2);
    struct runtime_case *c = &m->c;
    while (c->config.num_groups < num_groups) {
        case_add_group(c);
        case_add_layer(c, c->config.num_groups - 1);
    }
    for (int32_t g = 0; g < num_groups; g++) {
        struct pkv_group_config *group = &c->groups[g];
        group->block_size = span[g] * node_size;
        group->sliding_window = below(m, 2) * (1 + below(m, 12));
        group->kept_prefix = below(m, 2) * below(m, 6);
        group->num_blocks = (56 + below(m, 100)) / group->block_size + 1;
    }
}

static void configure(struct model *m, int32_t variant)
{
    struct runtime_case *c = &m->c;
    static const char *const names[NUM_FIELDS] = {"ann", "bob", "an", ""};
    prefix_init(c);
    c->config.max_seqs = MAX_SEQS;
    c->config.max_seq_len = MAX_LENGTH;
    c->config.max_step_tokens = 80;
    c->config.max_pinned_blocks = 3;
    c->config.swap_bytes = (size_t)512 << below(m, 4);
    c->config.watermark_blocks = below(m, 3);
    c->config.no_partial_hits = below(m, 4) == 0;
    c->config.min_blank_percent = below(m, 2) * below(m, 60);
    c->groups[0].block_size = 1 + below(m, 4);
    c->groups[0].num_blocks = 14 + below(m, 30);
    if (below(m, 2) == 0) {
        c->groups[0].block_size = 5 + below(m, 5);
        c->groups[0].num_blocks = 7 + below(m, 12);
    }
    if (variant == 1) {
        c->groups[0].sliding_window = 1 + below(m, 9);
        c->groups[0].kept_prefix = below(m, 6);
    } else if (variant == 2) {
        struct pkv_group_config *window = case_add_group(c);
        window->sliding_window = 1 + below(m, 9);
        window->kept_prefix = below(m, 4);
        window->num_blocks = 12 + below(m, 12);
        window->kv_heads = 2;
        case_add_layer(c, 1);
    }
    if (variant == 3) {
        mix_sizes(m);
    }
    for (int32_t f = 0; f < NUM_FIELDS; f++) {
        m->fields[f] = prefix_field_of(f % 2 + 1, names[f], below(m, 2) * below(m, 9));
    }
    m->now_ns = 1;
    m->digest = 0xcbf29ce484222325u;
}

static void close_model(struct model *m)
{
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        if (m->entries[i].is_alive) {
            prefix_destroy(&m->c, &m->entries[i].p);
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(m->c.cache, UINT64_MAX, NULL));
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        CU_ASSERT_EQUAL(case_held(&m->c, g), 0);
    }
    case_close(&m->c);
}

/* A history of num_ops calls; what can be seen of it, as one number. *num_partial counts its hits
 * that ended inside a block. */
static uint64_t run_history(uint64_t seed, int32_t variant, int32_t masked_bits, int64_t num_ops,
                            int64_t *num_partial)
{
    static struct model model;
    struct model *m = &model;
    memset(m, 0, sizeof *m);
    m->random.state = seed;
    configure(m, variant);
    m->c.config.masked_hash_bits = masked_bits;
    case_open(&m->c);
    const unsigned failures = CU_get_number_of_failures();
    for (int64_t op = 0; op < num_ops; op++) {
        do_any(m);
        CU_ASSERT_EQUAL(case_check(&m->c), 0);
        reuse_check_chains(&m->c, m->has_orphans);
        note(m, prefix_digest(&m->c));
        if (CU_get_number_of_failures() != failures) {
            printf("\n    variant %d, mask %d, call %lld, seed %llu (suite seed %llu)\n",
                   (int)variant, (int)masked_bits, (long long)op, (unsigned long long)seed,
                   (unsigned long long)test_seed());
            ASSERT_STATUS(PKV_OK, pkv_cache_destroy(m->c.cache, true));
            return 0;
        }
    }
    close_model(m);
    *num_partial += m->num_partial;
    return m->digest;
}

static int64_t ops_wanted(void)
{
    const char *text = getenv("PKV_TEST_OPS");
    return text != NULL ? strtoll(text, NULL, 10) : 10000;
}

static void run_variant(int32_t variant)
{
    static const int32_t masks[] = {0, 0, 128, 120, 112};
    const int64_t num_rounds = ops_wanted() / 2000 + 1;
    const bool may_be_partial = variant != 3;
    const int64_t max_rounds = may_be_partial ? 10 * num_rounds : num_rounds;
    int64_t num_partial = 0;
    for (int64_t round = 0; round < (num_partial > 0 ? num_rounds : max_rounds); round++) {
        const uint64_t seed = test_seed() + (uint64_t)(variant * 100000 + round);
        uint64_t first = 0;
        for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
            const uint64_t digest = run_history(seed, variant, masks[i], 400, &num_partial);
            first = i == 0 ? digest : first;
            CU_ASSERT_EQUAL(digest, first);
            if (digest == 0 || digest != first) {
                return;
            }
        }
    }
    CU_ASSERT_EQUAL(num_partial > 0, may_be_partial);
}

/* A11, D1: hits, evictions and counts are those of a model that compares tokens, and free and held
 * blocks are all blocks. */
static void a_full_group_follows_the_model(void)
{
    run_variant(0);
}

static void a_window_group_follows_the_model(void)
{
    run_variant(1);
}

static void two_groups_follow_the_model(void)
{
    run_variant(2);
}

/* K12: with a block size of its own in each group, every hit is one that all can serve. */
static void groups_of_different_block_sizes_follow_the_model(void)
{
    run_variant(3);
}

static const struct test_case cases[] = {
    TEST(a_full_group_follows_the_model),
    TEST(a_window_group_follows_the_model),
    TEST(two_groups_follow_the_model),
    TEST(groups_of_different_block_sizes_follow_the_model),
    TEST_END,
};
const struct test_suite suite_runtime_reuse_model = {"runtime_reuse_model", cases};
