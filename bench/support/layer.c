/* SPDX-License-Identifier: MIT
 *
 * layer.c: pages come from where the library's own come from, so that the read ceiling is taken
 * over the very memory that a cache lies in. The blocks that some query sees are mapped:
 *
 *   table of a row   [ kept prefix | -1 .. -1 | window ],   shared blocks first and in every row */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/mem.h"
#include "churn.h"
#include "limits.h"
#include "measure.h"
#include "numbers.h"

enum { MAX_CHURNS = 16 };

static const struct pkv_hooks no_hooks;

static int32_t block_size_of(const struct layer_spec *spec)
{
    return spec->block_size > 0 ? spec->block_size : spec->keys;
}

static int32_t max_blocks_of(const struct layer_spec *spec)
{
    return (spec->keys + block_size_of(spec) - 1) / block_size_of(spec);
}

/* The first key that the row's window still shows to its first new token. */
static int32_t first_seen(const struct layer_spec *spec)
{
    const int32_t first = spec->keys - spec->q_len - spec->window + 1;
    return spec->window > 0 && first > 0 ? first : 0;
}

/* The i-th of the selected blocks. */
static int32_t selected_block(const struct layer_spec *spec, int32_t i)
{
    return (int32_t)((int64_t)(i + 1) * max_blocks_of(spec) / spec->selected) - 1;
}

static bool block_is_selected(const struct layer_spec *spec, int32_t block)
{
    const int32_t i = (int32_t)((int64_t)block * spec->selected / max_blocks_of(spec));
    return selected_block(spec, i) == block;
}

static bool block_is_seen(const struct layer_spec *spec, int32_t block)
{
    if (spec->selected > 0) {
        return block_is_selected(spec, block);
    }
    const int32_t size = block_size_of(spec);
    return block * size < spec->kept_prefix || (block + 1) * size > first_seen(spec);
}

static bool block_is_shared(const struct layer_spec *spec, int32_t block)
{
    return (block + 1) * block_size_of(spec) <= spec->shared;
}

static int32_t num_blocks_of(const struct layer_spec *spec)
{
    int32_t shared = 0, own = 0;
    if (spec->pool_tokens > 0) {
        return spec->pool_tokens / block_size_of(spec);
    }
    for (int32_t b = 0; b < max_blocks_of(spec); b++) {
        const int32_t seen = block_is_seen(spec, b) ? 1 : 0;
        shared += block_is_shared(spec, b) ? seen : 0;
        own += block_is_shared(spec, b) ? 0 : seen;
    }
    return shared + own * spec->rows;
}

static int32_t v_width_of(const struct layer_spec *spec)
{
    return spec->latent > 0 ? spec->latent : spec->width;
}

static size_t num_sides(const struct layer_spec *spec)
{
    return spec->latent > 0 ? 1 : 2;
}

/* Of K alone. The same for V. */
static size_t side_bytes(const struct layer_spec *spec)
{
    const size_t cells = (size_t)num_blocks_of(spec) * (size_t)block_size_of(spec);
    const size_t bytes = cells * (size_t)spec->kv_heads * (size_t)spec->width;
    const size_t whole = (bytes * pkv_dtype_bytes(spec->cache) + MEM_PAGE_ALIGNMENT - 1);
    return whole / MEM_PAGE_ALIGNMENT * MEM_PAGE_ALIGNMENT;
}

size_t layer_pages_bytes(const struct layer_spec *spec)
{
    return num_sides(spec) * side_bytes(spec);
}

static void shuffle(int32_t *ids, int32_t count, uint64_t seed)
{
    for (int32_t i = 0; i < count; i++) {
        ids[i] = i;
    }
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = (int32_t)(measure_random(&seed) % (uint32_t)(i + 1));
        const int32_t id = ids[i];
        ids[i] = ids[j];
        ids[j] = id;
    }
}

