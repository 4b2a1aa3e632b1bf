/* SPDX-License-Identifier: MIT
 *
 * Options become a prototype: a sequence record that is in no list and holds nothing, with the
 * options as members. What a call does for "a sequence with these options" it does for the
 * prototype. */
#include "runtime/seq_options.h"

#include "base/error.h"
#include "base/sized.h"

static enum pkv_status check_ranges(const struct pkv_seq_options *options, int32_t max_seq_len)
{
    if (options->max_rewind < 0 || options->max_rewind > max_seq_len) {
        return INVALID("max_rewind = %d, outside [0, %d]", options->max_rewind, max_seq_len);
    }
    if (options->max_tokens < 0 || options->max_tokens > max_seq_len) {
        return INVALID("max_tokens = %d, outside [0, %d]", options->max_tokens, max_seq_len);
    }
    if (options->kept_prefix != NULL && *options->kept_prefix < 0) {
        return INVALID("kept_prefix = %lld, below 0", (long long)*options->kept_prefix);
    }
    if (options->priority < 0 || options->priority >= PKV_NUM_PRIORITIES) {
        return INVALID("priority = %d, outside [0, %d)", options->priority, PKV_NUM_PRIORITIES);
    }
    return PKV_OK;
}

enum pkv_status seq_options_check_rewind(const struct pkv_cache_config *config, int32_t max_rewind)
{
    for (int32_t s = 0; s < config_num_states(config); s++) {
        const int32_t g = config->num_groups + s;
        if (max_rewind > config->groups[g].max_rewind) {
            return INVALID("max_rewind = %d, above that of groups[%d], %d", max_rewind, g,
                           config->groups[g].max_rewind);
        }
    }
    return PKV_OK;
}

enum pkv_status seq_options_check(const struct pkv_cache_config *config,
                                  const struct pkv_seq_options *given, struct seq *prototype,
                                  struct namespace_fields *fields)
{
    const int32_t max_seq_len = config->max_seq_len;
    *prototype =
        (struct seq){.max_tokens = max_seq_len, .kept_prefix = -1, .reuse.newest = PREFIX_ROOT};
    fields->count = 0;
    if (given == NULL) {
        return PKV_OK;
    }
    struct pkv_seq_options read;
    const struct pkv_seq_options *options = &read;
    enum pkv_status status = sized_read("options", given, no_publish, &read);
    if (status == PKV_OK) {
        status = check_ranges(options, max_seq_len);
    }
    if (status != PKV_OK) {
        return status;
    }
    status = seq_options_check_rewind(config, options->max_rewind);
    if (status != PKV_OK) {
        return status;
    }
    prototype->tag = options->tag;
    prototype->max_rewind = options->max_rewind;
    prototype->max_tokens = options->max_tokens > 0 ? options->max_tokens : max_seq_len;
    prototype->reuse.priority = options->priority;
    prototype->reuse.retention_ns = options->retention_ns;
    prototype->reuse.no_publish = options->no_publish;
    if (options->kept_prefix != NULL) {
        const int64_t kept = *options->kept_prefix;
        prototype->kept_prefix = kept < max_seq_len ? (int32_t)kept : max_seq_len;
    }
    status = namespace_check(options->namespace_fields, options->num_namespace_fields, fields);
    return status == PKV_OK ? namespace_add_kept_prefix(config, prototype, fields) : status;
}
