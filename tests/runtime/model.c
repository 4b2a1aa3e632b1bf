/* SPDX-License-Identifier: MIT
 *
 * Random calls against a naive model. The model holds each sequence's tokens in a plain list (what
 * attention must give), and for each group which of a sequence's blocks are still there (what
 * truncate and fork must answer). After each call the cache checks itself, and a step that writes
 * nothing shows all block tables: their holes are the model's, and the blocks that they name are
 * the blocks that are held. PKV_TEST_SEED replays a run; the first fault ends it. */
#include <stdio.h>
#include <string.h>

#include "support/runtime_case.h"

#define MAX_SEQS 8
#define MAX_LENGTH 64
#define MAX_POOL 64

struct entry {
    struct case_seq seq;
    bool is_alive;
    bool was_admitted; /* may have been promised blocks */
    bool is_swapped;   /* out */
    uint64_t tag;
    int32_t max_rewind;
    bool resident[CASE_MAX_GROUPS][MAX_LENGTH + 1];
};

struct model {
    struct runtime_case c;
    struct test_random random;
    struct entry entries[MAX_SEQS];
    struct case_step step;
    bool has_continuous;
    int32_t num_alive;
};

static bool is_paged(const struct model *m, int32_t group)
{
    return m->c.groups[group].storage == PKV_STORAGE_PAGED;
}

static int32_t blocks_of(const struct model *m, int32_t group, int32_t length)
{
    const int32_t block_size = m->c.groups[group].block_size;
    return (length + block_size - 1) / block_size;
}

static int64_t prefix_of(const struct model *m, const struct entry *e, int32_t group)
{
    return e->seq.kept_prefix >= 0 ? e->seq.kept_prefix : m->c.groups[group].kept_prefix;
}

static int32_t below(struct model *m, int32_t count)
{
    return random_between(&m->random, 0, count - 1);
}

/* A random one. The place of a row that died in the open step is not given out before its end. */
static struct entry *pick_any(struct model *m, bool is_alive)
{
    const int32_t first = below(m, MAX_SEQS);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        struct entry *e = &m->entries[(first + i) % MAX_SEQS];
        if (e->is_alive == is_alive && (is_alive || !case_is_row(&m->step, &e->seq))) {
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

/* What a query at `length` sees is there in every group. */
static bool is_resident_at(const struct model *m, const struct entry *e, int32_t length)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        const int64_t window = m->c.groups[g].sliding_window;
        for (int32_t j = 0; is_paged(m, g) && j < length; j++) {
            const bool is_seen = window == 0 || j > length - window || j < prefix_of(m, e, g);
            if (is_seen && !e->resident[g][j / m->c.groups[g].block_size]) {
                return false;
            }
        }
    }
    return true;
}

static void cut_past(const struct model *m, struct entry *e, int32_t length)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        for (int32_t b = blocks_of(m, g, length); b <= MAX_LENGTH; b++) {
            e->resident[g][b] = false;
        }
    }
}

/* New cells [first, end) are there now, and what left the window is not. */
static void slide(const struct model *m, struct entry *e, int32_t first, int32_t end)
{
    const int32_t query = end - e->max_rewind > 0 ? end - e->max_rewind : 0;
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        const int32_t block_size = m->c.groups[g].block_size;
        const int64_t window = m->c.groups[g].sliding_window;
        for (int32_t b = first / block_size; first < end && b < blocks_of(m, g, end); b++) {
            e->resident[g][b] = true;
        }
        for (int32_t b = 0; window != 0 && b < blocks_of(m, g, end); b++) {
            const int32_t last = (b + 1) * block_size - 1;
            if (b * block_size >= prefix_of(m, e, g) && last <= query - window) {
                e->resident[g][b] = false;
            }
        }
    }
}

static void bury(struct model *m, struct entry *e)
{
    e->is_alive = false;
    m->num_alive--;
}