/* Tables after churn are the same for all dtypes, and are kept: they take seconds. */
static void fill_table_by_churn(struct layer *layer)
{
    static struct {
        struct layer_spec spec;
        int32_t *table;
    } known[MAX_CHURNS];
    const struct layer_spec *spec = &layer->spec;
    const size_t bytes = (size_t)spec->rows * (size_t)max_blocks_of(spec) * sizeof layer->table[0];
    int i = 0;
    while (known[i].table != NULL &&
           (known[i].spec.rows != spec->rows || known[i].spec.keys != spec->keys ||
            known[i].spec.block_size != spec->block_size || known[i].spec.order != spec->order ||
            known[i].spec.pool_tokens != spec->pool_tokens)) {
        if (++i == MAX_CHURNS) {
            measure_fail("tables of more than %d pools", MAX_CHURNS);
        }
    }
    if (known[i].table == NULL) {
        const struct churn_pool pool = {.block_size = spec->block_size,
                                        .num_blocks = num_blocks_of(spec),
                                        .prefix_cache = spec->order == ORDER_CHURNED_CACHED};
        known[i].spec = *spec;
        known[i].table = measure_calloc(bytes, 1);
        churn_tables(&pool, spec->rows, spec->keys, known[i].table);
    }
    memcpy(layer->table, known[i].table, bytes);
}

static void fill_table(struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const int32_t max_blocks = max_blocks_of(spec), num_blocks = num_blocks_of(spec);
    int32_t *ids = measure_calloc((size_t)num_blocks, sizeof ids[0]);
    int32_t taken = 0;
    shuffle(ids, num_blocks, 7);
    for (int32_t row = 0; row < spec->rows; row++) {
        for (int32_t b = 0; b < max_blocks; b++) {
            int32_t *entry = &layer->table[row * max_blocks + b];
            if (!block_is_seen(spec, b)) {
                *entry = -1;
            } else if (row > 0 && block_is_shared(spec, b)) {
                *entry = layer->table[b];
            } else {
                *entry = ids[taken++];
            }
        }
    }
    free(ids);
}

static void fill_lengths(struct layer *layer)
{
    for (int32_t row = 0; row < layer->spec.rows; row++) {
        layer->lens[row] = layer->spec.keys;
        layer->cu_seqlens[row + 1] = (row + 1) * layer->spec.q_len;
    }
}

/* ---- the cache as the tables order it ------------------------------------------------------- */

enum { TILE = 64, RUN_UNIT = 256 };

static int32_t blocks_of_tile(const struct layer_spec *spec)
{
    return (TILE + spec->block_size - 1) / spec->block_size;
}

/* K or V of the blocks of one tile of a row, whole. Shared ones are the first row's. */
static void add_blocks(struct layer *layer, const char *side, int32_t row, int32_t tile)
{
    const int32_t max_blocks = max_blocks_of(&layer->spec);
    const int32_t step = blocks_of_tile(&layer->spec);
    for (int32_t b = tile * step; b < (tile + 1) * step && b < max_blocks; b++) {
        const int32_t id = layer->table[row * max_blocks + b];
        if (id >= 0 && (row == 0 || !block_is_shared(&layer->spec, b))) {
            layer->runs[layer->num_runs++] = side + (size_t)id * layer->run_bytes;
        }
    }
}

/* K or V of one tile of a cache row, head by head. */
static void add_strips(struct layer *layer, const char *side, int32_t row, int32_t tile)
{
    const struct layer_spec *spec = &layer->spec;
    const size_t cell = (size_t)spec->width * pkv_dtype_bytes(spec->cache);
    for (int32_t head = 0; head < spec->kv_heads; head++) {
        const size_t strip = (size_t)(layer->slots[row] * spec->kv_heads + head);
        layer->runs[layer->num_runs++] =
            side + (strip * (size_t)spec->keys + (size_t)tile * TILE) * cell;
    }
}

