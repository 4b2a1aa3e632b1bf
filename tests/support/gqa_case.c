/* SPDX-License-Identifier: MIT
 *
 * gqa_case.c: building and calling, see gqa_case.h; gqa_case_check.c judges. Arrays are filled in
 * the order lengths, options, cache, activations, because each reads those before it. */
#include "support/gqa_case.h"
#include "support/selection_case.h"
#include "support/tree_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum number_kind { OF_Q = 1, OF_K, OF_V, OF_ROPE, OF_NORM, OF_SINK, OF_MASK, OF_SCALE, OF_DETAIL };

static uint64_t mix(uint64_t state, int64_t x)
{
    struct test_random random = {state + (uint64_t)x * 0xd1342543de82ef95u};
    return random_u64(&random);
}

/* [-1, 1), a function of what it stands for. */
static double number_at(const struct case_spec *spec, enum number_kind kind, int64_t row,
                        int64_t head, int64_t position, int64_t channel)
{
    uint64_t state = mix(mix(mix(spec->seed, kind), row), head);
    state = mix(mix(state, position), channel);
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

/* [0, count), a detail of the options. */
static int32_t detail(const struct case_spec *spec, int which, int32_t count)
{
    return (int32_t)(mix(mix(spec->seed, OF_DETAIL), which) % (uint64_t)count);
}

static bool is_code(enum pkv_dtype dtype)
{
    return dtype == PKV_INT8 || dtype == PKV_E4M3;
}

struct case_spec case_plain(uint64_t seed)
{
    const struct case_spec spec = {.seed = seed,
                                   .layout = seed,
                                   .form = PKV_CACHE_PAGED,
                                   .kv_heads = 1,
                                   .group = 1,
                                   .k_width = 8,
                                   .v_width = 8,
                                   .block_size = 4};
    return spec;
}

void case_add_row(struct case_spec *spec, int32_t row_id, int32_t q_len, int32_t kv_len)
{
    spec->row_ids[spec->batch] = row_id;
    spec->q_lens[spec->batch] = q_len;
    spec->kv_lens[spec->batch] = kv_len;
    spec->batch++;
}

void case_add_range(struct case_spec *spec, int32_t row, int32_t begin, int32_t end)
{
    const struct pkv_token_range range = {begin, end};
    spec->ranges[row][spec->num_ranges[row]++] = range;
}

/* Regions */

static void *region_add(struct gqa_case *c, enum region_kind kind, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inside = (bytes + page - 1) / page * page + (bytes == 0 ? page : 0);
    char *map =
        mmap(NULL, inside + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || c->num_regions == CASE_MAX_REGIONS ||
        mprotect(map, page, PROT_NONE) != 0 ||
        mprotect(map + page + inside, page, PROT_NONE) != 0) {
        fprintf(stderr, "the tests cannot map guarded pages\n");
        abort();
    }
    memset(map + page, 0xa5, inside);
    const bool at_end = mix(c->spec.layout, (int64_t)c->num_regions) % 4 != 0;
    const struct case_region region = {kind,   map + page,
                                       inside, map + page + (at_end ? inside - bytes : 0),
                                       bytes,  reference_alloc(inside, 1)};
    c->regions[c->num_regions++] = region;
    return region.start;
}

void *gqa_case_input(struct gqa_case *c, size_t count, size_t bytes)
{
    void *memory = region_add(c, REGION_INPUT, count * bytes);
    memset(memory, 0, count * bytes);
    return memory;
}

void gqa_case_free(struct gqa_case *c)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < c->num_regions; i++) {
        munmap(c->regions[i].map - page, c->regions[i].map_bytes + 2 * page);
        free(c->regions[i].before);
    }
    free(c);
}

void gqa_case_snapshot(struct gqa_case *c)
{
    for (size_t i = 0; i < c->num_regions; i++) {
        memcpy(c->regions[i].before, c->regions[i].map, c->regions[i].map_bytes);
    }
}

