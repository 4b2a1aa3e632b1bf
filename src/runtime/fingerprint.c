/* SPDX-License-Identifier: MIT
 *
 * The fingerprint is a chain of hashes: the format's name, then a record of each group, of each
 * layer and of the caller's own bytes, each hashed together with the key before it. */
#include "runtime/fingerprint.h"

#include "base/hash.h"
#include "base/little_endian.h"
#include "runtime/config.h"

#define FINGERPRINT_WORDS 12

/* What a key depends on beside the caller's fingerprint: the format itself, and all that decides
 * what the bytes of a block mean. */
struct fingerprint_words {
    uint64_t words[FINGERPRINT_WORDS - 2];
};

/* Words are little-endian, so that machines agree. */
static struct pkv_block_key chain(struct pkv_block_key before, const struct fingerprint_words *of)
{
    unsigned char bytes[8 * FINGERPRINT_WORDS];
    unsigned char *to = put_u64(put_u64(bytes, before.low), before.high);
    for (size_t i = 0; i < FINGERPRINT_WORDS - 2; i++) {
        to = put_u64(to, of->words[i]);
    }
    return hash_128(bytes, sizeof bytes);
}

static struct fingerprint_words group_words(const struct pkv_group_config *group)
{
    return (struct fingerprint_words){
        .words = {(uint64_t)group->kv_heads, (uint64_t)group->k_width, (uint64_t)group->v_width,
                  group->v_in_k, (uint64_t)group->k_dtype, (uint64_t)group->v_dtype,
                  (uint64_t)group->block_size, (uint64_t)group->sliding_window,
                  (uint64_t)group->kept_prefix}};
}

struct pkv_block_key fingerprint_of(const struct pkv_cache_config *config)
{
    static const char format[] = "pagedkv block 1";
    struct pkv_block_key key = hash_128(format, sizeof format);
    for (int32_t g = 0; g < config->num_groups; g++) {
        const struct pkv_group_config group = config_resolve_group(config, g);
        const struct fingerprint_words words = group_words(&group);
        key = chain(key, &words);
    }
    for (int32_t g = config->num_groups; g < config->num_groups + config_num_states(config); g++) {
        const struct pkv_group_config *group = &config->groups[g];
        const struct fingerprint_words words = {
            .words = {(uint64_t)group->kind, (uint64_t)group->state_bytes}};
        key = chain(key, &words);
    }
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_layer_config *layer = &config->layers[i];
        const struct fingerprint_words words = {
            .words = {(uint64_t)layer->group, layer->shares_kv, (uint64_t)config->dtype}};
        key = chain(key, &words);
    }
    if (config->fingerprint != NULL && config->fingerprint_bytes > 0) {
        const struct pkv_block_key own =
            hash_128(config->fingerprint, (size_t)config->fingerprint_bytes);
        const struct fingerprint_words words = {
            .words = {(uint64_t)config->fingerprint_bytes, own.low, own.high}};
        key = chain(key, &words);
    }
    return key;
}