/* Only whole tiles of cache rows. */
static void fill_runs(struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const bool paged = spec->block_size > 0;
    const size_t cell = (size_t)spec->width * pkv_dtype_bytes(spec->cache);
    const size_t cells = (size_t)(paged ? spec->block_size * spec->kv_heads : TILE);
    const int32_t per_tile = paged ? blocks_of_tile(spec) : spec->kv_heads;
    const int32_t tiles =
        paged ? (max_blocks_of(spec) + per_tile - 1) / per_tile : spec->keys / TILE;
    void (*add)(struct layer *, const char *, int32_t, int32_t) = paged ? add_blocks : add_strips;
    layer->run_bytes = cells * cell;
    if (layer->run_bytes % RUN_UNIT != 0) {
        measure_fail("blocks of %zu bytes, no multiple of %d", layer->run_bytes, RUN_UNIT);
    }
    layer->runs = measure_calloc(2 * (size_t)spec->rows * (size_t)tiles * (size_t)per_tile,
                                 sizeof layer->runs[0]);
    for (int32_t row = 0; row < spec->rows; row++) {
        for (int32_t tile = 0; tile < tiles; tile++) {
            for (size_t side = 0; side < num_sides(spec); side++) {
                add(layer, layer->pages + side * side_bytes(spec), row, tile);
            }
        }
    }
}

double layer_read(const struct layer *layer)
{
    return limits_read_runs(layer->spec.threads, layer->runs, layer->num_runs, layer->run_bytes);
}

/* ---- making one ---------------------------------------------------------------------------- */

static char *activations(size_t count, enum pkv_dtype dtype, uint64_t seed)
{
    char *memory = measure_calloc(count, pkv_dtype_bytes(dtype));
    numbers_fill(memory, count * pkv_dtype_bytes(dtype), dtype, NUMBERS_QUERY_SHIFT, seed);
    return memory;
}

static void create_pages(struct layer *layer, const struct layer *lender)
{
    layer->pages_bytes = layer_pages_bytes(&layer->spec);
    layer->has_lent_pages = lender != NULL;
    if (layer->has_lent_pages) {
        layer->pages = lender->pages;
        return;
    }
    layer->pages = mem_map(&no_hooks, layer->pages_bytes, PKV_MAP_PAYLOAD);
    if (layer->pages == NULL) {
        measure_fail("no memory for %zu MiB of pages", layer->pages_bytes >> 20);
    }
    numbers_fill(layer->pages, layer->pages_bytes, layer->spec.cache, NUMBERS_CACHE_SHIFT, 1);
}

/* The same list for every row. */
static void fill_selected(struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const size_t count = (size_t)spec->rows * (size_t)spec->selected;
    layer->selected = measure_calloc(count, sizeof(int32_t));
    layer->cu_selected = measure_calloc((size_t)spec->rows + 1, sizeof(int32_t));
    for (int32_t b = 0; b < spec->rows; b++) {
        layer->cu_selected[b + 1] = (b + 1) * spec->selected;
        for (int32_t i = 0; i < spec->selected; i++) {
            layer->selected[b * spec->selected + i] = selected_block(spec, i);
        }
    }
}

static void create_memory(struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const size_t tokens = (size_t)spec->rows * (size_t)spec->q_len;
    const size_t q = tokens * (size_t)spec->heads * (size_t)spec->width;
    const size_t kv = tokens * (size_t)spec->kv_heads * (size_t)spec->width;
    layer->q = activations(q, layer->dtype, 2);
    layer->k = activations(kv, layer->dtype, 3);
    layer->v = activations(kv, layer->dtype, 4);
    layer->out = measure_calloc(tokens * (size_t)spec->heads * (size_t)v_width_of(spec),
                                pkv_dtype_bytes(layer->dtype));
    layer->table =
        measure_calloc((size_t)spec->rows * (size_t)max_blocks_of(spec), sizeof(int32_t));
    layer->lens = measure_calloc((size_t)spec->rows, sizeof(int32_t));
    layer->slots = measure_calloc((size_t)spec->rows, sizeof(int32_t));
    layer->cu_seqlens = measure_calloc((size_t)spec->rows + 1, sizeof(int32_t));
    layer->sink = measure_calloc((size_t)spec->heads, sizeof(float));
    fill_lengths(layer);
    if (spec->block_size > 0 && spec->order != ORDER_SHUFFLED) {
        fill_table_by_churn(layer);
    } else if (spec->block_size > 0) {
        fill_table(layer);
    } else {
        shuffle(layer->slots, spec->rows, 7);
    }
    fill_runs(layer);
    if (spec->selected > 0) {
        fill_selected(layer);
    }
}

