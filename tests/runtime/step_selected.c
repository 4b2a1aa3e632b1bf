/* SPDX-License-Identifier: MIT
 *
 * Selected blocks in steps. Two caches get the same calls; the layers of one read lists of selected
 * blocks, those of the other all keys. Lists of all blocks give the bits of the other cache; other
 * lists give those of the raw operator's masked call over the same pages. */
#include <string.h>

#include "attn/workspace.h"
#include "runtime/cache.h"
#include "support/runtime_case.h"

enum {
    KV_HEADS = 2,
    HEADS = 4,
    WIDTH = 8,
    MAX_ROWS = 4,
    MAX_TOKENS = 64,
    MAX_LENGTH = 128,
    NUM_SLOTS = 6,
    NUM_REQUESTS = 300,
    MAX_LISTED = MAX_ROWS * KV_HEADS * MAX_LENGTH,
    TEXT = 100
};

struct live {
    bool is_on;
    pkv_seq seqs[2];
    int32_t length;
    int32_t ids[MAX_LENGTH];
};

struct model {
    struct runtime_case cases[2]; /* [0] has the lists */
    struct live live[NUM_SLOTS];
    struct test_random random;
    pkv_workspace *workspace;
    long num_hits, num_forks, num_masked, num_whole;
};

/* The activations of one layer. */
static float q[MAX_TOKENS * HEADS * WIDTH], k[MAX_TOKENS * KV_HEADS * WIDTH],
    v[MAX_TOKENS * KV_HEADS * WIDTH], out[3][MAX_TOKENS * HEADS * WIDTH],
    lse[3][MAX_TOKENS * HEADS];
static int32_t selected[MAX_LISTED], cu_selected[MAX_ROWS * KV_HEADS + 1];
static int8_t mask[MAX_ROWS * HEADS * MAX_TOKENS * MAX_LENGTH];

/* Layers: two of group 0, the second reading the pages of the first; then one of each group. */
static void open_case(struct runtime_case *c, bool is_continuous, int num_threads)
{
    case_init(c);
    c->groups[0].kv_heads = KV_HEADS;
    c->groups[0].k_width = c->groups[0].v_width = WIDTH;
    c->groups[0].num_blocks = 150;
    struct pkv_group_config *wide = case_add_group(c);
    wide->block_size = 8;
    wide->k_dtype = PKV_BF16;
    wide->v_dtype = PKV_F16;
    case_add_group(c)->sliding_window = 9;
    if (is_continuous) {
        c->groups[0].storage = PKV_STORAGE_CONTINUOUS;
        c->groups[0].num_blocks = c->groups[0].block_size = 0;
    }
    c->config.num_layers = 0;
    case_add_layer(c, 0)->num_heads = HEADS;
    struct pkv_layer_config *sharing = case_add_layer(c, 0);
    sharing->num_heads = HEADS;
    sharing->shares_kv = true;
    case_add_layer(c, 1)->num_heads = HEADS;
    case_add_layer(c, 2)->num_heads = HEADS;
    c->config.prefix_cache = !is_continuous;
    c->config.max_seq_len = MAX_LENGTH;
    c->config.num_threads = num_threads;
    case_open(c);
    c->cache->workspace->thread_ns = 1;
}

static void fill(struct test_random *random, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)random_unit(random);
    }
}

static struct pkv_layer_io io_of(const struct runtime_case *c, int32_t layer, int which)
{
    const bool shares = c->layers[layer].shares_kv;
    return (struct pkv_layer_io){.size = sizeof(struct pkv_layer_io),
                                 .q = q,
                                 .k = shares ? NULL : k,
                                 .v = shares ? NULL : v,
                                 .out = out[which],
                                 .lse = lse[which]};
}

/* Lists of so many percent of the blocks, by row or by row and KV head. */
static void draw_lists(struct model *m, const struct pkv_step_view *view, int percent,
                       struct pkv_layer_io *io)
{
    const bool is_paged = view->block_tables != NULL && view->table_rows != NULL;
    const int32_t per_row = random_between(&m->random, 0, 1) == 0 ? 1 : KV_HEADS;
    io->selection_size = is_paged ? random_between(&m->random, 0, 9) : 5;
    const int32_t size =
        io->selection_size != 0 ? io->selection_size : view->first_layer.block_size;
    io->num_selected_lists = view->num_rows * per_row;
    io->selected = selected;
    io->cu_selected = cu_selected;
    io->selected_newest = percent == 100 ? 0 : random_between(&m->random, 0, 12);
    int32_t count = 0;
    for (int32_t i = 0; i < io->num_selected_lists; i++) {
        const int32_t num_blocks = (view->kv_lens[i / per_row] + size - 1) / size;
        for (int32_t s = 0; s < num_blocks; s++) {
            if (random_between(&m->random, 1, 100) <= percent) {
                selected[count++] = s;
            }
        }
        cu_selected[i + 1] = count;
    }
}

