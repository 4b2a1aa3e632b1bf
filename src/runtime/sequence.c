/* SPDX-License-Identifier: MIT
 *
 * The life of a sequence: claimed, admitted (admit.c), filled by steps, forked, shortened,
 * released. Every call checks everything first and changes something only when nothing can fail any
 * more, so a refusal leaves no trace. Free indices form a stack inside the records.
 *
 * A sequence of the open step is busy; only destroying it is allowed, and then its blocks wait for
 * the step's end (SEQ_DYING), because attention still reads them. */
#include "runtime/sequence.h"

#include "base/error.h"
#include "runtime/blocks.h"
#include "runtime/handle.h"
#include "runtime/quota.h"
#include "runtime/seq_table.h"

static pkv_seq handle_of(const pkv_cache *cache, int32_t index)
{
    return (pkv_seq){handle_make(cache->seqs[index].generation, index)};
}

struct seq *sequence_find(pkv_cache *cache, pkv_seq handle)
{
    const uint64_t index = handle.id & HANDLE_INDEX_MASK;
    if (index >= (uint64_t)cache->config.max_seqs) {
        return NULL;
    }
    struct seq *seq = &cache->seqs[index];
    const bool is_live = seq->state == SEQ_LIVE;
    return is_live && handle_of(cache, (int32_t)index).id == handle.id ? seq : NULL;
}

static enum pkv_status refuse_stale(pkv_seq handle)
{
    return refuse(PKV_STALE_HANDLE, "sequence %016llx is stale", (unsigned long long)handle.id);
}

enum pkv_status sequence_find_idle(pkv_cache *cache, pkv_seq handle, struct seq **seq)
{
    struct seq *found = sequence_find(cache, handle);
    if (found == NULL) {
        return refuse_stale(handle);
    }
    if (found->in_step) {
        return refuse(PKV_BUSY, "sequence %016llx is in the open step",
                      (unsigned long long)handle.id);
    }
    *seq = found;
    return PKV_OK;
}

static void release_slot(pkv_cache *cache, struct group *group, int32_t index)
{
    struct seq_table *table = &group->seq_tables[index];
    const enum pkv_status status = pkv_slots_release(group->slots, table->slot);
    pkv_assert(status == PKV_OK);
    (void)status;
    blocks_scrub(cache, group, table->row);
}

void sequence_release(pkv_cache *cache, int32_t index)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_shrink(cache, group, index, 0);
        } else {
            release_slot(cache, group, index);
        }
    }
    struct seq *seq = &cache->seqs[index];
    quota_settle(cache, index);
    prefix_leave(cache, seq);
    seq->state = SEQ_FREE;
    seq->in_step = false;
    seq->next_free = cache->first_free_seq;
    cache->first_free_seq = index;
    cache->num_free_seqs++;
}

/* A slot in every continuous group. There are as many slots as sequences, and a sequence gives its
 * own back with its index, so a free index finds one. */
static void claim_slot(struct group *group, int32_t index)
{
    struct seq_table *table = &group->seq_tables[index];
    enum pkv_status status = pkv_slots_claim(group->slots, &table->slot);
    if (status == PKV_OK) {
        status = pkv_slots_id(group->slots, table->slot, &table->row);
    }
    pkv_assert(status == PKV_OK);
    (void)status;
}

/* An empty sequence with the options of `model`, which hands its namespaces over. There must be a
 * free index. */
static int32_t claim(pkv_cache *cache, const struct seq *model)
{
    const int32_t index = cache->first_free_seq;
    struct seq *seq = &cache->seqs[index];
    cache->first_free_seq = seq->next_free;
    cache->num_free_seqs--;
    seq->state = SEQ_LIVE;
    seq->tag = model->tag;
    seq->max_rewind = model->max_rewind;
    seq->kept_prefix = model->kept_prefix;
    seq->length = 0;
    seq->next_free = NO_SEQ;
    seq->prefix = (struct seq_prefix){
        .scope = model->prefix.scope,
        .newest = PREFIX_ROOT,
        .epoch = model->prefix.epoch,
        .priority = model->prefix.priority,
        .no_publish = model->prefix.no_publish,
    };
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_reset(group, index, group_kept_prefix(group, seq));
        } else {
            claim_slot(group, index);
        }
    }
    return index;
}