/* Cosines and sines of every position, as a model of base 10000 has them; norm weights of one. */
static void create_rope_norm(struct layer *layer)
{
    const size_t half = (size_t)layer->spec.width / 2;
    const size_t positions = (size_t)layer->spec.keys;
    layer->rope = measure_calloc(2 * positions * half, sizeof(float));
    layer->norm_weight = measure_calloc((size_t)layer->spec.width, sizeof(float));
    for (size_t i = 0; i < positions * half; i++) {
        const double turn = pow(10000, -(double)(i % half) / (double)half) * (double)(i / half);
        layer->rope[i] = (float)cos(turn);
        layer->rope[positions * half + i] = (float)sin(turn);
    }
    for (int32_t c = 0; c < layer->spec.width; c++) {
        layer->norm_weight[c] = 1.0f;
    }
}

static void set_constants(struct layer *layer)
{
    struct pkv_attn_constants *c = &layer->args.constants;
    const struct layer_spec *spec = &layer->spec;
    if (spec->cache == PKV_INT8 || spec->cache == PKV_E4M3) {
        layer->scale = numbers_scale(spec->cache, NUMBERS_CACHE_SHIFT);
        c->k_scale = &layer->scale;
        c->k_scale_count = 1;
        if (spec->latent == 0) {
            c->v_scale = &layer->scale;
            c->v_scale_count = 1;
        }
    }
    if (spec->sinks) {
        c->head_sink = layer->sink;
        c->head_sink_count = spec->heads;
    }
    if (spec->work == WORK_ROPE_NORM) {
        create_rope_norm(layer);
        c->rope_cos = layer->rope;
        c->rope_sin = layer->rope + (size_t)spec->keys * (size_t)spec->width / 2;
        c->rope_positions = spec->keys;
        c->rope_width = spec->width / 2;
        c->q_norm_gain = c->k_norm_gain = layer->norm_weight;
        c->q_norm_gain_count = c->k_norm_gain_count = spec->width;
        c->qk_norm_eps = 1e-6f;
        c->norm_order = PKV_NORM_BEFORE_ROPE;
    }
}

static struct pkv_kv_view view_of(const struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    return (struct pkv_kv_view){
        .k = layer->pages,
        .v = spec->latent > 0 ? NULL : layer->pages + side_bytes(spec),
        .k_dtype = spec->cache,
        .v_dtype = spec->cache,
        .num_blocks = num_blocks_of(spec),
        .kv_heads = spec->kv_heads,
        .block_size = block_size_of(spec),
        .k_width = spec->width,
        .v_width = v_width_of(spec),
    };
}

static void set_args(struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const bool paged = spec->block_size > 0;
    const bool appends = spec->work != WORK_READ;
    layer->kept_prefix = spec->kept_prefix;
    layer->args = (struct pkv_gqa_args){
        .size = sizeof layer->args,
        .form = paged ? PKV_CACHE_PAGED : PKV_CACHE_CONTINUOUS,
        .dtype = layer->dtype,
        .num_heads = spec->heads,
        .kv_heads = spec->kv_heads,
        .k_width = spec->width,
        .v_width = spec->latent,
        .v_in_k = spec->latent > 0,
        .batch = spec->rows,
        .num_tokens = spec->rows * spec->q_len,
        .cu_seqlens_q = layer->cu_seqlens,
        .kv_lens = layer->lens,
        .block_table = paged ? layer->table : NULL,
        .max_blocks = paged ? max_blocks_of(spec) : 0,
        .slot_ids = paged ? NULL : layer->slots,
        .q = layer->q,
        .k = appends ? layer->k : NULL,
        .v = appends && spec->latent == 0 ? layer->v : NULL,
        .out = layer->out,
        .past = view_of(layer),
        .sliding_window = spec->window,
        .kept_prefix = spec->kept_prefix > 0 ? &layer->kept_prefix : NULL,
        .kept_prefix_count = spec->kept_prefix > 0 ? 1 : 0,
    };
    if (spec->selected > 0) {
        layer->args.selected = layer->selected;
        layer->args.cu_selected = layer->cu_selected;
        layer->args.num_selected_lists = spec->rows;
    }
    set_constants(layer);
}

