/* SPDX-License-Identifier: MIT
 *
 * Names and numbers have the same order, each in one place: what is a number here has its name in
 * the tables. */
#include "runtime/save_geometry.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "base/minmax.h"

static const char *const names[] = {"num_groups", "num_layers", "dtype"};
static const char *const group_names[] = {"storage",        "kv_heads",   "k_width", "v_width",
                                          "v_in_k",         "k_dtype",    "v_dtype", "block_size",
                                          "sliding_window", "kept_prefix"};
static const char *const layer_names[] = {"group",   "shares_kv", "kv_layer", "k_scale",
                                          "v_scale", "rope",      "k_norm"};

enum {
    NUM_FIRST = sizeof names / sizeof names[0],
    NUM_GROUP = sizeof group_names / sizeof group_names[0],
    NUM_LAYER = sizeof layer_names / sizeof layer_names[0],
    FIRST_HASH = 3, /* of a layer's: the rest has no value that tells a reader anything */
    NUM_LAST = 2,
    STORAGE_STATES = 2
};

static uint64_t *put_group(uint64_t *to, const struct pkv_group_config *group)
{
    *to++ = group->storage;
    *to++ = (uint64_t)group->kv_heads;
    *to++ = (uint64_t)group->k_width;
    *to++ = (uint64_t)group->v_width;
    *to++ = group->v_in_k;
    *to++ = group->k_dtype;
    *to++ = group->v_dtype;
    *to++ = (uint64_t)group->block_size;
    *to++ = (uint64_t)group->sliding_window;
    *to++ = (uint64_t)group->kept_prefix;
    return to;
}

static uint64_t *put_states(uint64_t *to, const struct pkv_group_config *group)
{
    *to++ = STORAGE_STATES;
    *to++ = group->state_bytes;
    for (int i = 2; i < NUM_GROUP; i++) {
        *to++ = 0;
    }
    return to;
}

static uint64_t hash_floats(const float *values, int32_t count)
{
    return values != NULL ? hash_64(values, (size_t)count * sizeof *values) : 0;
}

/* What rotates keys at positions [0, length). */
static uint64_t hash_rope(const struct pkv_attn_constants *of, int32_t length)
{
    if (of->rope_cos == NULL) {
        return 0;
    }
    const uint64_t words[] = {of->rope_dtype, (uint64_t)of->rope_width, (uint64_t)of->rotary_offset,
                              of->rotary_mode};
    const size_t num_rows = (size_t)min_i64(length, of->rope_positions);
    const size_t bytes = num_rows * (size_t)of->rope_width * pkv_dtype_bytes(of->rope_dtype);
    struct hash_stream stream;
    hash_begin(&stream);
    hash_add(&stream, words, sizeof words);
    hash_add(&stream, of->rope_cos, bytes);
    hash_add(&stream, of->rope_sin, bytes);
    return hash_end(&stream);
}

static uint64_t hash_k_norm(const struct pkv_attn_constants *of)
{
    if (of->k_norm_gain == NULL) {
        return 0;
    }
    const uint64_t words[] = {of->k_norm_gain_dtype, of->norm_order};
    struct hash_stream stream;
    hash_begin(&stream);
    hash_add(&stream, words, sizeof words);
    hash_add(&stream, &of->qk_norm_eps, sizeof of->qk_norm_eps);
    hash_add(&stream, of->k_norm_gain,
             (size_t)of->k_norm_gain_count * pkv_dtype_bytes(of->k_norm_gain_dtype));
    return hash_end(&stream);
}

/* Layers of a model mostly rotate alike: their table is hashed once. */
static bool rotate_alike(const struct pkv_attn_constants *a, const struct pkv_attn_constants *b)
{
    return a->rope_cos == b->rope_cos && a->rope_sin == b->rope_sin &&
           a->rope_dtype == b->rope_dtype && a->rope_width == b->rope_width &&
           a->rope_positions == b->rope_positions && a->rotary_offset == b->rotary_offset &&
           a->rotary_mode == b->rotary_mode;
}

/* The last layer with keys and its hash. */
struct rotation {
    const struct pkv_attn_constants *of; /* NULL: none yet */
    uint64_t hash;
};

static uint64_t *put_layer(uint64_t *to, const struct pkv_layer_config *layer,
                           struct rotation *before, int32_t length)
{
    const struct pkv_attn_constants *of = &layer->constants;
    const bool is_same = before->of != NULL && rotate_alike(of, before->of);
    const uint64_t rope = is_same ? before->hash : hash_rope(of, length);
    *before = (struct rotation){of, rope};
    *to++ = (uint64_t)layer->group;
    *to++ = layer->shares_kv;
    *to++ = (uint64_t)layer->kv_layer;
    *to++ = hash_floats(of->k_scale, of->k_scale_count);
    *to++ = hash_floats(of->v_scale, of->v_scale_count);
    *to++ = rope;
    *to++ = hash_k_norm(of);
    return to;
}