int gqa_case_changed(const struct gqa_case *c, int kinds)
{
    for (size_t i = 0; i < c->num_regions; i++) {
        const struct case_region *region = &c->regions[i];
        if (((int)region->kind & kinds) != 0 &&
            memcmp(region->before, region->map, region->map_bytes) != 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Numbers into arrays */

static void poison(enum pkv_dtype dtype, void *array, size_t count, int how)
{
    static const int codes[] = {127, 100, -90};
    for (size_t i = 0; i < count; i++) {
        if (dtype == PKV_INT8) {
            ((int8_t *)array)[i] = (int8_t)codes[how];
        } else if (dtype == PKV_E4M3) {
            ((uint8_t *)array)[i] = how == 0 ? 0x7f : how == 1 ? 0x7e : 0xf8;
        } else {
            const double large = dtype == PKV_F16 ? 60000 : 1e30;
            ref_store(dtype, array, i, how == 0 ? NAN : how == 1 ? (double)INFINITY : large);
        }
    }
}

/* x as a tensor of the activation dtype holds it. */
static double as_activation(const struct case_spec *spec, double x)
{
    unsigned char store[sizeof(float)];
    ref_store(spec->dtype, store, 0, x);
    return ref_load(spec->dtype, store, 0);
}

static double scale_at(const float *scale, int32_t count, size_t at)
{
    return scale == NULL ? 1 : (double)scale[count == 1 ? 0 : at];
}

/* Packed rows of q, k or v: [tokens][heads][width], its stride and the token's position. */
struct packed {
    enum number_kind kind;
    int32_t heads, width;
    size_t stride;
    double factor;
};

static void fill_token(const struct case_spec *spec, const struct packed *packed, void *array,
                       int32_t token, int32_t row_id, int64_t position)
{
    for (int32_t at = 0; at < packed->heads * packed->width; at++) {
        const double x =
            number_at(spec, packed->kind, row_id, at / packed->width, position, at % packed->width);
        ref_store(spec->dtype, array, (size_t)token * packed->stride + (size_t)at,
                  packed->factor * x);
    }
}

/* cu delimits the rows; the last token of row b stands at position kv_lens[b] - 1. */
static void *packed_input(struct gqa_case *c, struct packed *packed, const int32_t *cu,
                          size_t *stride)
{
    const struct case_spec *spec = &c->spec;
    const int32_t tokens = cu[spec->batch];
    const size_t row = (size_t)packed->heads * (size_t)packed->width;
    packed->stride = row + (spec->padded ? 1 + (size_t)packed->kind : 0);
    *stride = spec->padded || detail(spec, 40 + (int)packed->kind, 2) ? packed->stride : 0;
    const size_t count = tokens > 0 ? ((size_t)tokens - 1) * packed->stride + row : 0;
    void *array = gqa_case_input(c, count, pkv_dtype_bytes(spec->dtype));
    poison(spec->dtype, array, count, spec->poison);
    for (int32_t b = 0; b < spec->batch; b++) {
        for (int32_t t = cu[b]; t < cu[b + 1]; t++) {
            fill_token(spec, packed, array, t, spec->row_ids[b],
                       (int64_t)spec->kv_lens[b] - cu[b + 1] + t);
        }
    }
    return array;
}

/* The options */

static void add_rope(struct gqa_case *c)
{
    struct pkv_attn_constants *constants = &c->args.constants;
    const struct case_spec *spec = &c->spec;
    int32_t positions = 1;
    for (int32_t b = 0; b < spec->batch; b++) {
        positions = spec->kv_lens[b] > positions ? spec->kv_lens[b] : positions;
    }
    const int32_t half = 1 + detail(spec, 1, spec->k_width / 2);
    const size_t count = (size_t)positions * (size_t)half;
    const enum pkv_dtype dtype = (enum pkv_dtype)detail(spec, 2, 3);
    void *rope_cos = gqa_case_input(c, count, pkv_dtype_bytes(dtype));
    void *rope_sin = gqa_case_input(c, count, pkv_dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++) {
        const double angle = 4 * number_at(spec, OF_ROPE, 0, 0, (int64_t)i, 0);
        ref_store(dtype, rope_cos, i, 1.1 * cos(angle));
        ref_store(dtype, rope_sin, i, 1.1 * sin(angle));
    }
    constants->rope_cos = rope_cos;
    constants->rope_sin = rope_sin;
    constants->rope_dtype = dtype;
    constants->rope_positions = positions;
    constants->rope_width = half;
    constants->rotary_mode = detail(spec, 3, 2) ? PKV_ROTARY_INTERLEAVED : PKV_ROTARY_HALF_SPLIT;
    constants->rotary_offset = detail(spec, 4, spec->k_width - 2 * half + 1);
    if ((spec->options & CASE_POSITION_IDS) != 0) {
        const size_t tokens = (size_t)c->args.num_tokens;
        c->position_ids = gqa_case_input(c, tokens, sizeof *c->position_ids);
        for (size_t i = 0; i < tokens; i++) {
            c->position_ids[i] = (int64_t)(mix(spec->seed, (int64_t)i) % (uint64_t)positions);
        }
        c->args.position_ids = c->position_ids;
    }
}

static void *norm_weight_of(struct gqa_case *c, int which, enum pkv_dtype *dtype)
{
    const struct case_spec *spec = &c->spec;
    *dtype = (enum pkv_dtype)detail(spec, 10 + which, 3);
    void *weight = gqa_case_input(c, (size_t)spec->k_width, pkv_dtype_bytes(*dtype));
    for (int32_t i = 0; i < spec->k_width; i++) {
        ref_store(*dtype, weight, (size_t)i, 1 + 0.5 * number_at(spec, OF_NORM, which, 0, 0, i));
    }
    return weight;
}

static void add_norm(struct gqa_case *c)
{
    struct pkv_attn_constants *constants = &c->args.constants;
    const struct case_spec *spec = &c->spec;
    const int32_t which = detail(spec, 12, 4); /* q alone, k alone, both, both */
    if (which != 1) {
        constants->q_norm_gain = norm_weight_of(c, 0, &constants->q_norm_gain_dtype);
        constants->q_norm_gain_count = spec->k_width;
    }
    if (which != 0) {
        constants->k_norm_gain = norm_weight_of(c, 1, &constants->k_norm_gain_dtype);
        constants->k_norm_gain_count = spec->k_width;
    }
    constants->qk_norm_eps = detail(spec, 13, 2) ? 1e-6f : 1e-2f;
    if (constants->rope_cos == NULL || detail(spec, 14, 2)) {
        constants->norm_order = PKV_NORM_BEFORE_ROPE;
    }
}

static void add_sink(struct gqa_case *c)
{
    const size_t heads = (size_t)c->args.num_heads;
    float *sink = gqa_case_input(c, heads, sizeof *sink);
    for (size_t h = 0; h < heads; h++) {
        const double x = number_at(&c->spec, OF_SINK, (int64_t)h, 0, 0, 0);
        sink[h] = x < -0.7 ? -INFINITY : (float)(6 * x);
    }
    c->args.constants.head_sink = sink;
    c->args.constants.head_sink_count = (int32_t)heads;
}

/* Columns and rows that belong to no key or query are poisoned. */
static void add_mask(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_gqa_args *args = &c->args;
    const int32_t kind = detail(spec, 20, 3);
    args->mask_dtype = kind == 0 ? PKV_F32 : kind == 1 ? spec->dtype : PKV_INT8;
    args->mask_batch = detail(spec, 21, 2) ? spec->batch : 1;
    args->mask_heads = detail(spec, 22, 2) ? args->num_heads : 1;
    for (int32_t b = 0; b < spec->batch; b++) {
        args->mask_queries =
            spec->q_lens[b] > args->mask_queries ? spec->q_lens[b] : args->mask_queries;
        args->mask_keys = spec->kv_lens[b] > args->mask_keys ? spec->kv_lens[b] : args->mask_keys;
    }
    args->mask_keys += detail(spec, 23, 3);
    const size_t line = (size_t)args->mask_keys;
    const size_t count =
        (size_t)args->mask_batch * (size_t)args->mask_heads * (size_t)args->mask_queries * line;
    void *mask = gqa_case_input(c, count, pkv_dtype_bytes(args->mask_dtype));
    for (size_t i = 0; i < count; i++) {
        const double x = number_at(spec, OF_MASK, (int64_t)i, 0, 0, 0);
        const size_t b = i / line / (size_t)args->mask_queries / (size_t)args->mask_heads;
        const bool is_alone = args->mask_batch == spec->batch;
        const bool is_beyond = is_alone && i % line >= (size_t)spec->kv_lens[b];
        if (kind == 2) {
            ((uint8_t *)mask)[i] = x > -0.4;
        } else {
            ref_store(args->mask_dtype, mask, i,
                      is_beyond  ? NAN
                      : x < -0.4 ? -(double)INFINITY
                                 : 3 * x);
        }
    }
    args->attn_mask = mask;
}

static const float *scale_for(struct gqa_case *c, int which, enum pkv_dtype dtype, int32_t width,
                              int32_t *count)
{
    const struct case_spec *spec = &c->spec;
    *count = detail(spec, 30 + which, 2) ? 1 : spec->kv_heads * width;
    float *scale = gqa_case_input(c, (size_t)*count, sizeof *scale);
    for (int32_t i = 0; i < *count; i++) {
        const double x = number_at(spec, OF_SCALE, which, 0, 0, i);
        scale[i] = (float)((1.2 + 0.3 * x) / (dtype == PKV_INT8 ? 127 : 448));
    }
    return scale;
}

static void add_options(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_attn_constants *constants = &c->args.constants;
    if ((spec->options & CASE_Q_SCALE) != 0) {
        static const float scales[] = {0.3f, -0.4f, 0.0f, 1.0f};
        c->q_scale = scales[detail(spec, 0, 4)];
        constants->q_scale = &c->q_scale;
    }
    if ((spec->options & CASE_ROPE) != 0 && spec->k_width >= 2) {
        add_rope(c);
    }
    if ((spec->options & CASE_NORM) != 0) {
        add_norm(c);
    }
    if ((spec->options & CASE_SINK) != 0) {
        add_sink(c);
    }
    if ((spec->options & CASE_MASK) != 0) {
        add_mask(c);
    }
    constants->smooth_softmax = (spec->options & CASE_SMOOTH) != 0;
    constants->softcap = (spec->options & CASE_SOFTCAP) != 0 ? (detail(spec, 5, 2) ? 2 : 30) : 0;
    if (spec->form != PKV_CACHE_NONE && is_code(spec->k_dtype)) {
        constants->k_scale =
            scale_for(c, 0, spec->k_dtype, spec->k_width, &constants->k_scale_count);
    }
    if (spec->form != PKV_CACHE_NONE && !spec->v_in_k && is_code(spec->v_dtype)) {
        constants->v_scale =
            scale_for(c, 1, spec->v_dtype, spec->v_width, &constants->v_scale_count);
    }
}

/* The cache */

static int32_t blocks_of(const struct case_spec *spec, int32_t b)
{
    return (spec->kv_lens[b] + spec->block_size - 1) / spec->block_size;
}

static int32_t max_kv_len(const struct case_spec *spec)
{
    int32_t longest = 0;
    for (int32_t b = 0; b < spec->batch; b++) {
        longest = spec->kv_lens[b] > longest ? spec->kv_lens[b] : longest;
    }
    return longest;
}

/* A random order of 0..count-1. */
static void shuffle(struct test_random *random, int32_t *order, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = random_between(random, 0, i);
        const int32_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

/* Block tables over shuffled ids, with spare ones beyond what is used; the number of blocks. */
static int32_t make_table(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct test_random random = {mix(spec->layout, 7)};
    const int32_t spare = random_between(&random, 1, 3);
    int32_t num_blocks = spare;
    int32_t max_blocks = 1;
    for (int32_t b = 0; b < spec->batch; b++) {
        num_blocks += blocks_of(spec, b);
        max_blocks = blocks_of(spec, b) > max_blocks ? blocks_of(spec, b) : max_blocks;
    }
    max_blocks += random_between(&random, 0, 2);
    int32_t *order = reference_alloc((size_t)num_blocks, sizeof *order);
    shuffle(&random, order, num_blocks);
    const size_t entries = (size_t)spec->batch * (size_t)max_blocks;
    c->block_table = gqa_case_input(c, entries, sizeof *c->block_table);
    int32_t next = 0;
    for (int32_t b = 0; b < spec->batch; b++) {
        int32_t *table = c->block_table + (size_t)b * (size_t)max_blocks;
        for (int32_t i = 0; i < max_blocks; i++) {
            table[i] = i < blocks_of(spec, b) ? order[next++] : -1;
        }
    }
    if (spec->batch > 0 && blocks_of(spec, 0) < max_blocks) {
        c->block_table[max_blocks - 1] = order[num_blocks - 1]; /* allocated ahead of need */
    }
    free(order);
    c->args.block_table = c->block_table;
    c->args.max_blocks = max_blocks;
    return num_blocks;
}

static void make_slots(struct gqa_case *c, int32_t max_seqs)
{
    const struct case_spec *spec = &c->spec;
    struct test_random random = {mix(spec->layout, 8)};
    int32_t *order = reference_alloc((size_t)max_seqs, sizeof *order);
    shuffle(&random, order, max_seqs);
    c->slot_ids = gqa_case_input(c, (size_t)spec->batch, sizeof *c->slot_ids);
    memcpy(c->slot_ids, order, (size_t)spec->batch * sizeof *order);
    free(order);
    c->args.slot_ids = c->slot_ids;
}

/* Strides of one side: as they are packed, padded, or cell by cell over the heads. */
static void set_strides(const struct case_spec *spec, const struct pkv_kv_view *view, int32_t width,
                        size_t *block, size_t *head, size_t *cell)
{
    const size_t pad = spec->padded ? 1 : 0;
    const size_t heads = (size_t)view->kv_heads;
    const size_t cells = (size_t)view->block_size;
    if (!spec->padded && !spec->cell_major) {
        return;
    }
    if (spec->cell_major) {
        *head = (size_t)width + pad;
        *cell = heads * *head + 2 * pad;
        *block = cells * *cell + 3 * pad;
        return;
    }
    *cell = (size_t)width + 3 * pad;
    *head = cells * *cell + 2 * pad;
    *block = heads * *head + 5 * pad;
}

static struct pkv_kv_view make_view(struct gqa_case *c, int32_t num_blocks, int32_t block_size)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_kv_view view = {.k_dtype = spec->k_dtype,
                               .v_dtype = spec->v_in_k ? PKV_F32 : spec->v_dtype,
                               .num_blocks = num_blocks,
                               .kv_heads = spec->kv_heads,
                               .block_size = block_size,
                               .k_width = spec->k_width,
                               .v_width = spec->v_in_k ? 0 : spec->v_width};
    set_strides(spec, &view, view.k_width, &view.k_block_stride, &view.k_head_stride,
                &view.k_cell_stride);
    if (!spec->v_in_k) {
        set_strides(spec, &view, view.v_width, &view.v_block_stride, &view.v_head_stride,
                    &view.v_cell_stride);
    }
    const struct pkv_kv_view resolved = reference_view(view);
    const size_t k_count = reference_k_span(&resolved);
    view.k = region_add(c, REGION_CACHE, k_count * pkv_dtype_bytes(view.k_dtype));
    poison(view.k_dtype, view.k, k_count, spec->poison);
    if (!spec->v_in_k) {
        const size_t v_count = reference_v_span(&resolved);
        view.v = region_add(c, REGION_CACHE, v_count * pkv_dtype_bytes(view.v_dtype));
        poison(view.v_dtype, view.v, v_count, spec->poison);
    }
    return view;
}

/* Key j of row b, as a token of the activation dtype once appended it. */
static void fill_cell(struct gqa_case *c, int32_t b, int32_t j)
{
    const struct case_spec *spec = &c->spec;
    const struct pkv_attn_constants *constants = &c->args.constants;
    const struct pkv_kv_view view = reference_view(c->args.past);
    int32_t block = 0, cell = 0;
    reference_locate(&c->args, b, j, &block, &cell);
    for (int32_t at = 0; at < spec->kv_heads * spec->k_width; at++) {
        const int32_t g = at / spec->k_width;
        const int32_t channel = at % spec->k_width;
        const double x = number_at(spec, OF_K, spec->row_ids[b], g, j, channel);
        ref_store(view.k_dtype, view.k, reference_k_index(&view, block, g, cell) + (size_t)channel,
                  as_activation(spec, x) /
                      scale_at(constants->k_scale, constants->k_scale_count, (size_t)at));
    }
    for (int32_t at = 0; !spec->v_in_k && at < spec->kv_heads * spec->v_width; at++) {
        const int32_t g = at / spec->v_width;
        const int32_t channel = at % spec->v_width;
        const double x = number_at(spec, OF_V, spec->row_ids[b], g, j, channel);
        ref_store(view.v_dtype, view.v, reference_v_index(&view, block, g, cell) + (size_t)channel,
                  as_activation(spec, x) /
                      scale_at(constants->v_scale, constants->v_scale_count, (size_t)at));
    }
}

/* Whether some query of the row may see key j; with_mask false asks about positions alone. */
static bool is_seen(const struct gqa_case *c, int32_t b, int32_t j, bool with_mask)
{
    struct pkv_gqa_args args = c->args;
    const bool by_head = c->spec.selects_by_head || (with_mask && args.mask_heads > 1);
    const int32_t heads = by_head ? args.num_heads : 1;
    double bias = 0;
    if (!with_mask) {
        args.attn_mask = NULL;
    }
    for (int32_t at = 0; at < c->spec.q_lens[b] * heads; at++) {
        if (reference_sees(&args, b, at / heads, at % heads, j, &bias)) {
            return true;
        }
    }
    return false;
}

/* Entries of the table whose block holds no cell that is written or may be seen become -1. */
static void evict(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    for (int32_t b = 0; b < spec->batch; b++) {
        int32_t *table = c->block_table + (size_t)b * (size_t)c->args.max_blocks;
        const int32_t first_new = spec->kv_lens[b] - (spec->read_only ? 0 : spec->q_lens[b]);
        for (int32_t i = 0; i < c->args.max_blocks; i++) {
            bool is_needed = false;
            for (int32_t j = i * spec->block_size; j < (i + 1) * spec->block_size; j++) {
                const bool is_new = j >= first_new && j < spec->kv_lens[b];
                is_needed = is_needed || is_new || is_seen(c, b, j, false);
            }
            table[i] = is_needed ? table[i] : -1;
        }
    }
}

static void make_cache(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_gqa_args *args = &c->args;
    const int32_t longest = max_kv_len(spec);
    if (spec->form == PKV_CACHE_PAGED) {
        args->past = make_view(c, make_table(c), spec->block_size);
    } else if (spec->form == PKV_CACHE_CONTINUOUS) {
        args->past = make_view(c, spec->batch + 2, longest + 3);
        if (mix(spec->layout, 9) % 4 != 0) {
            make_slots(c, spec->batch + 2);
        }
    } else if (spec->form == PKV_CACHE_DENSE) {
        args->past = make_view(c, spec->batch, longest + 2);
    } else if (spec->form == PKV_CACHE_DENSE_COPY) {
        args->past = make_view(c, spec->batch, longest - spec->q_lens[0]);
        args->present = make_view(c, spec->batch, longest);
        args->kv_lens = NULL;
    }
    if (spec->evicted && spec->form == PKV_CACHE_PAGED) {
        evict(c);
    }
}

static void fill_cache(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    for (int32_t b = 0; spec->form != PKV_CACHE_NONE && b < spec->batch; b++) {
        const int32_t num_past = spec->kv_lens[b] - (spec->read_only ? 0 : spec->q_lens[b]);
        for (int32_t j = 0; j < num_past; j++) {
            if (is_seen(c, b, j, true)) {
                fill_cell(c, b, j);
            }
        }
    }
}

/* The call */

static void make_lengths(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_gqa_args *args = &c->args;
    const size_t rows = (size_t)spec->batch;
    bool is_one_each = true, is_same = true;
    c->cu_seqlens_q = gqa_case_input(c, rows + 1, sizeof *c->cu_seqlens_q);
    c->cu_seqlens_k = gqa_case_input(c, rows + 1, sizeof *c->cu_seqlens_k);
    c->kv_lens = gqa_case_input(c, rows, sizeof *c->kv_lens);
    c->kept_prefix = gqa_case_input(c, rows, sizeof *c->kept_prefix);
    for (int32_t b = 0; b < spec->batch; b++) {
        c->cu_seqlens_q[b + 1] = c->cu_seqlens_q[b] + spec->q_lens[b];
        c->cu_seqlens_k[b + 1] = c->cu_seqlens_k[b] + spec->kv_lens[b];
        c->kv_lens[b] = spec->kv_lens[b];
        c->kept_prefix[b] = spec->kept[b];
        is_one_each = is_one_each && spec->q_lens[b] == 1;
        is_same = is_same && spec->q_lens[b] == spec->kv_lens[b];
    }
    args->num_tokens = c->cu_seqlens_q[spec->batch];
    args->cu_seqlens_q = is_one_each && detail(spec, 7, 2) ? NULL : c->cu_seqlens_q;
    if (spec->form == PKV_CACHE_NONE) {
        args->cu_seqlens_k = is_same && detail(spec, 8, 2) ? NULL : c->cu_seqlens_k;
    } else {
        args->kv_lens = c->kv_lens;
    }
    args->kept_prefix = spec->kept_count > 0 ? c->kept_prefix : NULL;
    args->kept_prefix_count = spec->kept_count;
}

static void make_ranges(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    int32_t count = 0;
    for (int32_t b = 0; b < spec->batch; b++) {
        count += spec->num_ranges[b];
    }
    if (count == 0 && (spec->not_causal || detail(spec, 6, 2))) {
        return;
    }
    c->cu_bidirectional = gqa_case_input(c, (size_t)spec->batch + 1, sizeof *c->cu_bidirectional);
    c->bidirectional = gqa_case_input(c, (size_t)count, sizeof *c->bidirectional);
    for (int32_t b = 0, at = 0; b < spec->batch; b++) {
        for (int32_t i = 0; i < spec->num_ranges[b]; i++) {
            c->bidirectional[at++] = spec->ranges[b][i];
        }
        c->cu_bidirectional[b + 1] = at;
    }
    c->args.cu_bidirectional = c->cu_bidirectional;
    c->args.bidirectional = count > 0 || detail(spec, 6, 4) ? c->bidirectional : NULL;
}

static void make_activations(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_gqa_args *args = &c->args;
    const int32_t *cu_k = spec->form == PKV_CACHE_NONE ? c->cu_seqlens_k : c->cu_seqlens_q;
    struct packed q = {OF_Q, args->num_heads, spec->k_width, 0, spec->loudness};
    struct packed k = {OF_K, spec->kv_heads, spec->k_width, 0, 1};
    struct packed v = {OF_V, spec->kv_heads, spec->v_width, 0, 1};
    q.factor = q.factor > 0 ? q.factor : 1;
    args->q = packed_input(c, &q, c->cu_seqlens_q, &args->q_stride);
    if (!spec->read_only) {
        args->k = packed_input(c, &k, cu_k, &args->k_stride);
        args->v = spec->v_in_k ? NULL : packed_input(c, &v, cu_k, &args->v_stride);
    }
    const size_t tokens = (size_t)args->num_tokens;
    const size_t row = (size_t)args->num_heads * (size_t)spec->v_width;
    const size_t stride = row + (spec->padded ? 5 : 0);
    const size_t count = tokens > 0 ? (tokens - 1) * stride + row : 0;
    args->out_stride = spec->padded ? stride : 0;
    args->out = region_add(c, REGION_OUTPUT, count * pkv_dtype_bytes(spec->dtype));
    if (!spec->without_lse) {
        args->lse =
            region_add(c, REGION_OUTPUT, tokens * (size_t)args->num_heads * sizeof *args->lse);
    }
}

struct gqa_case *gqa_case_make(const struct case_spec *spec)
{
    struct gqa_case *c = reference_alloc(1, sizeof *c);
    struct pkv_gqa_args *args = &c->args;
    c->spec = *spec;
    args->size = sizeof *args;
    args->form = spec->form;
    args->dtype = spec->dtype;
    args->num_heads = spec->kv_heads * spec->group;
    args->kv_heads = spec->kv_heads;
    args->k_width = spec->k_width;
    args->v_width = spec->v_width == spec->k_width && detail(spec, 9, 2) ? 0 : spec->v_width;
    args->v_in_k = spec->v_in_k;
    args->batch = spec->batch;
    args->sliding_window = spec->window;
    args->not_causal = spec->not_causal;
    make_lengths(c);
    make_ranges(c);
    selection_case_add(c);
    tree_case_add(c);
    add_options(c);
    make_cache(c);
    fill_cache(c);
    make_activations(c);
    gqa_case_snapshot(c);
    return c;
}

enum pkv_status gqa_case_call(const struct gqa_case *c, pkv_workspace *workspace)
{
    return c->spec.read_only ? pkv_attention_over_cache(workspace, &c->args)
                             : pkv_gqa(workspace, &c->args);
}

struct gqa_case *gqa_case_run(const struct case_spec *spec, pkv_workspace *workspace)
{
    struct gqa_case *c = gqa_case_make(spec);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    return c;
}

enum pkv_status gqa_case_call_chunk(const struct gqa_case *c, pkv_workspace *workspace,
                                    int32_t begin, int32_t end)
{
    const struct case_spec *spec = &c->spec;
    const size_t bytes = pkv_dtype_bytes(spec->dtype);
    const size_t at = (size_t)begin;
    const int32_t cu_seqlens[] = {0, end - begin};
    int32_t cu_ranges[] = {0, 0}; /* those of the tokens so far */
    const size_t heads = (size_t)c->args.num_heads;
    const size_t kv_heads = (size_t)spec->kv_heads;
    struct pkv_gqa_args args = c->args;
    args.q = (const char *)args.q + at * heads * (size_t)spec->k_width * bytes;
    args.k = (const char *)args.k + at * kv_heads * (size_t)spec->k_width * bytes;
    args.v = (const char *)args.v + at * kv_heads * (size_t)spec->v_width * bytes;
    args.out = (char *)args.out + at * heads * (size_t)spec->v_width * bytes;
    args.lse += at * heads;
    args.num_tokens = end - begin;
    args.cu_seqlens_q = cu_seqlens;
    args.kv_lens = &end;
    while (cu_ranges[1] < spec->num_ranges[0] && spec->ranges[0][cu_ranges[1]].end <= end) {
        cu_ranges[1]++;
    }
    args.cu_bidirectional = args.cu_bidirectional != NULL ? cu_ranges : NULL;
    struct selection_cut cut;
    selection_case_cut(c, end, &cut, &args);
    return pkv_gqa(workspace, &args);
}

size_t gqa_case_out_bytes(const struct gqa_case *c)
{
    return (size_t)c->args.num_heads * (size_t)c->spec.v_width * pkv_dtype_bytes(c->spec.dtype);
}

const void *gqa_case_out(const struct gqa_case *c, int32_t b, int32_t i)
{
    const size_t packed = (size_t)c->args.num_heads * (size_t)c->spec.v_width;
    const size_t stride = c->args.out_stride != 0 ? c->args.out_stride : packed;
    const size_t token = (size_t)(c->cu_seqlens_q[b] + i);
    return (const char *)c->args.out + token * stride * pkv_dtype_bytes(c->spec.dtype);
}

const float *gqa_case_lse(const struct gqa_case *c, int32_t b, int32_t i)
{
    return c->args.lse + (size_t)(c->cu_seqlens_q[b] + i) * (size_t)c->args.num_heads;
}

pkv_workspace *case_workspace(int num_threads)
{
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(num_threads, test_isa(), NULL, &workspace));
    test_eager_threads(workspace);
    return workspace;
}

struct pkv_kv_view case_f32_view(float *k, float *v, int32_t num_blocks, int32_t kv_heads,
                                 int32_t block_size, int32_t width)
{
    const struct pkv_kv_view view = {.k = k,
                                     .v = v,
                                     .num_blocks = num_blocks,
                                     .kv_heads = kv_heads,
                                     .block_size = block_size,
                                     .k_width = width,
                                     .v_width = width};
    return view;
}

struct pkv_gqa_args case_f32_args(enum pkv_cache_form form, int32_t batch, int32_t num_heads,
                                  int32_t kv_heads, int32_t width)
{
    const struct pkv_gqa_args args = {.size = sizeof args,
                                      .form = form,
                                      .num_heads = num_heads,
                                      .kv_heads = kv_heads,
                                      .k_width = width,
                                      .batch = batch,
                                      .num_tokens = batch};
    return args;
}

void case_run(const struct pkv_gqa_args *args)
{
    pkv_workspace *workspace = case_workspace(2);
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, args));
    pkv_workspace_destroy(workspace);
}

bool case_is_close(double got, double want)
{
    return got == want || fabs(got - want) <= 1e-5 * fabs(want) + 1e-6;
}