enum pkv_status sequence_check_options(const pkv_cache *cache,
                                       const struct pkv_seq_options *options, struct seq *model,
                                       struct prefix_name *name)
{
    const int32_t max_seq_len = cache->config.max_seq_len;
    *model = (struct seq){.kept_prefix = -1, .prefix.newest = PREFIX_ROOT};
    name->count = 0;
    if (options == NULL) {
        return PKV_OK;
    }
    if (options->size != sizeof *options) {
        return refuse(PKV_INVALID_ARGUMENT, "options->size = %zu, not %zu", options->size,
                      sizeof *options);
    }
    if (options->max_rewind < 0 || options->max_rewind > max_seq_len) {
        return refuse(PKV_INVALID_ARGUMENT, "max_rewind = %d, outside [0, %d]", options->max_rewind,
                      max_seq_len);
    }
    if (options->kept_prefix != NULL && *options->kept_prefix < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "kept_prefix = %lld, below 0",
                      (long long)*options->kept_prefix);
    }
    if (options->priority < 0 || options->priority >= PKV_NUM_PRIORITIES) {
        return refuse(PKV_INVALID_ARGUMENT, "priority = %d, outside [0, %d)", options->priority,
                      PKV_NUM_PRIORITIES);
    }
    model->tag = options->tag;
    model->max_rewind = options->max_rewind;
    model->prefix.priority = options->priority;
    model->prefix.no_publish = options->no_publish;
    if (options->kept_prefix != NULL) {
        const int64_t kept = *options->kept_prefix;
        model->kept_prefix = kept < max_seq_len ? (int32_t)kept : max_seq_len;
    }
    const enum pkv_status status =
        prefix_name_of(options->namespace_fields, options->num_namespace_fields, name);
    return status == PKV_OK ? prefix_name_kept(cache, model, name) : status;
}

static enum pkv_status check_room(const pkv_cache *cache, int32_t count)
{
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    if (cache->num_free_seqs < count) {
        return refuse(PKV_NO_BLOCKS, "%d sequences asked for, %d of max_seqs = %d are left", count,
                      cache->num_free_seqs, cache->config.max_seqs);
    }
    return PKV_OK;
}

enum pkv_status pkv_seq_create(pkv_cache *cache, const struct pkv_seq_options *options,
                               pkv_seq *seq)
{
    if (cache == NULL || seq == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "seq");
    }
    struct seq model;
    struct prefix_name name;
    enum pkv_status status = sequence_check_options(cache, options, &model, &name);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status = check_room(cache, 1);
    if (status == PKV_OK) {
        status = prefix_join(cache, &name, &model);
    }
    if (status == PKV_OK) {
        *seq = handle_of(cache, claim(cache, &model));
    }
    cache_unlock(cache);
    return status;
}

static void destroy(pkv_cache *cache, struct seq *seq)
{
    seq->generation = handle_next_generation(seq->generation);
    if (seq->in_step) {
        seq->state = SEQ_DYING;
    } else {
        sequence_release(cache, sequence_index(cache, seq));
    }
}

enum pkv_status pkv_seq_destroy(pkv_cache *cache, pkv_seq handle)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    cache_lock(cache);
    struct seq *seq = sequence_find(cache, handle);
    if (seq != NULL) {
        destroy(cache, seq);
    }
    cache_unlock(cache);
    return seq != NULL ? PKV_OK : refuse_stale(handle);
}

enum pkv_status pkv_seq_destroy_tagged(pkv_cache *cache, uint64_t tag, int32_t *count)
{
    if (cache == NULL || tag == 0) {
        return refuse(PKV_INVALID_ARGUMENT, cache == NULL ? "cache is NULL" : "tag is 0");
    }
    int32_t destroyed = 0;
    cache_lock(cache);
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        struct seq *seq = &cache->seqs[i];
        if (seq->state == SEQ_LIVE && seq->tag == tag) {
            destroy(cache, seq);
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
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "length");
    }
    cache_lock(cache);
    const struct seq *seq = sequence_find(cache, handle);
    if (seq != NULL) {
        *length = seq->length;
    }
    cache_unlock(cache);
    return seq != NULL ? PKV_OK : refuse_stale(handle);
}

