/* SPDX-License-Identifier: MIT
 *
 * Trees of drafts in steps: what a commit of a path leaves is what plain steps over the path's
 * tokens leave, byte by byte, in every kind of group; and what is no path refuses. A token's key,
 * value and query follow from its id. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/runtime_case.h"

enum {
    HEADS = 2,
    WIDTH = 4,
    VECTOR = HEADS * WIDTH,
    MAX_TOKENS = 64,
    POSITIONS = 64,
    MAX_DRAFTS = 12
};

enum kind { PLAIN, MIXED, CONTINUOUS, LATENT, NUM_KINDS };

static float cosines[POSITIONS], sines[POSITIONS];
static const float k_scale = 1.0f / 64, v_scale = 1.0f / 32;

static void add_layer(struct runtime_case *c, int32_t group)
{
    struct pkv_layer_config *layer = case_add_layer(c, group);
    const struct pkv_group_config *of = &c->groups[group];
    layer->num_heads = HEADS;
    layer->constants.rope_cos = cosines;
    layer->constants.rope_sin = sines;
    layer->constants.rope_positions = POSITIONS;
    layer->constants.rope_width = 1;
    layer->constants.k_scale = of->k_dtype == PKV_INT8 ? &k_scale : NULL;
    layer->constants.k_scale_count = of->k_dtype == PKV_INT8;
    layer->constants.v_scale = of->v_dtype == PKV_E4M3 ? &v_scale : NULL;
    layer->constants.v_scale_count = of->v_dtype == PKV_E4M3;
}

/* has_prefix_cache: not beside continuous groups. */
static void open_case(struct runtime_case *c, enum kind kind, bool has_prefix_cache)
{
    case_init(c);
    for (int32_t i = 0; i < POSITIONS; i++) {
        cosines[i] = cosf((float)i);
        sines[i] = sinf((float)i);
    }
    c->groups[0].kv_heads = HEADS;
    c->groups[0].k_width = WIDTH;
    c->groups[0].num_blocks = 64;
    c->groups[0].v_in_k = kind == LATENT;
    c->groups[0].v_width = kind == LATENT ? WIDTH - 1 : WIDTH;
    c->groups[0].storage = kind == CONTINUOUS ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
    c->groups[0].num_blocks = kind == CONTINUOUS ? 0 : 64;
    c->groups[0].block_size = kind == CONTINUOUS ? 0 : 4;
    if (kind == MIXED || kind == CONTINUOUS) {
        struct pkv_group_config *window = case_add_group(c);
        *window = (struct pkv_group_config){.kv_heads = HEADS,
                                            .k_width = WIDTH,
                                            .v_width = WIDTH,
                                            .block_size = 4,
                                            .num_blocks = 64,
                                            .sliding_window = 5,
                                            .kept_prefix = 2,
                                            .k_dtype = PKV_BF16,
                                            .v_dtype = PKV_F16};
        struct pkv_group_config *codes = case_add_group(c);
        *codes = *window;
        codes->sliding_window = codes->kept_prefix = 0;
        codes->k_dtype = PKV_INT8;
        codes->v_dtype = PKV_E4M3;
    }
    c->config.num_layers = 0;
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        add_layer(c, g);
        add_layer(c, g);
    }
    if (kind != CONTINUOUS) { /* the last layer reads the pages of the one before it */
        c->layers[c->config.num_layers - 1].shares_kv = true;
        c->layers[c->config.num_layers - 1].kv_layer = c->config.num_layers - 2;
    }
    c->config.prefix_cache = has_prefix_cache;
    case_open(c);
}

/* A row: `count` tokens of a sequence; parents NULL: a chain. */
struct row {
    pkv_seq seq;
    int32_t count;
    const int32_t *ids;
    const int32_t *parents;
};

struct packed {
    pkv_seq seqs[4];
    int32_t q_lens[4], ids[MAX_TOKENS], parents[MAX_TOKENS];
    int32_t num_tokens;
    struct pkv_batch batch;
};