static void do_create(struct model *m)
{
    struct entry *e = pick(m, false);
    const int64_t prefix = below(m, 7);
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .tag = (uint64_t)below(m, 4),
                                            .kept_prefix = below(m, 3) == 0 ? &prefix : NULL,
                                            .max_rewind = below(m, 4)};
    if (e == NULL) {
        pkv_seq none = {0};
        if (m->num_alive == MAX_SEQS) {
            ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_create(m->c.cache, &options, &none));
        }
        return;
    }
    /* a sequence that is ending with the open step still has its place */
    const enum pkv_status status = case_create(&m->c, &e->seq, &options);
    CU_ASSERT(status == PKV_OK || (status == PKV_NO_BLOCKS && m->step.handle.id != 0));
    if (status != PKV_OK) {
        return;
    }
    e->is_alive = true;
    e->is_swapped = false;
    e->was_admitted = false;
    e->tag = options.tag;
    e->max_rewind = options.max_rewind;
    memset(e->resident, 0, sizeof e->resident);
    m->num_alive++;
}

static void do_admit(struct model *m)
{
    struct entry *e = pick(m, true);
    if (e == NULL || e->was_admitted || case_is_row(&m->step, &e->seq)) {
        return;
    }
    const int32_t n = below(m, 20);
    const int32_t reserve = below(m, 12);
    if (e->seq.length > 0) {
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_admit(&m->c, &e->seq, n, reserve, NULL));
        return;
    }
    bool must_fit = true;
    bool is_short = false;
    bool never_fits = false;
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        const int32_t need = is_paged(m, g) ? blocks_of(m, g, n + reserve) : 0;
        const bool is_full = m->c.groups[g].sliding_window == 0;
        must_fit = must_fit && need <= case_free(&m->c, g);
        is_short = is_short || (is_full && need > case_free(&m->c, g));
        never_fits = never_fits || (is_full && is_paged(m, g) && need > m->c.groups[g].num_blocks);
    }
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const enum pkv_status status = case_admit(&m->c, &e->seq, n, reserve, &shortage);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    CU_ASSERT(!must_fit || status == PKV_OK);
    CU_ASSERT(!is_short || status != PKV_OK);
    CU_ASSERT(!never_fits || status == PKV_NEVER_FITS);
    e->was_admitted = status == PKV_OK;
}

static void do_fork(struct model *m)
{
    struct entry *e = pick(m, true);
    struct entry *child = pick(m, false);
    if (e == NULL || child == NULL) {
        return;
    }
    const int32_t at = below(m, e->seq.length + 1);
    const enum pkv_status status = case_fork(&m->c, &e->seq, at, &child->seq);
    if (case_is_row(&m->step, &e->seq)) {
        CU_ASSERT(status == PKV_BUSY || (m->has_continuous && status == PKV_UNSUPPORTED));
    } else if (m->has_continuous) {
        CU_ASSERT_EQUAL(status, PKV_UNSUPPORTED);
    } else if (!is_resident_at(m, e, at)) {
        CU_ASSERT_EQUAL(status, PKV_NOT_RESIDENT);
    } else {
        /* a sequence that is ending still has its place; a window may be promised */
        const bool may_refuse = m->step.handle.id != 0 || e->was_admitted;
        CU_ASSERT(status == PKV_OK || (status == PKV_NO_BLOCKS && may_refuse));
    }
    if (status != PKV_OK) {
        return;
    }
    child->is_alive = true;
    child->is_swapped = false;
    child->was_admitted = false;
    child->tag = e->tag;
    child->max_rewind = e->max_rewind;
    memcpy(child->resident, e->resident, sizeof e->resident);
    cut_past(m, child, at);
    m->num_alive++;
}

/* C7: a refusal says the shortest length past the requested one that is possible. */
static void assert_truncate_refused(struct model *m, struct entry *e, int32_t length)
{
    char shortest[16];
    int32_t possible = length;
    while (possible < e->seq.length && !is_resident_at(m, e, possible)) {
        possible++;
    }
    snprintf(shortest, sizeof shortest, " %d,", (int)possible);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, shortest, case_truncate(&m->c, &e->seq, length));
}