/* Every key that a query at `length` sees is there, in every group. */
static enum pkv_status check_resident(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t possible = length;
    int32_t before;
    /* A length that suits one group may fall into another's hole: go on until none objects. Each
     * group moves it at most once. */
    do {
        before = possible;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct group *group = &cache->groups[g];
            if (group_is_paged(group)) {
                possible = seq_table_next_resident(group, index, possible);
            }
        }
    } while (possible != before);
    if (possible != length) {
        return refuse(PKV_NOT_RESIDENT,
                      "keys that a query at %d sees were given back; the shortest possible length "
                      "is %d, or 0",
                      length, possible);
    }
    return PKV_OK;
}

static bool has_continuous_group(const pkv_cache *cache)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (!group_is_paged(&cache->groups[g])) {
            return true;
        }
    }
    return false;
}

static enum pkv_status fork_seq(pkv_cache *cache, pkv_seq handle, int32_t at, int32_t n,
                                pkv_seq *children)
{
    struct seq *parent = NULL;
    enum pkv_status status = sequence_find_idle(cache, handle, &parent);
    if (status != PKV_OK) {
        return status;
    }
    if (at < 0 || at > parent->length) {
        return refuse(PKV_INVALID_ARGUMENT, "at = %d, outside [0, %d]", at, parent->length);
    }
    if (has_continuous_group(cache)) {
        return refuse(PKV_UNSUPPORTED, "a sequence with continuous rows cannot be forked");
    }
    const int32_t index = sequence_index(cache, parent);
    status = at > 0 ? check_resident(cache, index, at) : PKV_OK;
    if (status == PKV_OK) {
        status = check_room(cache, n);
    }
    for (int32_t i = 0; status == PKV_OK && i < n; i++) {
        if (cache_has_prefix(cache)) {
            prefix_scope_share(cache->prefix.index, &parent->prefix.scope);
        }
        const int32_t child = claim(cache, parent);
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            seq_table_fork(&cache->groups[g], index, child, at, parent->length);
        }
        cache->seqs[child].length = at;
        prefix_fork(cache, index, child, at);
        quota_settle(cache, child);
        children[i] = handle_of(cache, child);
    }
    return status;
}

enum pkv_status pkv_seq_fork(pkv_cache *cache, pkv_seq seq, int32_t at, int32_t n,
                             pkv_seq *children)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    if (n < 0 || (n > 0 && children == NULL)) {
        return refuse(PKV_INVALID_ARGUMENT, "n = %d, children %s", n,
                      children == NULL ? "NULL" : "given");
    }
    cache_lock(cache);
    const enum pkv_status status = fork_seq(cache, seq, at, n, children);
    cache_unlock(cache);
    return status;
}

static enum pkv_status truncate_seq(pkv_cache *cache, pkv_seq handle, int32_t length)
{
    struct seq *seq = NULL;
    enum pkv_status status = sequence_find_idle(cache, handle, &seq);
    if (status != PKV_OK) {
        return status;
    }
    if (length < 0 || length > seq->length) {
        return refuse(PKV_INVALID_ARGUMENT, "length = %d, outside [0, %d]", length, seq->length);
    }
    const int32_t index = sequence_index(cache, seq);
    status = length > 0 ? check_resident(cache, index, length) : PKV_OK;
    if (status != PKV_OK) {
        return status;
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_cut(cache, group, index, length);
        }
    }
    seq->length = length;
    prefix_cut(cache, index, length);
    quota_settle(cache, index);
    return PKV_OK;
}

enum pkv_status pkv_seq_truncate(pkv_cache *cache, pkv_seq seq, int32_t length)
{
    if (cache == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "cache is NULL");
    }
    cache_lock(cache);
    const enum pkv_status status = truncate_seq(cache, seq, length);
    cache_unlock(cache);
    return status;
}