static void pack(struct packed *to, const struct row *rows, int32_t num_rows)
{
    memset(to, 0, sizeof *to);
    bool has_parents = false;
    for (int32_t b = 0; b < num_rows; b++) {
        to->seqs[b] = rows[b].seq;
        to->q_lens[b] = rows[b].count;
        has_parents = has_parents || rows[b].parents != NULL;
        for (int32_t i = 0; i < rows[b].count; i++, to->num_tokens++) {
            to->ids[to->num_tokens] = rows[b].ids[i];
            to->parents[to->num_tokens] = rows[b].parents != NULL ? rows[b].parents[i] : i - 1;
        }
    }
    to->batch = (struct pkv_batch){.size = sizeof to->batch,
                                   .seqs = to->seqs,
                                   .q_lens = to->q_lens,
                                   .num_rows = num_rows,
                                   .num_required_rows = num_rows,
                                   .token_ids = to->ids,
                                   .parents = has_parents ? to->parents : NULL};
}

static enum pkv_status begin(struct runtime_case *c, const struct row *rows, int32_t num_rows,
                             pkv_step *step)
{
    static struct packed packed;
    pack(&packed, rows, num_rows);
    const enum pkv_status foreseen = pkv_step_fits(c->cache, &packed.batch, NULL);
    const enum pkv_status status = pkv_step_begin(c->cache, &packed.batch, step, NULL);
    CU_ASSERT_EQUAL(status, foreseen);
    return status;
}

/* Outputs of the step attended last. */
static float outputs[CASE_MAX_LAYERS][MAX_TOKENS][VECTOR];

/* What all tokens of a step have of one kind (case_value), head by head, `width` channels each. */
static void fill(const struct row *rows, int32_t num_rows, int32_t layer, int what, int32_t width,
                 float *to)
{
    for (int32_t b = 0; b < num_rows; b++) {
        for (int32_t i = 0; i < rows[b].count * VECTOR; i++) {
            const int32_t channel = i % WIDTH, head = i / WIDTH % HEADS;
            const uint32_t id = (uint32_t)rows[b].ids[i / VECTOR];
            if (channel < width) {
                *to++ = (float)case_value(id, layer, what, head, channel);
            }
        }
    }
}

static void attend(struct runtime_case *c, pkv_step step, const struct row *rows, int32_t num_rows)
{
    static float q[MAX_TOKENS * VECTOR], k[MAX_TOKENS * VECTOR], v[MAX_TOKENS * VECTOR];
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        const struct pkv_group_config *group = &c->groups[c->layers[layer].group];
        const bool shares = c->layers[layer].shares_kv;
        fill(rows, num_rows, layer, 2, WIDTH, q);
        fill(rows, num_rows, layer, 0, WIDTH, k);
        fill(rows, num_rows, layer, 1, group->v_width, v);
        const struct pkv_layer_io io = {.size = sizeof io,
                                        .q = q,
                                        .k = shares ? NULL : k,
                                        .v = shares || group->v_in_k ? NULL : v,
                                        .out = outputs[layer],
                                        .out_stride = VECTOR};
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, &io));
    }
}

static void append(struct runtime_case *c, pkv_seq seq, const int32_t *ids, int32_t count)
{
    const struct row row = {seq, count, ids, NULL};
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(c, &row, 1, &step));
    attend(c, step, &row, 1);
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
}

/* One row whose path is kept. */
static void append_path(struct runtime_case *c, const struct row *row, const int32_t *path,
                        int32_t num_keep)
{
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(c, row, 1, &step));
    attend(c, step, row, 1);
    ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c->cache, step, &num_keep, path));
}

static pkv_seq new_seq(struct runtime_case *c)
{
    pkv_seq seq = {0};
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 2};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, &options, &seq));
    return seq;
}

/* The cells of position j in the open step's row b, of one layer of a group; NULL: not mapped. */
static const void *cell_at(const struct pkv_step_view *view, int32_t layer, bool is_value,
                           int32_t b, int32_t head, int32_t j)
{
    struct pkv_kv_view of = view->first_layer;
    int32_t block = view->slot_ids != NULL ? view->slot_ids[b] : -1;
    int32_t cell = j;
    if (view->slot_ids == NULL) {
        block = view->block_tables[(size_t)view->table_rows[b] * view->table_stride +
                                   (size_t)(j / of.block_size)];
        cell = j % of.block_size;
    }
    of.k = (char *)of.k + (size_t)layer * view->layer_stride_bytes;
    of.v = of.v != NULL ? (char *)of.v + (size_t)layer * view->layer_stride_bytes : NULL;
    return block < 0 ? NULL : case_cell(&of, is_value, block, head, cell);
}