static void do_truncate(struct model *m)
{
    struct entry *e = pick(m, true);
    if (e == NULL) {
        return;
    }
    const int32_t back = below(m, 4) == 0 ? below(m, e->seq.length + 1) : below(m, 6);
    const int32_t length = e->seq.length > back ? e->seq.length - back : 0;
    const bool is_busy = case_is_row(&m->step, &e->seq);
    if (!is_busy && length > 0 && !is_resident_at(m, e, length)) {
        assert_truncate_refused(m, e, length);
        return;
    }
    ASSERT_STATUS(is_busy ? PKV_BUSY : PKV_OK, case_truncate(&m->c, &e->seq, length));
    if (!is_busy) {
        cut_past(m, e, length);
        e->was_admitted = e->was_admitted && length > 0;
    }
}

/* Does each group have as many spare blocks as the sequence has blocks? */
static bool has_room_again(struct model *m, const struct entry *e)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        int32_t need = 0;
        for (int32_t b = 0; is_paged(m, g) && b <= MAX_LENGTH; b++) {
            need += e->resident[g][b];
        }
        if (need > case_free(&m->c, g)) {
            return false;
        }
    }
    return true;
}

static void refuse_swapped(struct model *m, struct entry *e)
{
    struct entry *child = pick(m, false);
    struct case_step step = {0};
    case_row(&step, &e->seq, 1);
    if (m->step.handle.id == 0) {
        ASSERT_STATUS(PKV_NOT_RESIDENT, case_begin(&m->c, &step, 1));
    }
    if (child != NULL) {
        ASSERT_STATUS(PKV_NOT_RESIDENT, case_fork(&m->c, &e->seq, e->seq.length, &child->seq));
    }
    if (e->seq.length > 0) {
        ASSERT_STATUS(PKV_NOT_RESIDENT, case_truncate(&m->c, &e->seq, e->seq.length));
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_swap_out(m->c.cache, e->seq.handle, NULL));
}

static void do_swap(struct model *m)
{
    struct entry *e = pick_any(m, true);
    if (e == NULL) {
        return;
    }
    if (!e->is_swapped) {
        const enum pkv_status status = pkv_seq_swap_out(m->c.cache, e->seq.handle, NULL);
        CU_ASSERT_EQUAL(status == PKV_BUSY, case_is_row(&m->step, &e->seq));
        CU_ASSERT(status == PKV_OK || status == PKV_BUSY || status == PKV_NO_BLOCKS ||
                  status == PKV_NEVER_FITS);
        e->is_swapped = status == PKV_OK;
        return;
    }
    refuse_swapped(m, e);
    if (below(m, 8) == 0) {
        ASSERT_STATUS(PKV_OK, case_truncate(&m->c, &e->seq, 0));
        cut_past(m, e, 0);
        e->was_admitted = e->is_swapped = false;
        return;
    }
    const bool has_room = has_room_again(m, e);
    const enum pkv_status status = pkv_seq_swap_in(m->c.cache, e->seq.handle, NULL);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS);
    CU_ASSERT(has_room || status != PKV_OK || e->was_admitted);
    CU_ASSERT(!has_room || status == PKV_OK || e->was_admitted);
    e->is_swapped = status != PKV_OK;
}

static void do_destroy(struct model *m)
{
    struct entry *e = pick_any(m, true);
    if (e == NULL) {
        return;
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(m->c.cache, e->seq.handle));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(m->c.cache, e->seq.handle));
    bury(m, e);
}

static void do_destroy_tagged(struct model *m)
{
    const uint64_t tag = (uint64_t)random_between(&m->random, 1, 3);
    int32_t expected = 0;
    int32_t count = -1;
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        if (m->entries[i].is_alive && m->entries[i].tag == tag) {
            bury(m, &m->entries[i]);
            expected++;
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(m->c.cache, tag, &count));
    CU_ASSERT_EQUAL(count, expected);
}

/* Blocks that a row's new cells touch: at most all of them are taken, and at least those past the
 * block it is in, unless they were reserved. */
static int32_t touched(const struct model *m, const struct case_row *row, int32_t group, bool least)
{
    const struct entry *e = (const struct entry *)(const void *)row->seq;
    const int32_t length = row->seq->length;
    if (row->q_len == 0 || !is_paged(m, group) || (least && e->was_admitted)) {
        return 0;
    }
    const int32_t first = length / m->c.groups[group].block_size;
    const int32_t count = blocks_of(m, group, length + row->q_len) - first;
    return least && e->resident[group][first] ? count - 1 : count;
}

