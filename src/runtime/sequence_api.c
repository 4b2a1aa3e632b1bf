/* SPDX-License-Identifier: MIT
 *
 * The public calls on whole sequences: created, destroyed, their length. Every call checks
 * everything first and changes something only when nothing can fail any more, so a refusal leaves
 * no trace. */
#include "base/error.h"
#include "runtime/seq_life.h"
#include "runtime/seq_options.h"

enum pkv_status pkv_seq_create(pkv_cache *cache, const struct pkv_seq_options *options,
                               pkv_seq *seq)
{
    if (cache == NULL || seq == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "seq");
    }
    struct seq prototype;
    struct namespace_fields fields;
    enum pkv_status status = seq_options_check(&cache->config, options, &prototype, &fields);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = seq_life_check_room(cache, 1);
    if (status == PKV_OK) {
        status = namespace_join(cache, &fields, &prototype);
    }
    if (status == PKV_OK) {
        *seq = sequence_handle(&cache->seqs, seq_life_claim(cache, &prototype));
    }
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_seq_destroy(pkv_cache *cache, pkv_seq handle)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    cache_lock(cache);
    const struct seq *seq = sequence_find(&cache->seqs, handle);
    if (seq != NULL) {
        seq_life_destroy(cache, sequence_index(&cache->seqs, seq));
    }
    cache_unlock(cache);
    return seq != NULL ? PKV_OK : sequence_refuse_stale(handle);
}

enum pkv_status pkv_seq_destroy_tagged(pkv_cache *cache, uint64_t tag, int32_t *count)
{
    if (cache == NULL || tag == 0) {
        return INVALID(cache == NULL ? "cache is NULL" : "tag is 0");
    }
    int32_t destroyed = 0;
    cache_lock(cache);
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        if (seq->state == SEQ_LIVE && seq->tag == tag) {
            seq_life_destroy(cache, i);
            destroyed++;
        }
    }
    cache_unlock(cache);
    if (count != NULL) {
        *count = destroyed;
    }
    return PKV_OK;
}

enum pkv_status pkv_seq_length(pkv_cache *cache, pkv_seq handle, int32_t *length)
{
    if (cache == NULL || length == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "length");
    }
    cache_lock(cache);
    const struct seq *seq = sequence_find(&cache->seqs, handle);
    if (seq != NULL) {
        *length = seq->length;
    }
    cache_unlock(cache);
    return seq != NULL ? PKV_OK : sequence_refuse_stale(handle);
}