void layer_create(const struct layer_spec *spec, const struct layer *lender, struct layer *layer)
{
    *layer = (struct layer){.spec = *spec, .dtype = spec->cache};
    if (spec->cache == PKV_INT8 || spec->cache == PKV_E4M3) {
        layer->dtype = PKV_F32;
    }
    create_pages(layer, lender);
    create_memory(layer);
    set_args(layer);
    measure_must(pkv_workspace_create(spec->threads, spec->isa, NULL, &layer->workspace),
                 "pkv_workspace_create");
    measure_must(pkv_plan_create(layer->workspace, &layer->plan), "pkv_plan_create");
    layer_plan(layer);
}

void layer_destroy(struct layer *layer)
{
    pkv_plan_destroy(layer->plan);
    pkv_workspace_destroy(layer->workspace);
    if (!layer->has_lent_pages) {
        mem_unmap(&no_hooks, layer->pages, layer->pages_bytes, PKV_MAP_PAYLOAD);
    }
    void *const arrays[] = {layer->q,          layer->k,           layer->v,
                            layer->out,        layer->lens,        layer->table,
                            layer->cu_seqlens, layer->slots,       layer->sink,
                            layer->rope,       layer->norm_weight, (void *)layer->runs,
                            layer->selected,   layer->cu_selected};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
    *layer = (struct layer){0};
}

void layer_plan(struct layer *layer)
{
    measure_must(pkv_gqa_plan(layer->workspace, &layer->args, layer->plan), "pkv_gqa_plan");
}

void layer_run(struct layer *layer)
{
    measure_must(pkv_gqa_run(layer->workspace, &layer->args, layer->plan), "pkv_gqa_run");
}

static const void *cell(const struct layer *layer, const void *side, int32_t row, int32_t head,
                        int32_t position)
{
    const struct layer_spec *spec = &layer->spec;
    const int32_t size = block_size_of(spec);
    const int32_t block = spec->block_size > 0
                              ? layer->table[row * max_blocks_of(spec) + position / size]
                              : layer->slots[row];
    const size_t head_at = (size_t)block * (size_t)spec->kv_heads + (size_t)head;
    const size_t cell_at = head_at * (size_t)size + (size_t)(position % size);
    return (const char *)side + cell_at * (size_t)spec->width * pkv_dtype_bytes(spec->cache);
}

const void *layer_key(const struct layer *layer, int32_t row, int32_t head, int32_t position)
{
    return cell(layer, layer->args.past.k, row, head, position);
}

const void *layer_value(const struct layer *layer, int32_t row, int32_t head, int32_t position)
{
    return cell(layer, layer->args.past.v, row, head, position);
}

/* Keys of a row that at least one (sum false), or each by itself (sum true), of its queries sees.
 */
static double keys_seen(const struct layer_spec *spec, bool sum)
{
    double keys = 0;
    if (spec->selected > 0) { /* whole blocks: lengths are multiples of theirs */
        return (double)spec->selected * spec->block_size * (sum ? spec->q_len : 1);
    }
    for (int32_t i = sum ? 0 : spec->q_len - 1; i < spec->q_len; i++) {
        const int32_t end = spec->keys - spec->q_len + i + 1;
        const int32_t window = sum ? spec->window : spec->window + spec->q_len - 1;
        const int32_t first = spec->window > 0 && end > window ? end - window : 0;
        const int32_t prefix = spec->kept_prefix < first ? spec->kept_prefix : first;
        keys += end - first + prefix;
    }
    return keys;
}

double layer_bytes(const struct layer_spec *spec)
{
    const double channels = (double)spec->width * (double)num_sides(spec);
    const double cell_bytes = channels * (double)pkv_dtype_bytes(spec->cache);
    const double own = keys_seen(spec, false) - spec->shared;
    return (own * spec->rows + spec->shared) * spec->kv_heads * cell_bytes;
}

double layer_flops(const struct layer_spec *spec)
{
    const double channels = (double)spec->width + v_width_of(spec);
    return 2.0 * channels * spec->heads * keys_seen(spec, true) * spec->rows;
}
