/* SPDX-License-Identifier: MIT
 *
 * The public call that computes keys without a cache. It checks what a cache of the config would
 * check, and makes fingerprint, namespaces and contents by the functions that a cache makes them
 * by. */
#include "prefix/prefix_keys.h"

#include "base/error.h"
#include "base/minmax.h"
#include "runtime/config_check.h"
#include "runtime/fingerprint.h"
#include "runtime/prompt.h"
#include "runtime/seq_options.h"

static enum pkv_status check_places(const struct pkv_block_key *keys, int32_t max_keys,
                                    const int32_t *count)
{
    if (count == NULL) {
        return INVALID("count is NULL");
    }
    if (max_keys < 0 || (keys == NULL && max_keys > 0)) {
        return INVALID("max_keys = %d, keys %s", max_keys, keys == NULL ? "NULL" : "given");
    }
    return PKV_OK;
}

static enum pkv_status take_config(const struct pkv_cache_config *given,
                                   struct pkv_cache_config *config)
{
    const enum pkv_status status = config_take(given, config);
    if (status != PKV_OK) {
        return status;
    }
    return config->prefix_cache ? PKV_OK
                                : refuse(PKV_UNSUPPORTED, "no prefix_cache, or one beside slots");
}

/* Which fields count in which blocks, the kept prefix of the sequence's own among them. *fields is
 * what they point to. */
static enum pkv_status reach_of(const struct pkv_cache_config *config,
                                const struct pkv_seq_options *options,
                                struct namespace_fields *fields, struct prefix_reach *reach)
{
    struct seq prototype;
    const enum pkv_status status = seq_options_check(config, options, &prototype, fields);
    return status == PKV_OK
               ? prefix_reach_of(fields->at, fields->count, config_node_tokens(config), reach)
               : status;
}

/* At least one key is wanted. */
static enum pkv_status write_keys(const struct pkv_cache_config *config,
                                  const struct prefix_reach *reach, const struct pkv_prompt *prompt,
                                  int32_t num_keys, struct pkv_block_key *keys)
{
    const int32_t block_size = config_node_tokens(config);
    const size_t bytes = prefix_content_bytes(block_size);
    const struct prefix_content_writer writer = {
        .fingerprint = fingerprint_of(config),
        .block_size = block_size,
        .buffer = hooks_alloc_array(&config->hooks, 1, bytes),
    };
    if (writer.buffer == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for the %zu bytes of a block's content", bytes);
    }
    prefix_keys(&writer, reach, prompt->token_ids, prompt->token_extra, num_keys, keys);
    hooks_free_array(&config->hooks, writer.buffer, 1, bytes);
    return PKV_OK;
}

enum pkv_status pkv_prefix_keys(const struct pkv_cache_config *given_config,
                                const struct pkv_seq_options *options,
                                const struct pkv_prompt *given_prompt, int32_t max_keys,
                                struct pkv_block_key *keys, int32_t *count)
{
    struct pkv_cache_config config;
    struct pkv_prompt prompt;
    struct namespace_fields fields;
    struct prefix_reach reach;
    enum pkv_status status = check_places(keys, max_keys, count);
    if (status == PKV_OK) {
        status = take_config(given_config, &config);
    }
    if (status == PKV_OK) {
        status = prompt_take(given_prompt, true, &prompt);
    }
    if (status == PKV_OK) {
        status = reach_of(&config, options, &fields, &reach);
    }
    if (status != PKV_OK) {
        return status;
    }
    const int32_t num_keys = min_i32(prompt.num_tokens / config_node_tokens(&config), max_keys);
    status = num_keys > 0 ? write_keys(&config, &reach, &prompt, num_keys, keys) : PKV_OK;
    if (status == PKV_OK) {
        *count = num_keys;
    }
    return status;
}