static bool same_cell(const struct pkv_step_view *view, int32_t layer, int32_t head, int32_t j,
                      bool is_value)
{
    const struct pkv_kv_view *of = &view->first_layer;
    const size_t bytes = is_value ? (size_t)of->v_width * pkv_dtype_bytes(of->v_dtype)
                                  : (size_t)of->k_width * pkv_dtype_bytes(of->k_dtype);
    const void *a = cell_at(view, layer, is_value, 0, head, j);
    const void *b = cell_at(view, layer, is_value, 1, head, j);
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, bytes) == 0);
}

/* Both sequences hold the same bytes at all positions, where they are resident. */
static bool same_bytes(struct runtime_case *c, pkv_seq a, pkv_seq b)
{
    const struct row rows[] = {{a, 0, NULL, NULL}, {b, 0, NULL, NULL}};
    const int32_t length = case_length(c, a);
    bool is_same = length == case_length(c, b);
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(c, rows, 2, &step));
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        struct pkv_step_view view = {.size = sizeof view};
        const int32_t layers =
            g == c->config.num_groups - 1 && c->layers[c->config.num_layers - 1].shares_kv ? 1 : 2;
        ASSERT_STATUS(PKV_OK, pkv_step_describe(c->cache, step, g, &view));
        for (int32_t at = 0; is_same && at < layers * HEADS * length; at++) {
            const int32_t layer = at % layers, head = at / layers % HEADS, j = at / layers / HEADS;
            is_same = same_cell(&view, layer, head, j, false) &&
                      (c->groups[g].v_in_k || same_cell(&view, layer, head, j, true));
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c->cache, step));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return is_same;
}

/* ---- what commit leaves --------------------------------------------------------------------- */

struct draw {
    int32_t ids[MAX_DRAFTS], parents[MAX_DRAFTS], count;
    int32_t path[MAX_DRAFTS], num_keep;
};

/* A random tree of fresh ids, and a path from one of its roots. */
static void draw_tree(struct test_random *random, int32_t room, struct draw *to)
{
    to->count = random_between(random, 1, room < MAX_DRAFTS ? room : MAX_DRAFTS);
    for (int32_t i = 0; i < to->count; i++) {
        to->ids[i] = random_between(random, 1, 1 << 30);
        to->parents[i] = random_between(random, i > 3 ? i - 4 : -1, i - 1);
    }
    int32_t reversed[MAX_DRAFTS], depth = 0;
    for (int32_t a = random_between(random, 0, to->count - 1); a >= 0; a = to->parents[a]) {
        reversed[depth++] = a;
    }
    to->num_keep = random_between(random, 0, depth);
    for (int32_t k = 0; k < to->num_keep; k++) {
        to->path[k] = reversed[depth - 1 - k];
    }
}

static void assert_close(const float *got, const float *want, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (fabsf(got[i] - want[i]) > 1e-5f + 1e-5f * fabsf(want[i])) {
            printf("\n    got %.9g, expected %.9g\n", (double)got[i], (double)want[i]);
            CU_FAIL("an output of a tree is not that of its path");
            return;
        }
    }
}

/* One step of a tree beside a chain; the path's tokens again, in a plain step of another sequence;
 * outputs, bytes and lengths are the same. */
static void one_round(struct runtime_case *c, struct test_random *random, pkv_seq tree,
                      pkv_seq plain, pkv_seq beside)
{
    static float of_tree[CASE_MAX_LAYERS][MAX_TOKENS][VECTOR];
    struct draw draw;
    draw_tree(random, MAX_TOKENS - case_length(c, tree), &draw);
    const bool has_beside = case_length(c, beside) < MAX_TOKENS - 3;
    const struct row rows[] = {{beside, has_beside ? 2 : 0, (const int32_t[]){5, 6}, NULL},
                               {tree, draw.count, draw.ids, draw.parents}};
    const int32_t keep[] = {rows[0].count, draw.num_keep};
    int32_t path[MAX_DRAFTS + 2] = {0, 1};
    memcpy(path + keep[0], draw.path, sizeof draw.path);
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(c, rows, 2, &step));
    attend(c, step, rows, 2);
    memcpy(of_tree, outputs, sizeof outputs);
    ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c->cache, step, keep, path));
    int32_t kept_ids[MAX_DRAFTS];
    for (int32_t k = 0; k < draw.num_keep; k++) {
        kept_ids[k] = draw.ids[draw.path[k]];
    }
    append(c, plain, kept_ids, draw.num_keep);
    for (int32_t k = 0; k < draw.num_keep; k++) {
        for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
            const int32_t count = HEADS * c->groups[c->layers[layer].group].v_width;
            assert_close(of_tree[layer][keep[0] + draw.path[k]], outputs[layer][k], count);
        }
    }
    CU_ASSERT(same_bytes(c, tree, plain));
}

