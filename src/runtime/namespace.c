/* SPDX-License-Identifier: MIT
 *
 * A sequence with a kept prefix of its own computes other keys and values than its group's others
 * as soon as a window hides tokens from them; so that kept prefix is one more namespace field, of a
 * tag that no caller can pass. */
#include "runtime/namespace.h"

#include "base/error.h"
#include "base/little_endian.h"
#include "prefix/prefix_flush.h"

/* No caller's: those begin at 1. */
#define KEPT_PREFIX_TAG 0

static enum pkv_status check_field(const struct pkv_namespace_field *field)
{
    return field->tag >= 1 ? prefix_field_check(field)
                           : INVALID("namespace field: tag = %d, below 1", field->tag);
}

enum pkv_status namespace_check(const struct pkv_namespace_field *fields, int32_t num_fields,
                                struct namespace_fields *checked)
{
    if (num_fields < 0 || num_fields > PKV_MAX_NAMESPACE_FIELDS ||
        (fields == NULL && num_fields > 0)) {
        return INVALID("num_namespace_fields = %d, fields %s", num_fields,
                       fields == NULL ? "NULL" : "given");
    }
    for (int32_t i = 0; i < num_fields; i++) {
        const enum pkv_status status = check_field(&fields[i]);
        if (status != PKV_OK) {
            return status;
        }
        checked->at[i] = fields[i];
    }
    checked->count = num_fields;
    return PKV_OK;
}

enum pkv_status namespace_check_one(const pkv_cache *cache, const struct pkv_namespace_field *field)
{
    const enum pkv_status status = cache_check_reuse(cache);
    if (status != PKV_OK) {
        return status;
    }
    return field != NULL ? check_field(field) : INVALID("field is NULL");
}

/* In some group with a window the sequence keeps another prefix than the group's. */
static bool has_own_kept_prefix(const struct pkv_cache_config *config, const struct seq *prototype)
{
    for (int32_t g = 0; prototype->kept_prefix >= 0 && g < config->num_groups; g++) {
        const struct pkv_group_config group = config_resolve_group(config, g);
        if (group.sliding_window > 0 && prototype->kept_prefix != group.kept_prefix) {
            return true;
        }
    }
    return false;
}

enum pkv_status namespace_add_kept_prefix(const struct pkv_cache_config *config,
                                          const struct seq *prototype,
                                          struct namespace_fields *fields)
{
    if (!config->prefix_cache || !has_own_kept_prefix(config, prototype)) {
        return PKV_OK;
    }
    if (fields->count == PKV_MAX_NAMESPACE_FIELDS) {
        return INVALID("a kept_prefix of its own takes one of the %d namespace fields",
                       PKV_MAX_NAMESPACE_FIELDS);
    }
    (void)put_u32(fields->kept_bytes, (uint32_t)prototype->kept_prefix);
    fields->at[fields->count++] = (struct pkv_namespace_field){
        .tag = KEPT_PREFIX_TAG, .length = sizeof fields->kept_bytes, .bytes = fields->kept_bytes};
    return PKV_OK;
}

enum pkv_status namespace_join(pkv_cache *cache, const struct namespace_fields *fields,
                               struct seq *prototype)
{
    struct prefix_index *index = cache->reuse.index;
    if (!cache_has_reuse(cache)) {
        return PKV_OK;
    }
    prototype->reuse.epoch = prefix_index_epoch(index);
    return prefix_scope_open(index, fields->at, fields->count, &prototype->reuse.scope);
}

void namespace_leave(pkv_cache *cache, struct seq *seq)
{
    if (cache_has_reuse(cache)) {
        prefix_index_release(cache->reuse.index, seq->reuse.newest);
        prefix_scope_close(cache->reuse.index, &seq->reuse.scope);
        seq->reuse = (struct seq_reuse){.newest = PREFIX_ROOT};
    }
}

enum pkv_status namespace_look_up(pkv_cache *cache, const struct namespace_fields *fields,
                                  struct seq *prototype)
{
    return cache_has_reuse(cache) ? prefix_scope_find(cache->reuse.index, fields->at, fields->count,
                                                      &prototype->reuse.scope)
                                  : PKV_OK;
}