static bool rows_fit(struct model *m, int32_t num_rows, bool least)
{
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        int32_t need = 0;
        for (int32_t i = 0; i < num_rows; i++) {
            need += touched(m, &m->step.rows[i], g, least);
        }
        if (need > case_free(&m->c, g)) {
            return false;
        }
    }
    return true;
}

static void choose_rows(struct model *m)
{
    const int32_t first = below(m, MAX_SEQS);
    int32_t tokens_left = m->c.config.max_step_tokens;
    memset(&m->step, 0, sizeof m->step);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        struct entry *e = &m->entries[(first + i) % MAX_SEQS];
        int32_t q_len = below(m, 4) == 0 ? below(m, 10) : below(m, 3);
        const int32_t room = MAX_LENGTH - e->seq.length;
        q_len = q_len < room ? q_len : room;
        q_len = q_len < tokens_left ? q_len : tokens_left;
        if (e->is_alive && !e->is_swapped && below(m, 3) != 0) {
            case_row(&m->step, &e->seq, q_len);
            tokens_left -= q_len;
        }
    }
}

/* Opens the step when begin allows it; fits must have said the same. */
static bool open_step(struct model *m)
{
    choose_rows(m);
    struct pkv_shortage foreseen = {.size = sizeof foreseen};
    const int32_t num_rows = m->step.num_rows;
    const int32_t num_required = below(m, num_rows + 1);
    const bool must_fit = rows_fit(m, num_required, false);
    const bool all_fit = rows_fit(m, num_rows, false);
    const bool cannot_fit = !rows_fit(m, num_required, true);
    bool next_fits[MAX_SEQS + 1]; /* were one more row than this to join */
    for (int32_t i = 0; i < num_rows; i++) {
        next_fits[i] = rows_fit(m, i + 1, false);
    }
    const enum pkv_status status = case_fits(&m->c, &m->step, num_required, &foreseen);
    CU_ASSERT_EQUAL(case_begin(&m->c, &m->step, num_required), status);
    CU_ASSERT(foreseen.row == m->step.shortage.row && foreseen.need == m->step.shortage.need &&
              foreseen.free == m->step.shortage.free && foreseen.group == m->step.shortage.group);
    CU_ASSERT(!must_fit || status == PKV_OK);
    CU_ASSERT(!cannot_fit || status != PKV_OK);
    if (status != PKV_OK) {
        CU_ASSERT(status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
        CU_ASSERT(m->step.shortage.row >= 0 && m->step.shortage.row < num_required);
        CU_ASSERT(m->step.shortage.need > m->step.shortage.free);
        m->step.num_rows = 0;
        return false;
    }
    CU_ASSERT(!all_fit || m->step.num_rows == num_rows);
    CU_ASSERT(m->step.num_rows == num_rows || !next_fits[m->step.num_rows]);
    return true;
}

/* Calls of other threads that fall into the open step. */
static void disturb(struct model *m)
{
    switch (below(m, 24)) {
    case 0: do_create(m); break;
    case 1: do_admit(m); break;
    case 2: do_fork(m); break;
    case 3: do_fork(m); break;
    case 4: do_truncate(m); break;
    case 5: do_truncate(m); break;
    case 6: do_destroy(m); break;
    case 7: CU_ASSERT_EQUAL(case_check(&m->c), 0); break;
    case 8:
        if (m->c.config.swap_bytes > 0) {
            do_swap(m);
        }
        break;
    default: break;
    }
}

/* A row whose sequence was destroyed gave its place up: nothing may reuse it before the end. */
static void close_step(struct model *m)
{
    int32_t keep[CASE_MAX_ROWS] = {0};
    int32_t lengths[CASE_MAX_ROWS] = {0};
    const bool keeps_all = below(m, 2) == 0;
    const bool aborts = below(m, 5) == 0;
    for (int32_t i = 0; i < m->step.num_rows; i++) {
        keep[i] = keeps_all ? m->step.rows[i].q_len : below(m, m->step.rows[i].q_len + 1);
        lengths[i] = m->step.rows[i].seq->length;
    }
    if (aborts) {
        case_abort(&m->c, &m->step);
    } else {
        case_commit(&m->c, &m->step, keep);
    }
    for (int32_t i = 0; !aborts && i < m->step.num_rows; i++) {
        struct entry *e = (struct entry *)(void *)m->step.rows[i].seq;
        slide(m, e, lengths[i], e->seq.length);
    }
    memset(&m->step, 0, sizeof m->step);
}

static void do_step(struct model *m)
{
    if (!open_step(m)) {
        return;
    }
    for (int32_t layer = 0; layer < m->c.config.num_layers; layer++) {
        disturb(m);
        CU_ASSERT(case_attend(&m->c, &m->step, layer));
        ASSERT_STATUS(PKV_OK, m->step.attended);
    }
    disturb(m);
    close_step(m);
}

/* One group's tables: holes where the model has them, nothing past the length, and held blocks are
 * the ones that some table names. */
static void check_tables(struct model *m, const struct case_step *step, int32_t group)
{
    bool is_named[MAX_POOL] = {false};
    int32_t num_named = 0;
    struct pkv_step_view view = {.size = sizeof view};
    ASSERT_STATUS(PKV_OK, pkv_step_describe(m->c.cache, step->handle, group, &view));
    for (int32_t i = 0; i < step->num_rows; i++) {
        const struct entry *e = (const struct entry *)(const void *)step->rows[i].seq;
        const int32_t *table = view.block_tables + (size_t)view.table_rows[i] * view.table_stride;
        const int32_t end = blocks_of(m, group, e->seq.length);
        for (int32_t b = 0; b < view.max_blocks; b++) {
            const bool is_mapped = table[b] >= 0;
            CU_ASSERT(b < end ? is_mapped == e->resident[group][b] : !is_mapped);
            CU_ASSERT(table[b] >= -1 && table[b] < m->c.groups[group].num_blocks);
            if (table[b] >= 0 && !is_named[table[b]]) {
                is_named[table[b]] = true;
                num_named++;
            }
        }
    }
    CU_ASSERT_EQUAL(case_taken(&m->c, group), num_named);
}

static void check_all(struct model *m)
{
    struct case_step step = {0};
    int32_t num_swapped = 0;
    CU_ASSERT_EQUAL(case_check(&m->c), 0);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        struct entry *e = &m->entries[i];
        if (!e->is_alive) {
            continue;
        }
        CU_ASSERT_EQUAL(case_length(&m->c, e->seq.handle), e->seq.length);
        num_swapped += e->is_swapped;
        if (!e->is_swapped) {
            case_row(&step, &e->seq, 0);
        }
    }
    CU_ASSERT_EQUAL(step.num_rows + num_swapped, m->num_alive);
    ASSERT_STATUS(PKV_OK, case_begin(&m->c, &step, step.num_rows));
    for (int32_t g = 0; g < m->c.config.num_groups; g++) {
        if (is_paged(m, g)) {
            check_tables(m, &step, g);
        } else {
            CU_ASSERT_EQUAL(case_held(&m->c, g), m->num_alive);
        }
    }
    case_abort(&m->c, &step);
}

