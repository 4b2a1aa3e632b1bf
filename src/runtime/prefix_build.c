/* SPDX-License-Identifier: MIT
 *
 * Building the prefix cache's side of a cache: the fingerprint that enters every key, the index
 * over the groups' pools, and address space for the sequences' tokens. Sizes come from the very
 * same configuration that create uses. */
#include "base/checked.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "prefix/prefix_hash.h"
#include "runtime/config.h"
#include "runtime/events.h"
#include "runtime/prefix.h"
#include "runtime/sequence.h"

#define FINGERPRINT_WORDS 12

/* What a key depends on beside the caller's fingerprint: the format itself, and all that decides
 * what the bytes of a block mean. */
struct fingerprint_words {
    uint64_t words[FINGERPRINT_WORDS - 2];
};

/* Words are little-endian, so that machines agree. */
static struct prefix_key chain(struct prefix_key before, const struct fingerprint_words *of)
{
    unsigned char bytes[8 * FINGERPRINT_WORDS];
    unsigned char *to = put_u64(put_u64(bytes, before.low), before.high);
    for (size_t i = 0; i < FINGERPRINT_WORDS - 2; i++) {
        to = put_u64(to, of->words[i]);
    }
    return prefix_hash_bytes(bytes, sizeof bytes);
}

static struct fingerprint_words group_words(const struct pkv_group_config *group)
{
    const int32_t v_width = group->v_width != 0 ? group->v_width : group->k_width;
    return (struct fingerprint_words){
        .words = {(uint64_t)group->kv_heads, (uint64_t)group->k_width, (uint64_t)v_width,
                  group->v_in_k, (uint64_t)group->k_dtype,
                  (uint64_t)(group->v_in_k ? group->k_dtype : group->v_dtype),
                  (uint64_t)group->block_size, (uint64_t)group->sliding_window,
                  (uint64_t)group->kept_prefix}};
}

static struct prefix_key fingerprint_of(const struct pkv_cache_config *config)
{
    static const char format[] = "pagedkv block 1";
    struct prefix_key key = prefix_hash_bytes(format, sizeof format);
    for (int32_t g = 0; g < config->num_groups; g++) {
        const struct fingerprint_words words = group_words(&config->groups[g]);
        key = chain(key, &words);
    }
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_layer_config *layer = &config->layers[i];
        const struct fingerprint_words words = {
            .words = {(uint64_t)layer->group, layer->shares_kv, (uint64_t)config->dtype}};
        key = chain(key, &words);
    }
    if (config->fingerprint_bytes > 0) {
        const struct prefix_key own =
            prefix_hash_bytes(config->fingerprint, (size_t)config->fingerprint_bytes);
        const struct fingerprint_words words = {
            .words = {(uint64_t)config->fingerprint_bytes, own.low, own.high}};
        key = chain(key, &words);
    }
    return key;
}

static struct prefix_config index_config(const struct pkv_cache_config *config)
{
    return (struct prefix_config){
        .block_size = config->groups[0].block_size,
        .num_groups = config->num_groups,
        .num_nodes = config->num_index_nodes,
        .max_namespaces = config->max_namespaces,
        .masked_key_bits = config->masked_hash_bits,
    };
}

/* Bytes of one entry of entry_bytes for every token of every sequence. */
static bool token_bytes_of(const struct pkv_cache_config *config, size_t entry_bytes, size_t *bytes)
{
    const size_t stride = config_row_stride(config->max_seq_len, entry_bytes);
    return checked_mul((size_t)config->max_seqs, stride, bytes) &&
           checked_mul(*bytes, entry_bytes, bytes);
}