/* Windows, kept prefixes, rope by depth, quantised and latent groups, slots, layers that share. */
static void a_path_leaves_the_bytes_of_plain_steps(void)
{
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            static struct runtime_case c;
            struct test_random random = {test_seed() + seed};
            int32_t ids[40];
            open_case(&c, (enum kind)kind, kind != CONTINUOUS && seed % 2 != 0);
            const pkv_seq tree = new_seq(&c), plain = new_seq(&c), beside = new_seq(&c);
            const int32_t past = random_between(&random, 0, 30);
            for (int32_t i = 0; i < past; i++) {
                ids[i] = random_between(&random, 1, 1 << 30);
            }
            append(&c, tree, ids, past);
            append(&c, plain, ids, past);
            while (case_length(&c, tree) < MAX_TOKENS - 4) {
                one_round(&c, &random, tree, plain, beside);
            }
            case_close(&c);
        }
    }
}

/* A tree of five: 0 - 1 - 2, and 0 - 3 - 4; the second path is kept. */
static const int32_t ids_of_five[] = {11, 12, 13, 14, 15};
static const int32_t parents_of_five[] = {-1, 0, 1, 0, 3};
static const int32_t second_path[] = {0, 3, 4};
static const int32_t prefix_ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static struct row five(pkv_seq seq)
{
    return (struct row){seq, 5, ids_of_five, parents_of_five};
}

/* The recorded tokens are those of the path, so a later prompt finds its blocks, and no other. */
static void the_prefix_cache_finds_a_kept_path(void)
{
    static struct runtime_case c;
    static const int32_t found[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 15, 77};
    static const int32_t dropped[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 77};
    struct pkv_admission admission = {.size = sizeof admission};
    open_case(&c, MIXED, true);
    pkv_seq seq = {0}, next = {0};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    append(&c, seq, prefix_ids, 9);
    const struct row row = five(seq);
    append_path(&c, &row, second_path, 3);
    for (int i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &next));
        ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, next, PROMPT(i == 0 ? found : dropped, 13), 20,
                                            20, &admission, NULL));
        CU_ASSERT_EQUAL(admission.num_cached, i == 0 ? 12 : 10); /* a hit may end inside a block */
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, next));
    }
    case_close(&c);
}

/* The root is the prompt's last token, as a server's is; the drafts leave the prompt behind. */
static void a_tree_may_begin_inside_a_prompt(void)
{
    static struct runtime_case c;
    static const int32_t prompt[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,
                                     12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
    static const int32_t kept[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,
                                   14, 15, 14, 15, 16, 17, 18, 19, 20, 21};
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_probe probe = {.size = sizeof probe};
    open_case(&c, PLAIN, true);
    pkv_seq seq = {0};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, seq, PROMPT(prompt, 20), 30, 30, &admission, NULL));
    append(&c, seq, prompt, 9);
    const struct row row = five(seq); /* in packed order they are the prompt's next tokens */
    append_path(&c, &row, second_path, 3);
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, PROMPT(kept, 20), 30, 30, &probe, NULL));
    CU_ASSERT_EQUAL(probe.num_cached, 12);
    CU_ASSERT_EQUAL(probe.num_pending, 0); /* what is left of the prompt will not come */
    case_close(&c);
}