static bool sees(const struct pkv_layer_io *io, int32_t size, int32_t list, int32_t f, int32_t j)
{
    bool is_listed = j > f - io->selected_newest;
    for (int32_t i = cu_selected[list]; i < cu_selected[list + 1]; i++) {
        is_listed = is_listed || selected[i] == j / size;
    }
    return is_listed;
}

/* The lists as a mask of longest_q queries and longest_kv keys a row and head. */
static void fill_mask(const struct pkv_step_view *view, const struct pkv_layer_io *io,
                      struct pkv_gqa_args *args)
{
    const int32_t per_row = io->num_selected_lists / view->num_rows;
    const int32_t size =
        io->selection_size != 0 ? io->selection_size : view->first_layer.block_size;
    const int32_t queries = MAX_TOKENS, keys = MAX_LENGTH;
    memset(mask, 0, sizeof mask);
    for (int32_t b = 0; b < view->num_rows; b++) {
        const int32_t q_len = view->cu_seqlens_q[b + 1] - view->cu_seqlens_q[b];
        for (int32_t at = 0; at < HEADS * q_len; at++) {
            const int32_t h = at / q_len, i = at % q_len, f = view->kv_lens[b] - q_len + i;
            const int32_t list = b * per_row + (per_row > 1 ? h / (HEADS / KV_HEADS) : 0);
            int8_t *to = mask + ((b * HEADS + h) * queries + i) * keys;
            for (int32_t j = 0; j <= f; j++) {
                to[j] = sees(io, size, list, f, j);
            }
        }
    }
    args->attn_mask = mask;
    args->mask_dtype = PKV_INT8;
    args->mask_batch = view->num_rows;
    args->mask_heads = HEADS;
    args->mask_queries = queries;
    args->mask_keys = keys;
}

/* The masked call over the pages that the step wrote. */
static void run_masked(struct model *m, const struct pkv_step_view *view, int32_t layer,
                       const struct pkv_layer_io *io)
{
    static int32_t table[MAX_ROWS * MAX_LENGTH];
    const bool is_paged = view->table_rows != NULL;
    struct pkv_gqa_args args = {.size = sizeof args,
                                .form = is_paged ? PKV_CACHE_PAGED : PKV_CACHE_CONTINUOUS,
                                .num_heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .k_width = WIDTH,
                                .batch = view->num_rows,
                                .num_tokens = view->num_tokens,
                                .cu_seqlens_q = view->cu_seqlens_q,
                                .kv_lens = view->kv_lens,
                                .slot_ids = view->slot_ids,
                                .q = q,
                                .out = out[2],
                                .lse = lse[2],
                                .past = m->cases[0].cache->layers[layer].view};
    for (int32_t b = 0; is_paged && b < view->num_rows; b++) {
        memcpy(table + b * view->max_blocks,
               view->block_tables + (size_t)view->table_rows[b] * view->table_stride,
               (size_t)view->max_blocks * sizeof *table);
    }
    args.block_table = is_paged ? table : NULL;
    args.max_blocks = is_paged ? view->max_blocks : 0;
    fill_mask(view, io, &args);
    ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(m->workspace, &args));
}

static void attend(struct runtime_case *c, pkv_step step, int32_t layer, bool in_tasks,
                   const struct pkv_layer_io *io)
{
    if (!in_tasks) {
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, io));
        return;
    }
    ASSERT_STATUS(PKV_OK, pkv_step_layer_begin(c->cache, step, layer, io));
    memset(selected, 0xff, sizeof selected); /* lists are read during the call alone */
    for (int p = 0; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        for (int32_t i = pkv_step_num_tasks(c->cache, step, phase) - 1; i >= 0; i--) {
            ASSERT_STATUS(PKV_OK, pkv_step_run_task(c->cache, step, phase, i, 0));
        }
    }
}

