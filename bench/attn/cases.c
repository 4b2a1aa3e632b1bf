/* SPDX-License-Identifier: MIT
 *
 * cases.c: models by the shape of their attention, and the groups. */
#include "cases.h"

#include <stdio.h>
#include <string.h>

#include "numbers.h"

enum { BLOCK = 16, KEYS = 4096 };

/* L8: Llama-3 8B; G8: 70B; MHA: Llama-2 7B; gpt-oss: its window layers; Qwen: Qwen2.5 7B; MLA:
 * DeepSeek V3; one KV head of the first two. */
static const struct model {
    const char *name;
    int32_t heads, kv_heads, width, window;
    bool sinks;
    int32_t latent;
} models[] = {
    {"L8", 32, 8, 128, 0, false, 0},      {"G8", 64, 8, 128, 0, false, 0},
    {"MHA", 32, 32, 128, 0, false, 0},    {"Qwen", 28, 4, 128, 0, false, 0},
    {"gpt-oss", 64, 8, 64, 128, true, 0}, {"MLA", 128, 1, 576, 0, false, 512},
    {"4/1", 4, 1, 128, 0, false, 0},      {"8/1", 8, 1, 128, 0, false, 0},
};

static const enum pkv_dtype all_types[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_E4M3};
enum { NUM_TYPES = sizeof all_types / sizeof all_types[0] };

static const struct model *model_of(const char *name)
{
    size_t i = 0;
    while (strcmp(models[i].name, name) != 0) {
        i++;
    }
    return &models[i];
}

static struct layer_spec spec_of(const char *name, int32_t rows, int32_t keys, enum pkv_dtype cache)
{
    const struct model *model = model_of(name);
    return (struct layer_spec){.heads = model->heads,
                               .kv_heads = model->kv_heads,
                               .width = model->width,
                               .latent = model->latent,
                               .rows = rows,
                               .q_len = 1,
                               .keys = keys,
                               .block_size = BLOCK,
                               .window = model->window,
                               .sinks = model->sinks,
                               .cache = cache};
}

void cases_name(struct attn_case *c)
{
    const struct layer_spec *s = &c->spec;
    char *at = c->name, *end = c->name + sizeof c->name;
    at += snprintf(at, (size_t)(end - at), "%s %s %d x %d", c->model, numbers_type_name(s->cache),
                   s->rows, s->keys);
    if (s->heads != model_of(c->model)->heads) {
        at += snprintf(at, (size_t)(end - at), ", %d heads", s->heads);
    }
    if (s->q_len > 1) {
        at += snprintf(at, (size_t)(end - at), ", %d queries", s->q_len);
    }
    if (s->window > 0) {
        at += snprintf(at, (size_t)(end - at), ", window %d+%d", s->window, s->kept_prefix);
    }
    if (s->shared > 0) {
        at += snprintf(at, (size_t)(end - at), ", %d shared", s->shared);
    }
    if (s->selected > 0) {
        at += snprintf(at, (size_t)(end - at), ", %d blocks selected", s->selected);
    }
    if (s->block_size == 0) {
        at += snprintf(at, (size_t)(end - at), ", continuous");
    } else if (s->block_size != BLOCK) {
        at += snprintf(at, (size_t)(end - at), ", block %d", s->block_size);
    }
    if (s->order != ORDER_SHUFFLED) {
        at += snprintf(at, (size_t)(end - at), "%s",
                       s->order == ORDER_CHURNED ? ", after churn" : ", after churn, cached");
    }
    if (s->work != WORK_STEP) {
        snprintf(at, (size_t)(end - at), s->work == WORK_READ ? ", read only" : ", rope + norm");
    }
}

static struct layer_spec *add(struct group *group, const char *model, int32_t rows, int32_t keys,
                              enum pkv_dtype cache)
{
    struct attn_case *c = &group->cases[group->num_cases++];
    *c = (struct attn_case){.model = model, .spec = spec_of(model, rows, keys, cache)};
    return &c->spec;
}

static void add_types(struct group *group, const char *model, int32_t rows)
{
    for (int i = 0; i < NUM_TYPES; i++) {
        add(group, model, rows, KEYS, all_types[i]);
    }
}