/* Forks share the block that the tree begins in: it is copied, and the other one stays. */
static void forks_rewinds_and_later_steps_follow_the_path(void)
{
    static const int32_t path_ids[] = {11, 14, 15};
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        static struct runtime_case c;
        if (kind == CONTINUOUS) {
            continue; /* its sequences do not fork */
        }
        open_case(&c, (enum kind)kind, true);
        const pkv_seq parent = new_seq(&c), plain = new_seq(&c), as_it_was = new_seq(&c);
        pkv_seq child = {0}, grandchild = {0};
        append(&c, parent, prefix_ids, 9);
        append(&c, plain, prefix_ids, 9);
        append(&c, as_it_was, prefix_ids, 9);
        ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, parent, 9, 1, &child));
        const struct row row = five(child);
        append_path(&c, &row, second_path, 3);
        append(&c, plain, path_ids, 3);
        CU_ASSERT(same_bytes(&c, child, plain));
        CU_ASSERT(same_bytes(&c, parent, as_it_was));
        ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, child, 12, 1, &grandchild));
        ASSERT_STATUS(PKV_OK, pkv_seq_truncate(c.cache, child, 11));
        ASSERT_STATUS(PKV_OK, pkv_seq_truncate(c.cache, plain, 11));
        append(&c, child, ids_of_five, 4);
        append(&c, plain, ids_of_five, 4);
        CU_ASSERT(same_bytes(&c, child, plain));
        case_close(&c);
    }
}

static void an_empty_path_leaves_the_sequence_as_it_was(void)
{
    static struct runtime_case c;
    open_case(&c, MIXED, true);
    const pkv_seq seq = new_seq(&c), plain = new_seq(&c);
    append(&c, seq, prefix_ids, 9);
    append(&c, plain, prefix_ids, 9);
    const int32_t held = case_held(&c, 0);
    const struct row row = five(seq);
    append_path(&c, &row, NULL, 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), held);
    CU_ASSERT(same_bytes(&c, seq, plain));
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(&c, &row, 1, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    CU_ASSERT(same_bytes(&c, seq, plain));
    case_close(&c);
}

static void a_sequence_destroyed_meanwhile_keeps_nothing(void)
{
    static struct runtime_case c;
    open_case(&c, MIXED, true);
    const pkv_seq seq = new_seq(&c);
    append(&c, seq, prefix_ids, 9);
    const struct row row = five(seq);
    const int32_t num_keep = 3;
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(&c, &row, 1, &step));
    attend(&c, step, &row, 1);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c.cache, step, &num_keep, second_path));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

/* A view shows the parents to other kernels. */
static void a_view_has_the_parents_of_the_batch(void)
{
    static struct runtime_case c;
    struct pkv_step_view view = {.size = sizeof view};
    open_case(&c, PLAIN, false);
    const pkv_seq seq = new_seq(&c);
    const struct row row = five(seq), chain = {seq, 5, ids_of_five, NULL};
    for (int is_chain = 0; is_chain < 2; is_chain++) {
        pkv_step step = {0};
        ASSERT_STATUS(PKV_OK, begin(&c, is_chain ? &chain : &row, 1, &step));
        ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step, 0, &view));
        CU_ASSERT_EQUAL(view.parents == NULL, is_chain);
        CU_ASSERT(is_chain || memcmp(view.parents, parents_of_five, sizeof parents_of_five) == 0);
        ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    }
    case_close(&c);
}

/* ---- refusals ------------------------------------------------------------------------------ */