static void random_group(struct model *m, struct pkv_group_config *group, bool is_paged_group,
                         bool has_window)
{
    group->storage = is_paged_group ? PKV_STORAGE_PAGED : PKV_STORAGE_CONTINUOUS;
    group->kv_heads = 1 + below(m, 3);
    group->k_width = 1 + below(m, 9);
    group->v_width = below(m, 3) == 0 ? 0 : 1 + below(m, 9);
    group->v_in_k = below(m, 4) == 0;
    if (group->v_in_k && group->v_width > group->k_width) {
        group->v_width = group->k_width;
    }
    group->k_dtype = (enum pkv_dtype)below(m, 3);
    group->v_dtype = (enum pkv_dtype)below(m, 3);
    group->block_size = 1 + below(m, 5);
    group->sliding_window = has_window ? 1 + below(m, 9) : 0;
    group->kept_prefix = below(m, 5);
    group->num_blocks = 12 + below(m, MAX_POOL - 11);
}

/* Groups by variant, layers in the groups at random, one of them sharing. */
static void configure(struct model *m, int32_t variant)
{
    struct runtime_case *c = &m->c;
    case_init(c);
    c->mean = below(m, 3) == 0;
    c->fused = below(m, 2) == 0;
    c->config.dtype = (enum pkv_dtype)below(m, 3);
    c->config.num_threads = 1 + below(m, 2);
    c->config.max_step_tokens = 20;
    c->config.swap_bytes = variant != 3 ? (size_t)4096 << below(m, 6) : 0;
    m->has_continuous = variant >= 3;
    c->config.prefix_cache = m->has_continuous && below(m, 2) == 0; /* with hits of 0 tokens */
    random_group(m, &c->groups[0], variant != 3, variant == 2);
    if (variant > 0) {
        random_group(m, case_add_group(c), variant < 3, true);
        case_add_layer(c, 1)->num_heads *= 1 + below(m, 3);
    }
    c->layers[0].num_heads = c->groups[0].kv_heads * (1 + below(m, 3));
    case_add_layer(c, c->config.num_groups - 1);
    struct pkv_layer_config *sharing = case_add_layer(c, 0);
    sharing->shares_kv = true;
    case_open(c);
}