static void build_decode(struct group *group)
{
    add_types(group, "L8", 8);
    add_types(group, "G8", 8);
}

static void build_models(struct group *group)
{
    add_types(group, "MHA", 2);
    add_types(group, "Qwen", 8);
    add_types(group, "gpt-oss", 8);
    for (int i = 0; i < NUM_TYPES; i++) { /* gpt-oss has a full layer between two window layers */
        add(group, "gpt-oss", 8, KEYS, all_types[i])->window = 0;
    }
}

/* One KV head of so few keys that the second-level cache holds them: what the kernels do when
 * memory is no matter. A tile is an eighth of a run. */
static void build_cache(struct group *group)
{
    for (int i = 0; i < NUM_TYPES; i++) {
        add(group, "4/1", 1, 512, all_types[i]);
        add(group, "8/1", 1, 512, all_types[i]);
    }
    for (int i = 0; i < NUM_TYPES; i++) {
        add(group, "4/1", 1, 512, all_types[i])->q_len = 4;
    }
}

static void build_rows(struct group *group)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 32};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        add(group, "L8", rows[i], KEYS, PKV_F16);
        add(group, "L8", rows[i], KEYS, PKV_INT8);
    }
}

static void build_keys(struct group *group)
{
    for (int32_t keys = 1024; keys <= 131072; keys *= 2) {
        add(group, "L8", 1, keys, PKV_F16);
    }
    for (int32_t keys = 1024; keys <= 32768; keys *= 2) {
        add(group, "L8", 8, keys, PKV_F16);
    }
}

static void build_heads(struct group *group)
{
    static const int32_t heads[] = {8, 16, 24, 32, 48, 64};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        add(group, "L8", 8, KEYS, PKV_F16)->heads = heads[i];
        add(group, "L8", 8, KEYS, PKV_F32)->heads = heads[i];
    }
}

static void build_windows(struct group *group)
{
    for (int32_t window = 512; window <= 8192; window *= 2) {
        struct layer_spec *spec = add(group, "L8", 8, 8192, PKV_F16);
        spec->window = window;
        spec->kept_prefix = 4;
    }
}

/* Slots first: paged is compared with them. */
static void build_paged(struct group *group)
{
    static const int32_t sizes[] = {0, 16, 32, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        add(group, "L8", 8, KEYS, PKV_F16)->block_size = sizes[i];
    }
}

/* In a pool twice as large as the rows: churn needs room. */
static void add_block_sizes(struct group *group, enum pkv_dtype cache)
{
    const int32_t rows = 8;
    add(group, "L8", rows, KEYS, cache)->block_size = 0;
    for (int order = ORDER_SHUFFLED; order <= ORDER_CHURNED_CACHED; order++) {
        for (int32_t size = 16; size <= 256; size *= 2) {
            struct layer_spec *spec = add(group, "L8", rows, KEYS, cache);
            spec->block_size = size;
            spec->order = (enum layer_order)order;
        }
    }
    for (int i = 0; i < group->num_cases; i++) {
        group->cases[i].spec.pool_tokens = 2 * rows * KEYS;
    }
}

static void build_blocks_f32(struct group *group)
{
    add_block_sizes(group, PKV_F32);
}

static void build_blocks_f16(struct group *group)
{
    add_block_sizes(group, PKV_F16);
}

static void build_blocks_bf16(struct group *group)
{
    add_block_sizes(group, PKV_BF16);
}

static void build_blocks_int8(struct group *group)
{
    add_block_sizes(group, PKV_INT8);
}

static void build_verify(struct group *group)
{
    static const int32_t q_lens[] = {1, 4, 8};
    for (int rows = 1; rows <= 4; rows += 3) {
        for (size_t i = 0; i < sizeof q_lens / sizeof q_lens[0]; i++) {
            add(group, "L8", rows, 8192, PKV_F16)->q_len = q_lens[i];
        }
    }
}

static void build_prefill(struct group *group)
{
    for (int i = 0; i < NUM_TYPES; i++) {
        add(group, "L8", 1, 2048, all_types[i])->q_len = 512;
    }
}