enum pkv_status prefix_size_of(const struct pkv_cache_config *config, const int32_t *num_blocks,
                               struct pkv_cache_sizes *sizes)
{
    struct prefix_sizes of_index;
    const struct prefix_config of = index_config(config);
    int64_t all_blocks = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        all_blocks += num_blocks[g];
    }
    /* With fewer, an index full of old nodes would keep new ones out until the pools fill up. */
    if (config->num_index_nodes != 0 && config->num_index_nodes < all_blocks) {
        return refuse(PKV_INVALID_ARGUMENT, "num_index_nodes = %d, below the %lld blocks there are",
                      config->num_index_nodes, (long long)all_blocks);
    }
    const enum pkv_status status = prefix_index_size(&of, num_blocks, &of_index);
    if (status != PKV_OK) {
        return status;
    }
    size_t tokens = 0;
    size_t extra = 0;
    const bool fits =
        token_bytes_of(config, sizeof(int32_t), &tokens) &&
        token_bytes_of(config, sizeof(uint64_t), &extra) && checked_add(tokens, extra, &tokens) &&
        checked_add(tokens, of_index.mapped_bytes, &tokens) &&
        checked_add(sizes->table_bytes, tokens, &sizes->table_bytes) &&
        checked_add(sizes->metadata_bytes, of_index.metadata_bytes, &sizes->metadata_bytes);
    return fits ? PKV_OK : refuse(PKV_INVALID_ARGUMENT, "the prefix cache overflows size_t");
}

static enum pkv_status map_tokens(pkv_cache *cache)
{
    struct prefix_cache *prefix = &cache->prefix;
    const int32_t max_seq_len = cache->config.max_seq_len;
    size_t tokens = 0;
    size_t extra = 0;
    if (!token_bytes_of(&cache->config, sizeof(int32_t), &tokens) ||
        !token_bytes_of(&cache->config, sizeof(uint64_t), &extra)) {
        return refuse(PKV_INVALID_ARGUMENT, "the sequences' tokens overflow size_t");
    }
    prefix->token_stride = config_row_stride(max_seq_len, sizeof(int32_t));
    prefix->token_bytes = tokens;
    prefix->tokens = mem_map(&cache->mem.routed, tokens);
    prefix->extra_stride = config_row_stride(max_seq_len, sizeof(uint64_t));
    prefix->extra_bytes = extra;
    prefix->extra = mem_map(&cache->mem.routed, extra);
    return prefix->tokens != NULL && prefix->extra != NULL
               ? PKV_OK
               : refuse(PKV_NO_MEMORY, "no memory for %zu bytes of tokens", tokens + extra);
}

enum pkv_status prefix_build(pkv_cache *cache)
{
    struct prefix_cache *prefix = &cache->prefix;
    if (!cache->config.prefix_cache) {
        return PKV_OK;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        prefix->pools[g] = cache->groups[g].pool;
    }
    prefix->block_size = cache->groups[0].config->block_size;
    prefix->soonest_ns = UINT64_MAX;
    prefix->first_free_pin = cache->config.max_pinned_blocks > 0 ? 0 : NO_BLOCK;
    for (int32_t i = 0; i < cache->config.max_pinned_blocks; i++) {
        prefix->pins[i].generation = cache->step.generation;
        prefix->pins[i].next_free = i + 1 < cache->config.max_pinned_blocks ? i + 1 : NO_BLOCK;
    }
    prefix->events.capacity = cache->config.num_events;
    prefix->events.first = 1;
    prefix->events.next = 1;
    struct prefix_config of = index_config(&cache->config);
    of.pools = prefix->pools;
    of.fingerprint = fingerprint_of(&cache->config);
    of.seed = cache->step.generation;
    of.observer = events_observe;
    of.observer_context = cache;
    const size_t before = cache->mem.bytes_used + cache->mem.bytes_mapped;
    enum pkv_status status = map_tokens(cache);
    if (status == PKV_OK) {
        status = prefix_index_create(&of, &cache->mem.routed, &prefix->index);
    }
    cache->config.fingerprint = NULL; /* the caller's */
    prefix->index_bytes = cache->mem.bytes_used + cache->mem.bytes_mapped - before;
    return status;
}

void prefix_free(pkv_cache *cache)
{
    struct prefix_cache *prefix = &cache->prefix;
    prefix_index_destroy(prefix->index);
    mem_unmap(&cache->mem.routed, prefix->tokens, prefix->token_bytes);
    mem_unmap(&cache->mem.routed, prefix->extra, prefix->extra_bytes);
}