static void attend_layer(struct model *m, const pkv_step *steps, int32_t layer)
{
    struct runtime_case *c = &m->cases[0];
    struct pkv_step_view view = {.size = sizeof view};
    const int32_t group = c->layers[layer].group;
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c->cache, steps[0], group, &view));
    const size_t tokens = (size_t)view.num_tokens;
    fill(&m->random, q, tokens * HEADS * WIDTH);
    fill(&m->random, k, tokens * KV_HEADS * WIDTH);
    fill(&m->random, v, tokens * KV_HEADS * WIDTH);
    struct pkv_layer_io io = io_of(c, layer, 1);
    ASSERT_STATUS(PKV_OK, pkv_step_attend(m->cases[1].cache, steps[1], layer, &io));
    io = io_of(c, layer, 0);
    const bool is_whole = random_between(&m->random, 0, 1) == 0;
    const bool in_tasks = is_whole && random_between(&m->random, 0, 1) == 0;
    if (group != 2) { /* that with the window */
        draw_lists(m, &view, is_whole ? 100 : random_between(&m->random, 0, 60), &io);
    }
    attend(c, steps[0], layer, in_tasks, &io);
    int other = 1;
    if (group != 2 && !is_whole) {
        run_masked(m, &view, layer, &io);
        other = 2;
    }
    m->num_masked += other == 2;
    m->num_whole += other == 1;
    CU_ASSERT_EQUAL(memcmp(out[0], out[other], tokens * HEADS * WIDTH * sizeof(float)), 0);
    CU_ASSERT_EQUAL(memcmp(lse[0], lse[other], tokens * HEADS * sizeof(float)), 0);
}

static void destroy(struct model *m, struct live *live)
{
    for (int i = 0; i < 2 && live->is_on; i++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(m->cases[i].cache, live->seqs[i]));
    }
    live->is_on = false;
}

/* A text's first tokens, so that later requests hit what earlier ones left. */
static void begin_request(struct model *m, struct live *live)
{
    const int32_t text = random_between(&m->random, 0, 2);
    const int32_t length = random_between(&m->random, 2, TEXT);
    int32_t cached[2] = {0};
    for (int32_t i = 0; i < MAX_LENGTH; i++) {
        live->ids[i] = i < length ? text * 1000 + i : random_between(&m->random, 5000, 9000);
    }
    enum pkv_status status = PKV_OK;
    for (int i = 0; i < 2; i++) {
        struct pkv_admission admission = {.size = sizeof admission};
        pkv_cache *cache = m->cases[i].cache;
        ASSERT_STATUS(PKV_OK, pkv_seq_create(cache, NULL, &live->seqs[i]));
        status = pkv_seq_admit(cache, live->seqs[i], PROMPT(live->ids, length), MAX_LENGTH - length,
                               length, &admission, NULL);
        cached[i] = admission.num_cached;
    }
    CU_ASSERT_EQUAL(cached[0], cached[1]);
    live->is_on = true;
    live->length = cached[0];
    m->num_hits += cached[0] > 0;
    if (status != PKV_OK) {
        destroy(m, live);
    }
}

static void fork(struct model *m, const struct live *parent, struct live *child)
{
    *child = *parent;
    child->length = parent->length <= 9 ? random_between(&m->random, 0, parent->length)
                                        : parent->length; /* the window released what is before */
    for (int i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_fork(m->cases[i].cache, parent->seqs[i], child->length, 1,
                                           &child->seqs[i]));
    }
    for (int32_t i = child->length; i < MAX_LENGTH; i++) {
        child->ids[i] = random_between(&m->random, 5000, 9000);
    }
    m->num_forks++;
}

struct packed {
    struct live *rows[MAX_ROWS];
    pkv_seq seqs[2][MAX_ROWS];
    int32_t q_lens[MAX_ROWS], ids[MAX_TOKENS], num_rows, num_tokens;
};

static void pack(struct model *m, struct packed *to)
{
    *to = (struct packed){0};
    for (int s = 0; s < NUM_SLOTS && to->num_rows < MAX_ROWS; s++) {
        struct live *live = &m->live[s];
        if (!live->is_on || live->length > MAX_LENGTH - 16 ||
            random_between(&m->random, 0, 2) == 0) {
            continue;
        }
        const int32_t q_len =
            random_between(&m->random, 0, 3) == 0 ? random_between(&m->random, 0, 16) : 1;
        to->rows[to->num_rows] = live;
        to->seqs[0][to->num_rows] = live->seqs[0];
        to->seqs[1][to->num_rows] = live->seqs[1];
        to->q_lens[to->num_rows++] = q_len;
        memcpy(to->ids + to->num_tokens, live->ids + live->length, (size_t)q_len * sizeof *to->ids);
        to->num_tokens += q_len;
    }
}