/* Layer i, of which nothing else is read. */
static uint64_t *put_state_layer(uint64_t *to, const struct pkv_layer_config *layer, int32_t i)
{
    *to++ = (uint64_t)layer->group;
    *to++ = 0;
    *to++ = (uint64_t)i;
    for (int n = FIRST_HASH; n < NUM_LAYER; n++) {
        *to++ = 0;
    }
    return to;
}

static void fill(const pkv_cache *cache, int32_t length, const struct save_geometry *of)
{
    const struct pkv_cache_config *config = &cache->config;
    uint64_t *to = of->words;
    struct rotation before = {0};
    *to++ = (uint64_t)cache_num_groups(cache);
    *to++ = (uint64_t)config->num_layers;
    *to++ = config->dtype;
    for (int32_t g = 0; g < config->num_groups; g++) {
        to = put_group(to, &config->groups[g]);
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        to = put_states(to, cache->states[s].config);
    }
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_layer_config *layer = &config->layers[i];
        to = layer->group < config->num_groups ? put_layer(to, layer, &before, length)
                                               : put_state_layer(to, layer, i);
    }
    *to++ = cache->fingerprint.low;
    *to++ = cache->fingerprint.high;
    unsigned char *bytes = of->bytes;
    for (size_t i = 0; i < of->num_words; i++) {
        bytes = put_u64(bytes, of->words[i]);
    }
}

enum pkv_status save_geometry_make(pkv_cache *cache, int32_t length, struct save_geometry *of)
{
    const size_t num_words = NUM_FIRST + NUM_GROUP * (size_t)cache_num_groups(cache) +
                             NUM_LAYER * (size_t)cache->config.num_layers + NUM_LAST;
    *of = (struct save_geometry){.hooks = &cache->mem.routed, .num_words = num_words};
    of->words = hooks_alloc_array(of->hooks, num_words, 2 * sizeof *of->words);
    if (of->words == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for the geometry of %d layers",
                      cache->config.num_layers);
    }
    of->bytes = (unsigned char *)(of->words + num_words);
    fill(cache, length, of);
    return PKV_OK;
}

void save_geometry_free(struct save_geometry *of)
{
    if (of->words != NULL) {
        hooks_free_array(of->hooks, of->words, of->num_words, 2 * sizeof *of->words);
    }
}

/* The first number of a file that differs. */
struct difference {
    const struct save_geometry *of;
    size_t num_seen;
    bool is_found;
    size_t at;
    uint64_t value;
};

static void compare(void *context, const unsigned char *bytes, size_t n)
{
    struct difference *found = context;
    for (size_t i = 0; i < n / sizeof(uint64_t) && !found->is_found; i++) {
        const size_t at = found->num_seen + i;
        const uint64_t value = get_u64(bytes + i * sizeof value);
        if (at < found->of->num_words && value != found->of->words[at]) {
            *found = (struct difference){found->of, found->num_seen, true, at, value};
        }
    }
    found->num_seen += n / sizeof(uint64_t);
}

static enum pkv_status refuse_word(const struct difference *found, const char *prefix,
                                   int64_t index, const char *name, bool has_value)
{
    char where[32] = "";
    if (index >= 0) {
        snprintf(where, sizeof where, "%s[%lld].", prefix, (long long)index);
    }
    return has_value ? INVALID("%s%s is %lld in the file and %lld in this cache", where, name,
                               (long long)found->value, (long long)found->of->words[found->at])
                     : INVALID("%s%s is not what it was when the file was saved", where, name);
}

static enum pkv_status refuse_difference(const struct difference *found)
{
    const uint64_t num_groups = found->of->words[0];
    const uint64_t num_layers = found->of->words[1];
    if (found->at < NUM_FIRST) {
        return refuse_word(found, "", -1, names[found->at], true);
    }
    size_t at = found->at - NUM_FIRST;
    if (at < NUM_GROUP * num_groups) {
        const size_t first = NUM_FIRST + at / NUM_GROUP * NUM_GROUP;
        const bool is_state = found->of->words[first] == STORAGE_STATES && at % NUM_GROUP == 1;
        return refuse_word(found, "groups", (int64_t)(at / NUM_GROUP),
                           is_state ? "state_bytes" : group_names[at % NUM_GROUP], true);
    }
    at -= NUM_GROUP * num_groups;
    if (at < NUM_LAYER * num_layers) {
        return refuse_word(found, "layers", (int64_t)(at / NUM_LAYER), layer_names[at % NUM_LAYER],
                           at % NUM_LAYER < FIRST_HASH);
    }
    return refuse_word(found, "", -1, "fingerprint", false);
}

enum pkv_status save_geometry_check(const struct save_geometry *of, struct saved_reader *reader,
                                    struct saved_section *section)
{
    struct difference found = {.of = of};
    const enum pkv_status status = saved_skim(reader, section, compare, &found);
    if (status != PKV_OK) {
        return status;
    }
    if (found.is_found) {
        return refuse_difference(&found);
    }
    return section->length == save_geometry_bytes(of)
               ? PKV_OK
               : refuse(PKV_CORRUPT, "section geometry at offset %llu: %llu bytes",
                        (unsigned long long)section->offset, (unsigned long long)section->length);
}
