/* SPDX-License-Identifier: MIT */
#include "model_cache.h"

#include "cached.h"
#include "fingerprint.h"

#include <string.h>

enum { TENANT_FIELD = 1 };

/* Keys and values of one token in all layers. */
static size_t token_bytes(const struct model *model, enum pkv_dtype dtype)
{
    return (size_t)2 * (size_t)model->kv_dim * pkv_dtype_bytes(dtype) * (size_t)model->num_layers;
}

bool model_cache_create(const struct language_model *lm, const struct engine_options *options,
                        const struct tiers *tiers, int32_t max_step_tokens, pkv_cache **cache)
{
    unsigned char fingerprint[FINGERPRINT_BYTES];
    const size_t all = token_bytes(&lm->model, options->dtype) * (size_t)options->max_seq_len *
                       (size_t)options->max_batch;
    const struct pkv_group_config group = {
        .k_dtype = options->dtype,
        .v_dtype = options->dtype,
        .block_size = options->block_size,
    };
    struct pkv_cache_config config = {
        .size = sizeof config,
        .bytes = options->cache_bytes > 0 ? options->cache_bytes : all,
        .max_seqs = options->max_batch,
        .max_seq_len = options->max_seq_len,
        .max_step_tokens = max_step_tokens,
        .num_threads = options->threads,
        .prefix_cache = options->prefix_cache,
        .metrics_label = lm->name,
        .tiers = tiers->list,
        .num_tiers = tiers->count,
        .num_tier_threads = 1,
    };
    if (tiers->count > 0 || options->save_path != NULL) {
        fingerprint_of_model(&lm->model, fingerprint);
        config.fingerprint = fingerprint;
        config.fingerprint_bytes = FINGERPRINT_BYTES;
    }
    return cached_create(&lm->model, &group, &config, cache);
}

struct pkv_seq_options model_cache_seq_options(const struct job_request *request, uint64_t tag,
                                               struct pkv_namespace_field *field)
{
    *field = (struct pkv_namespace_field){
        .tag = TENANT_FIELD, .bytes = request->tenant, .length = (int32_t)strlen(request->tenant)};
    return (struct pkv_seq_options){
        .size = sizeof(struct pkv_seq_options),
        .tag = tag,
        .namespace_fields = field,
        .num_namespace_fields = field->length > 0 ? 1 : 0,
        .priority = request->priority,
    };
}