static void build_split(struct group *group)
{
    add(group, "L8", 8, KEYS, PKV_F16);
    add(group, "L8", 1, 131072, PKV_F16);
}

static void build_window(struct group *group)
{
    for (int32_t keys = KEYS; keys <= 131072; keys *= 32) {
        struct layer_spec *spec = add(group, "L8", 8, keys, PKV_F16);
        spec->window = 512;
        spec->kept_prefix = 4;
    }
}

static void build_step(struct group *group)
{
    add(group, "L8", 8, KEYS, PKV_F16)->work = WORK_READ;
    add(group, "L8", 8, KEYS, PKV_F16);
    add(group, "L8", 8, KEYS, PKV_F16)->work = WORK_ROPE_NORM;
}

/* 32 rows over one prefix of 4096 keys, with 64 keys of their own. */
static void add_shared(struct group *group, const char *model, enum pkv_dtype cache)
{
    add(group, model, 32, KEYS + 64, cache);
    add(group, model, 32, KEYS + 64, cache)->shared = KEYS;
}

static void build_shared_mha(struct group *group)
{
    add_shared(group, "MHA", PKV_F16);
}

static void build_shared_f32(struct group *group)
{
    add_shared(group, "L8", PKV_F32);
}

static void build_shared_bf16(struct group *group)
{
    add_shared(group, "L8", PKV_BF16);
}

/* 64 of 2048 blocks, beside all of them and beside a row of as many keys as are selected. */
static void build_selected(struct group *group)
{
    static const enum pkv_dtype types[] = {PKV_F16, PKV_INT8};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        add(group, "L8", 1, 131072, types[i])->block_size = 64;
        struct layer_spec *spec = add(group, "L8", 1, 131072, types[i]);
        spec->block_size = 64;
        spec->selected = 64;
        spec->pool_tokens = 131072;
        add(group, "L8", 1, 64 * 64, types[i])->block_size = 64;
    }
}

/* 128 query heads on one latent KV head: arithmetic is the limit of every type. */
static void add_latent(struct group *group, int32_t keys)
{
    static const int32_t rows[] = {1, 4, 8};
    for (int t = 0; t < NUM_TYPES; t++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            add(group, "MLA", rows[i], keys, all_types[t]);
        }
    }
}

static void build_latent(struct group *group)
{
    add_latent(group, KEYS);
}

static void build_latent_long(struct group *group)
{
    add_latent(group, 16384);
}

const struct group *cases_groups(int *count)
{
    static const struct group groups[] = {
        {.name = "decode", .quick = true, .build = build_decode},
        {.name = "split", .quick = true, .build = build_split},
        {.name = "verify", .quick = true, .build = build_verify},
        {.name = "prefill", .quick = true, .build = build_prefill},
        {.name = "window", .quick = true, .build = build_window},
        {.name = "selected", .quick = true, .build = build_selected},
        {.name = "latent", .quick = true, .build = build_latent},
        {.name = "step", .quick = true, .build = build_step},
        {.name = "paged", .quick = true, .build = build_paged},
        {.name = "blocks f32", .has_one_pool = true, .build = build_blocks_f32},
        {.name = "blocks f16", .has_one_pool = true, .build = build_blocks_f16},
        {.name = "blocks bf16", .has_one_pool = true, .build = build_blocks_bf16},
        {.name = "blocks int8", .has_one_pool = true, .build = build_blocks_int8},
        {.name = "shared MHA f16", .quick = true, .build = build_shared_mha},
        {.name = "shared L8 f32", .quick = true, .build = build_shared_f32},
        {.name = "shared L8 bf16", .quick = true, .build = build_shared_bf16},
        {.name = "latent long", .quick = false, .build = build_latent_long},
        {.name = "models", .quick = false, .build = build_models},
        {.name = "cache", .quick = false, .build = build_cache},
        {.name = "rows", .quick = false, .build = build_rows},
        {.name = "keys", .quick = false, .build = build_keys},
        {.name = "heads", .quick = false, .build = build_heads},
        {.name = "windows", .quick = false, .build = build_windows},
    };
    *count = sizeof groups / sizeof groups[0];
    return groups;
}