static void run_step(struct model *m)
{
    struct packed packed;
    pkv_step steps[2];
    enum pkv_status status = PKV_OK;
    pack(m, &packed);
    for (int i = 0; i < 2; i++) {
        const struct pkv_batch batch = {.size = sizeof batch,
                                        .seqs = packed.seqs[i],
                                        .q_lens = packed.q_lens,
                                        .num_rows = packed.num_rows,
                                        .num_required_rows = packed.num_rows,
                                        .token_ids = packed.ids};
        status = pkv_step_begin(m->cases[i].cache, &batch, &steps[i], NULL);
    }
    if (status != PKV_OK) { /* a fork has no promise */
        ASSERT_STATUS(PKV_NO_BLOCKS, status);
        destroy(m, packed.rows[0]);
        return;
    }
    for (int32_t layer = 0; packed.num_tokens > 0 && layer < m->cases[0].config.num_layers;
         layer++) {
        attend_layer(m, steps, layer);
    }
    const bool is_dropped = random_between(&m->random, 0, 9) == 0 || packed.num_tokens == 0;
    for (int i = 0; i < 2; i++) {
        pkv_cache *cache = m->cases[i].cache;
        ASSERT_STATUS(PKV_OK, is_dropped ? pkv_step_abort(cache, steps[i])
                                         : pkv_step_commit(cache, steps[i], NULL));
    }
    for (int32_t b = 0; b < packed.num_rows && !is_dropped; b++) {
        packed.rows[b]->length += packed.q_lens[b];
    }
}

/* A request begins as its own or as a fork, or ends. */
static void change_requests(struct model *m, bool can_fork)
{
    const int32_t at = random_between(&m->random, 0, NUM_SLOTS - 1);
    struct live *live = &m->live[at];
    if (!live->is_on) {
        const struct live *parent = &m->live[(at + 1) % NUM_SLOTS];
        const bool forks = can_fork && parent->is_on && random_between(&m->random, 0, 1) == 0;
        if (forks) {
            fork(m, parent, live);
        } else {
            begin_request(m, live);
        }
    } else if (live->length > MAX_LENGTH - 17 || random_between(&m->random, 0, 15) == 0) {
        destroy(m, live);
    }
}

static void run_model(bool is_continuous, int num_threads)
{
    static struct model m;
    m = (struct model){.random = {.state = test_seed() + (uint64_t)num_threads}};
    open_case(&m.cases[0], is_continuous, num_threads);
    open_case(&m.cases[1], is_continuous, 1);
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), NULL, &m.workspace));
    for (int i = 0; i < 4 * NUM_REQUESTS; i++) {
        change_requests(&m, !is_continuous);
        run_step(&m);
    }
    for (int s = 0; s < NUM_SLOTS; s++) {
        destroy(&m, &m.live[s]);
    }
    CU_ASSERT(m.num_masked > NUM_REQUESTS && m.num_whole > NUM_REQUESTS);
    CU_ASSERT(is_continuous || (m.num_hits > 20 && m.num_forks > 20));
    pkv_workspace_destroy(m.workspace);
    case_close(&m.cases[0]);
    case_close(&m.cases[1]);
}

static void selected_blocks_of_a_step_have_the_bits_of_the_masked_call(void)
{
    run_model(false, 1);
    run_model(false, 3);
    run_model(true, 2);
}

/* A step of one row of 20 tokens behind 0, every field sound. */
static pkv_step open_step(struct runtime_case *c, pkv_seq *seq, const int32_t *parents)
{
    static const int32_t ids[20];
    const int32_t q_len = 20;
    pkv_step step = {0};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seq,
                                    .q_lens = &q_len,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids,
                                    .parents = parents};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, NULL, seq));
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    memset(out, 0, sizeof out);
    return step;
}

static struct pkv_layer_io sound_io(const struct runtime_case *c, int32_t layer)
{
    static const int32_t list[] = {0, 2, 4}, cu[] = {0, 3};
    struct pkv_layer_io io = io_of(c, layer, 0);
    io.selected = list;
    io.cu_selected = cu;
    io.num_selected_lists = 1;
    io.selected_newest = 4;
    return io;
}

/* Nothing is written: neither the outputs nor a key of the layer, which can still be attended. */
static void assert_refused(struct runtime_case *c, pkv_step step, int32_t layer,
                           enum pkv_status status, const char *culprit,
                           const struct pkv_layer_io *io)
{
    const float zero = 0;
    ASSERT_REFUSED(status, culprit, pkv_step_attend(c->cache, step, layer, io));
    ASSERT_REFUSED(status, culprit, pkv_step_layer_begin(c->cache, step, layer, io));
    CU_ASSERT(memcmp(out[0], &zero, sizeof zero) == 0 &&
              memcmp(out[0], (const char *)out[0] + 1, sizeof out[0] - 1) == 0);
    CU_ASSERT_FALSE(c->cache->layers[layer].is_attended);
}