static void do_any(struct model *m)
{
    switch (below(m, 16)) {
    case 0:
    case 1: do_create(m); break;
    case 2: do_admit(m); break;
    case 3:
    case 4: do_fork(m); break;
    case 5:
    case 6: do_truncate(m); break;
    case 7: do_destroy(m); break;
    case 9:
        if (m->c.config.swap_bytes > 0) {
            do_swap(m);
        }
        break;
    case 8:
        if (below(m, 4) == 0) {
            do_destroy_tagged(m);
        }
        break;
    default: do_step(m); break;
    }
}

static void run_model(int32_t variant)
{
    static struct model model;
    struct model *m = &model;
    for (int32_t round = 0; round < 6; round++) {
        memset(m, 0, sizeof *m);
        m->random.state = test_seed() + (uint64_t)(variant * 1000 + round);
        configure(m, variant);
        const unsigned failures = CU_get_number_of_failures();
        for (int32_t op = 0; op < 400; op++) {
            do_any(m);
            check_all(m);
            if (CU_get_number_of_failures() != failures) {
                printf("\n    variant %d, round %d, call %d, seed %llu\n", (int)variant, (int)round,
                       (int)op, (unsigned long long)test_seed());
                ASSERT_STATUS(PKV_OK, pkv_cache_destroy(m->c.cache, true));
                return;
            }
        }
        for (int32_t i = 0; i < MAX_SEQS; i++) {
            if (m->entries[i].is_alive) {
                ASSERT_STATUS(PKV_OK, pkv_seq_destroy(m->c.cache, m->entries[i].seq.handle));
            }
        }
        for (int32_t g = 0; g < m->c.config.num_groups; g++) {
            CU_ASSERT_EQUAL(case_held(&m->c, g), 0);
        }
        case_close(&m->c);
    }
}

/* A11: free and held blocks are all blocks, after every operation. */
static void one_full_group_follows_the_model(void)
{
    run_model(0);
}

static void a_full_and_a_window_group_follow_the_model(void)
{
    run_model(1);
}

static void two_window_groups_follow_the_model(void)
{
    run_model(2);
}

static void continuous_groups_follow_the_model(void)
{
    run_model(3);
}

static void paged_and_continuous_groups_follow_the_model(void)
{
    run_model(4);
}

static const struct test_case cases[] = {
    TEST(one_full_group_follows_the_model),
    TEST(a_full_and_a_window_group_follow_the_model),
    TEST(two_window_groups_follow_the_model),
    TEST(continuous_groups_follow_the_model),
    TEST(paged_and_continuous_groups_follow_the_model),
    TEST_END,
};
const struct test_suite suite_runtime_model = {"runtime_model", cases};