/* The step stays open with every cell as it was, and can be committed then. */
static void what_is_no_path_refuses_and_moves_nothing(void)
{
    static const struct {
        int32_t num_keep, path[6];
        const char *culprit;
    } faults[] = {
        {3, {0, 3, 5}, "path[2] = 5, outside [0, 5) of row 0"},
        {3, {0, -1, 4}, "path[1] = -1, outside"},
        {2, {0, 4}, "path[1] = 4: the parent of that token of row 0 is 3, not 0"},
        {2, {1, 2}, "path[0] = 1: the parent of that token of row 0 is 0, not -1"},
        {3, {0, 3, 3}, "path[2] = 3"},
        {3, {0, 1, 3}, "path[2] = 3: the parent of that token of row 0 is 0, not 1"},
        {6, {0, 1, 2, 3, 4, 5}, "num_keep[0] = 6, outside [0, 5]"},
        {-1, {0}, "num_keep[0] = -1"},
    };
    static struct runtime_case c;
    open_case(&c, MIXED, true);
    const pkv_seq seq = new_seq(&c), plain = new_seq(&c);
    append(&c, seq, prefix_ids, 9);
    append(&c, plain, prefix_ids, 9);
    const struct row row = five(seq);
    const int32_t three = 3, two = 2;
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(&c, &row, 1, &step));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "layer 0 was not attended",
                   pkv_step_commit_path(c.cache, step, &three, second_path));
    attend(&c, step, &row, 1);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        ASSERT_CASE_REFUSED(
            faults[i].culprit, PKV_INVALID_ARGUMENT, faults[i].culprit,
            pkv_step_commit_path(c.cache, step, &faults[i].num_keep, faults[i].path));
    }
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "path is NULL, but num_keep[0] = 3",
                   pkv_step_commit_path(c.cache, step, &three, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_keep is NULL",
                   pkv_step_commit_path(c.cache, step, NULL, second_path));
    ASSERT_REFUSED(PKV_STALE_HANDLE, "is not open",
                   pkv_step_commit_path(c.cache, (pkv_step){0}, &three, second_path));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache is NULL",
                   pkv_step_commit_path(NULL, step, &three, second_path));
    ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c.cache, step, &two, (const int32_t[]){0, 1}));
    append(&c, plain, ids_of_five, 2);
    CU_ASSERT(same_bytes(&c, seq, plain));
    case_close(&c);
}

/* Tokens that are kept by their number must be a chain. */
static void a_plain_commit_of_a_tree_keeps_chains_alone(void)
{
    static struct runtime_case c;
    open_case(&c, MIXED, false);
    const pkv_seq seq = new_seq(&c), plain = new_seq(&c);
    append(&c, seq, prefix_ids, 9);
    append(&c, plain, prefix_ids, 9);
    const struct row row = five(seq);
    const int32_t three = 3, four = 4;
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, begin(&c, &row, 1, &step));
    attend(&c, step, &row, 1);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "the parent of token 3 is 0",
                   pkv_step_commit(c.cache, step, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 0 keeps 4 tokens, but the parent of token 3 is 0",
                   pkv_step_commit(c.cache, step, &four));
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c.cache, step, &three));
    append(&c, plain, ids_of_five, 3);
    CU_ASSERT(same_bytes(&c, seq, plain));
    case_close(&c);
}

static void batches_whose_parents_are_no_tree_refuse(void)
{
    static struct runtime_case c;
    open_case(&c, PLAIN, false);
    const pkv_seq seq = new_seq(&c), other = new_seq(&c);
    pkv_step step = {0};
    for (int32_t bad = -2; bad < 9; bad++) {
        const int32_t parents[] = {-1, 0, bad, 0, 3};
        const struct row rows[] = {{other, 2, ids_of_five, NULL}, {seq, 5, ids_of_five, parents}};
        if (bad >= -1 && bad < 2) {
            continue;
        }
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 1: parents[4] =", begin(&c, rows, 2, &step));
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    }
    /* Positions follow the depth: 4 of 64 are left, for a tree of depth 3 and 6 tokens. */
    int32_t ids[60];
    for (int32_t i = 0; i < 60; i++) {
        ids[i] = i + 1;
    }
    append(&c, seq, ids, 58);
    static const int32_t parents[] = {-1, 0, 0, 1, 1, 2};
    const struct row fits = {seq, 6, ids, parents};
    ASSERT_STATUS(PKV_OK, begin(&c, &fits, 1, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    const struct row passes = {seq, 7, ids, (const int32_t[]){-1, 0, 0, 1, 1, 2, 2}};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "pass max_seq_len", begin(&c, &passes, 1, &step));
    case_close(&c);
}

/* A bound for trees, none for chains; images are no drafts. */
static void trees_that_are_too_large_or_hold_images_refuse(void)
{
    enum { MANY = PKV_MAX_TREE_TOKENS + 1 };
    static struct runtime_case c;
    static int32_t ids[MANY], parents[MANY];
    static const struct pkv_token_range image = {1, 3};
    const int32_t num_tokens[] = {MANY}, cu_ranges[] = {0, 1}, five_tokens[] = {5};
    case_init(&c);
    c.groups[0].num_blocks = MANY;
    c.config.max_seq_len = c.config.max_step_tokens = MANY;
    case_open(&c);
    const pkv_seq seq = new_seq(&c);
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = &seq,
                              .q_lens = num_tokens,
                              .num_rows = 1,
                              .num_required_rows = 1,
                              .token_ids = ids,
                              .parents = parents};
    for (int32_t i = 0; i < MANY; i++) {
        parents[i] = i - 1;
    }
    ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, NULL));
    parents[MANY - 1] = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 0: a tree of 1025 tokens, above 1024",
                   pkv_step_fits(c.cache, &batch, NULL));
    batch.q_lens = five_tokens;
    batch.bidirectional = &image;
    batch.cu_bidirectional = cu_ranges;
    ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, NULL)); /* a chain so far */
    parents[4] = 0;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 0: a tree of drafts with a bidirectional range",
                   pkv_step_fits(c.cache, &batch, NULL));
    case_close(&c);
}