static void unsound_lists_of_a_step_refuse_and_change_nothing(void)
{
    static const int32_t falling[] = {0, 2, 2}, high[] = {0, 2, 5}, negative[] = {-1, 2, 4};
    static const int32_t first[] = {1, 3}, lower[] = {0, 3, 2};
    struct runtime_case c;
    pkv_seq seq;
    open_case(&c, false, 1);
    const pkv_step step = open_step(&c, &seq, NULL);
    const struct pkv_layer_io sound = sound_io(&c, 0);
    struct pkv_layer_io ios[11];
    static const char *const culprits[] = {
        "selected[2] = 2",  "selected[2] = 5",        "selected[0] = -1",  "cu_selected[0] = 1",
        "cu_selected[2]",   "num_selected_lists = 3", "selection_size",    "selected_newest = -1",
        "selected is NULL", "cu_selected is NULL",    "num_selected_lists"};
    for (int i = 0; i < 11; i++) {
        ios[i] = sound;
    }
    ios[0].selected = falling;
    ios[1].selected = high;
    ios[2].selected = negative;
    ios[3].cu_selected = first;
    ios[4].cu_selected = lower;
    ios[4].num_selected_lists = KV_HEADS;
    ios[5].num_selected_lists = 3;
    ios[6].selection_size = -1;
    ios[7].selected_newest = -1;
    ios[8].selected = NULL;
    ios[9].cu_selected = NULL;
    ios[10].num_selected_lists = 0;
    for (int i = 0; i < 11; i++) {
        assert_refused(&c, step, 0, PKV_INVALID_ARGUMENT, culprits[i], &ios[i]);
    }
    const struct pkv_layer_io windowed = sound_io(&c, 3);
    assert_refused(&c, step, 3, PKV_INVALID_ARGUMENT, "sliding_window", &windowed);
    ASSERT_STATUS(PKV_OK, pkv_step_attend(c.cache, step, 0, &sound));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    case_close(&c);
}

/* Chains that come as parents have lists; a continuous group says how large a block is. */
static void lists_beside_trees_and_without_a_block_size_refuse(void)
{
    int32_t parents[20];
    struct runtime_case c;
    pkv_seq seq;
    for (int is_tree = 0; is_tree < 2; is_tree++) {
        open_case(&c, true, 1);
        for (int32_t i = 0; i < 20; i++) {
            parents[i] = i - 1;
        }
        parents[19] = is_tree ? 3 : 18;
        const pkv_step step = open_step(&c, &seq, parents);
        struct pkv_layer_io io = sound_io(&c, 0);
        assert_refused(&c, step, 0, PKV_INVALID_ARGUMENT, "selection_size = 0", &io);
        io.selection_size = 4;
        if (is_tree) {
            assert_refused(&c, step, 0, PKV_UNSUPPORTED, "row 0 is a tree", &io);
        } else {
            ASSERT_STATUS(PKV_OK, pkv_step_attend(c.cache, step, 0, &io));
        }
        ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
        case_close(&c);
    }
}

/* Scratch that does not grow refuses before a key is written; the same call may then succeed. */
static void a_layer_without_memory_for_its_lists_can_be_called_again(void)
{
    struct runtime_case c;
    pkv_seq seq;
    open_case(&c, false, 1);
    const pkv_step step = open_step(&c, &seq, NULL);
    const struct pkv_layer_io io = sound_io(&c, 0);
    long num_refused = 0;
    for (long left = 1; !c.cache->layers[0].is_attended && left < 20; left++) {
        c.memory.fail_at = c.memory.calls + left;
        const enum pkv_status status = pkv_step_attend(c.cache, step, 0, &io);
        num_refused += status != PKV_OK;
        ASSERT_STATUS(status == PKV_OK ? PKV_OK : PKV_NO_MEMORY, status);
    }
    c.memory.fail_at = 0;
    CU_ASSERT(num_refused > 0 && c.cache->layers[0].is_attended);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(selected_blocks_of_a_step_have_the_bits_of_the_masked_call),
    TEST(unsound_lists_of_a_step_refuse_and_change_nothing),
    TEST(lists_beside_trees_and_without_a_block_size_refuse),
    TEST(a_layer_without_memory_for_its_lists_can_be_called_again),
    TEST_END,
};
const struct test_suite suite_runtime_step_selected = {"runtime_step_selected", cases};