/* With check_tokens, a token of a tree is compared with the prompt's at its depth. */
static void tokens_of_a_tree_are_checked_at_their_depth(void)
{
    static struct runtime_case c;
    static const int32_t prompt[] = {11, 12, 13}, right[] = {11, 12, 12, 13, 99};
    static const int32_t wrong[] = {11, 12, 13, 13, 99}, parents[] = {-1, 0, 0, 2, 3};
    struct pkv_admission admission = {.size = sizeof admission};
    case_init(&c);
    c.config.prefix_cache = c.config.check_tokens = true;
    case_open(&c);
    const pkv_seq seq = new_seq(&c);
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, seq, PROMPT(prompt, 3), 9, 9, &admission, NULL));
    const struct row good = {seq, 5, right, parents}, bad = {seq, 5, wrong, parents};
    pkv_step step = {0};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 0, position 1: token 13", begin(&c, &bad, 1, &step));
    ASSERT_STATUS(PKV_OK, begin(&c, &good, 1, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    case_close(&c);
}

/* Images in a path, as drafts after them have: extras move with their tokens. */
static void extras_move_with_their_tokens(void)
{
    static struct runtime_case c;
    static const uint64_t extra[] = {0, 21, 22, 33, 34};
    static const uint64_t kept_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 33, 34, 0};
    static const int32_t kept[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 15, 77};
    struct pkv_admission admission = {.size = sizeof admission};
    static struct packed packed;
    open_case(&c, PLAIN, true);
    pkv_seq seq = {0}, next = {0};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    append(&c, seq, prefix_ids, 9);
    const struct row row = five(seq);
    const int32_t num_keep = 3;
    pack(&packed, &row, 1);
    packed.batch.token_extra = extra;
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &packed.batch, &step, NULL));
    attend(&c, step, &row, 1);
    ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c.cache, step, &num_keep, second_path));
    for (int has_extra = 0; has_extra < 2; has_extra++) {
        const struct pkv_prompt prompt = {.size = sizeof prompt,
                                          .token_ids = kept,
                                          .token_extra = has_extra ? kept_extra : NULL,
                                          .num_tokens = 13};
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &next));
        ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, next, &prompt, 20, 20, &admission, NULL));
        CU_ASSERT_EQUAL(admission.num_cached, has_extra ? 12 : 10);
    }
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_path_leaves_the_bytes_of_plain_steps),
    TEST(the_prefix_cache_finds_a_kept_path),
    TEST(a_tree_may_begin_inside_a_prompt),
    TEST(forks_rewinds_and_later_steps_follow_the_path),
    TEST(an_empty_path_leaves_the_sequence_as_it_was),
    TEST(a_sequence_destroyed_meanwhile_keeps_nothing),
    TEST(a_view_has_the_parents_of_the_batch),
    TEST(what_is_no_path_refuses_and_moves_nothing),
    TEST(a_plain_commit_of_a_tree_keeps_chains_alone),
    TEST(batches_whose_parents_are_no_tree_refuse),
    TEST(trees_that_are_too_large_or_hold_images_refuse),
    TEST(tokens_of_a_tree_are_checked_at_their_depth),
    TEST(extras_move_with_their_tokens),
    TEST_END,
};
const struct test_suite suite_runtime_step_tree = {"runtime_step_tree", cases};
