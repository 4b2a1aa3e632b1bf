/* SPDX-License-Identifier: MIT
 *
 * A sequence is loaded in four parts: the input is verified as a whole (load_plan); under the mutex
 * a record and blocks are taken, by a sequence that no call can see; with no lock its cells are
 * read into the blocks, and verified again; under the mutex it becomes live and is published, or
 * everything is undone. */
#include "pagedkv/save.h"

#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "pages/saved_file.h"
#include "pages/saved_spool.h"
#include "runtime/admission.h"
#include "runtime/load_plan.h"
#include "runtime/publish.h"
#include "runtime/save_states.h"
#include "runtime/seq_life.h"
#include "runtime/shortage.h"

static enum pkv_status judge_states(const pkv_cache *cache, const struct state_group *states,
                                    const struct load_states *of, enum pkv_status before,
                                    struct pkv_shortage *shortage)
{
    const struct shortage_demand demand = {
        .row = SHORTAGE_NO_ROW,
        .group = states->index,
        .total = of->count,
        .more = of->count,
        .limit = admission_limit(cache, states->index),
        .available = admission_available(cache, states->index),
    };
    const enum pkv_status status = shortage_judge(before, &demand, shortage);
    if (status != before) {
        shortage->evictable = min_i32(block_num_cached(&states->blocks), (int32_t)demand.available);
    }
    return status;
}

/* Blocks of all groups together, and the verdict on them. The mutex is held. */
static enum pkv_status judge(const pkv_cache *cache, const struct load_plan *plan,
                             struct pkv_shortage *shortage)
{
    const struct quota quota = quota_of_fields(cache, plan->fields.at, plan->fields.count);
    enum pkv_status status = PKV_OK;
    int64_t num_blocks = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        if (!group_is_paged(group)) {
            continue;
        }
        const int32_t wanted = payload_num_blocks(&plan->groups[g].extent);
        const struct shortage_demand demand = {
            .row = SHORTAGE_NO_ROW,
            .group = g,
            .total = wanted,
            .more = wanted,
            .limit = admission_limit(cache, g),
            .available = admission_available(cache, g),
        };
        const enum pkv_status before = status;
        status = shortage_judge(before, &demand, shortage);
        if (status != before) {
            shortage->evictable =
                min_i32(block_num_cached(&group->blocks), (int32_t)demand.available);
        }
        num_blocks += wanted;
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        status = judge_states(cache, &cache->states[s], &plan->states[s], status, shortage);
    }
    status = quota_judge(status, &quota, SHORTAGE_NO_ROW, num_blocks, num_blocks, shortage);
    return status == PKV_OK ? PKV_OK : shortage_refuse(&cache->config, status, shortage);
}

/* A record and blocks for what is planned. The mutex is held. */
static enum pkv_status take(pkv_cache *cache, struct load_plan *plan, int32_t *index,
                            struct pkv_shortage *shortage)
{
    enum pkv_status status = seq_life_check_room(cache, 1);
    if (status == PKV_OK) {
        status = judge(cache, plan, shortage);
    }
    if (status == PKV_OK) {
        status = namespace_join(cache, &plan->fields, &plan->prototype);
    }
    if (status != PKV_OK) {
        return status;
    }
    *index = seq_life_claim_hidden(cache, &plan->prototype);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            const struct payload_extent *extent = &plan->groups[g].extent;
            seq_table_restore(&group->tables, *index, extent->hole_end, extent->end);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_restore(&cache->states[s], *index, plan->states[s].lengths,
                           plan->states[s].count);
    }
    cache->seqs.at[*index].length = plan->prototype.length;
    quota_settle(cache, *index);
    return PKV_OK;
}

/* What a visit of the payload reads, and what came of it. */
struct fill {
    struct saved_fetch fetch;
    enum pkv_status status;
};

static bool fetch_piece(void *context, void *bytes, size_t n)
{
    struct fill *fill = context;
    fill->status = saved_fetch(&fill->fetch, bytes, n);
    return fill->status == PKV_OK;
}

/* Reads a section to one place; nothing for none. */
static enum pkv_status fetch_section(const struct saved_source *source,
                                     const struct saved_section *section, void *to)
{
    struct saved_fetch fetch;
    saved_fetch_begin(&fetch, source, section);
    const enum pkv_status status = saved_fetch(&fetch, to, (size_t)section->length);
    return status == PKV_OK ? saved_fetch_end(&fetch) : status;
}

static enum pkv_status fill_tokens(pkv_cache *cache, const struct load_plan *plan,
                                   const struct saved_source *source, int32_t index)
{
    struct seq *seq = &cache->seqs.at[index];
    struct seq_tokens_rows *rows = &cache->reuse.tokens;
    if (!cache_has_reuse(cache) || plan->tokens.kind == 0) {
        return PKV_OK;
    }
    enum pkv_status status = fetch_section(source, &plan->tokens, seq_tokens_ids(rows, index));
    if (status == PKV_OK && plan->extra.kind != 0) {
        status = fetch_section(source, &plan->extra, seq_tokens_extra(rows, index));
    }
    seq->tokens = (struct seq_tokens){.num_known = plan->prototype.length,
                                      .has_extra = plan->extra.kind != 0};
    return status;
}

static enum pkv_status fill_group(pkv_cache *cache, const struct load_plan *plan,
                                  const struct saved_source *source, int32_t index, int32_t g)
{
    const struct load_group *of = &plan->groups[g];
    struct fill fill = {.status = PKV_OK};
    saved_fetch_begin(&fill.fetch, source, &of->payload);
    (void)payload_visit(&cache->groups[g], index, &of->extent, plan->prototype.length, fetch_piece,
                        &fill);
    return fill.status == PKV_OK ? saved_fetch_end(&fill.fetch) : fill.status;
}

static enum pkv_status fill_states(const struct state_group *states, const struct load_states *of,
                                   const struct saved_source *source, int32_t index)
{
    struct fill fill = {.status = PKV_OK};
    uint64_t length; /* of the plan */
    saved_fetch_begin(&fill.fetch, source, &of->section);
    for (int32_t i = 0; fill.status == PKV_OK && i < of->count; i++) {
        fill.status = saved_fetch(&fill.fetch, &length, sizeof length);
    }
    if (fill.status == PKV_OK) {
        (void)save_states_visit(states, index, fetch_piece, &fill);
    }
    return fill.status == PKV_OK ? saved_fetch_end(&fill.fetch) : fill.status;
}

/* The second pass. The sequence is hidden, so its rows and blocks are this thread's. */
static enum pkv_status fill(pkv_cache *cache, const struct load_plan *plan,
                            const struct saved_source *source, int32_t index)
{
    enum pkv_status status = fill_tokens(cache, plan, source, index);
    for (int32_t g = 0; status == PKV_OK && g < cache->config.num_groups; g++) {
        status = fill_group(cache, plan, source, index, g);
    }
    for (int32_t s = 0; status == PKV_OK && s < cache->num_states; s++) {
        status = fill_states(&cache->states[s], &plan->states[s], source, index);
    }
    return status;
}

/* As after a commit of all its tokens. The mutex is held. */
static void publish(pkv_cache *cache, int32_t index)
{
    const struct seq *seq = &cache->seqs.at[index];
    const int32_t query = max_i32(seq->length - seq->max_rewind, 0);
    publish_full_blocks(cache, index);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            seq_table_reclaim(&cache->groups[g].tables, index, query);
        }
    }
    quota_settle(cache, index);
}

static enum pkv_status load(pkv_cache *cache, const struct saved_source *source, pkv_seq *handle,
                            struct pkv_shortage *shortage)
{
    struct load_plan plan;
    int32_t index = NO_SEQ;
    enum pkv_status status = load_plan_make(&plan, cache, source, shortage);
    if (status == PKV_OK) {
        cache_lock(cache);
        status = take(cache, &plan, &index, shortage);
        cache_unlock(cache);
    }
    if (status == PKV_OK) {
        status = fill(cache, &plan, source, index);
        cache_lock(cache);
        if (status == PKV_OK) {
            seq_life_show(cache, index);
            publish(cache, index);
            *handle = sequence_handle(&cache->seqs, index);
        } else {
            seq_life_undo_hidden(cache, index);
        }
        cache_unlock(cache);
    }
    load_plan_free(&plan);
    return status;
}

static enum pkv_status check_call(const pkv_cache *cache, const pkv_seq *seq,
                                  const struct pkv_shortage *shortage)
{
    if (cache == NULL || seq == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "seq");
    }
    return shortage_check(shortage);
}

static void report_shortage(enum pkv_status status, const struct pkv_shortage *found,
                            struct pkv_shortage *shortage)
{
    if (shortage != NULL && shortage_is_why(status) && found->need > 0) {
        sized_fill(shortage, found);
    }
}

static enum pkv_status load_stream(pkv_cache *cache, const struct pkv_reader *reader, pkv_seq *seq,
                                   struct pkv_shortage *shortage)
{
    struct saved_spool spool;
    struct saved_source source;
    const struct saved_stream stream = {.context = reader->context, .read = reader->read};
    enum pkv_status status = saved_spool_fill(&spool, &cache->mem.routed, &stream, &source);
    if (status == PKV_OK) {
        status = load(cache, &source, seq, shortage);
    }
    saved_spool_free(&spool);
    return status;
}

enum pkv_status pkv_seq_load(pkv_cache *cache, const struct pkv_reader *given, pkv_seq *seq,
                             struct pkv_shortage *shortage)
{
    struct pkv_reader reader;
    struct pkv_shortage found = {0};
    enum pkv_status status = check_call(cache, seq, shortage);
    if (status == PKV_OK) {
        status = sized_read("reader", given, num_bytes, &reader);
    }
    if (status != PKV_OK) {
        return status;
    }
    if ((reader.read == NULL) == (reader.read_at == NULL)) {
        return INVALID("reader->read and reader->read_at are both %s",
                       reader.read == NULL ? "NULL" : "set");
    }
    if (reader.read != NULL) {
        status = load_stream(cache, &reader, seq, &found);
    } else {
        const struct saved_source source = {reader.context, reader.read_at, reader.num_bytes};
        status = load(cache, &source, seq, &found);
    }
    report_shortage(status, &found, shortage);
    return status;
}

enum pkv_status pkv_seq_load_file(pkv_cache *cache, const char *path, pkv_seq *seq,
                                  struct pkv_shortage *shortage)
{
    struct saved_file file;
    struct saved_source source;
    struct pkv_shortage found = {0};
    enum pkv_status status = check_call(cache, seq, shortage);
    if (status == PKV_OK && path == NULL) {
        status = INVALID("path is NULL");
    }
    if (status != PKV_OK) {
        return status;
    }
    status = saved_file_open(&file, path, &source);
    if (status == PKV_OK) {
        status = saved_file_explain(&file, load(cache, &source, seq, &found));
    }
    saved_file_close(&file);
    report_shortage(status, &found, shortage);
    return status;
}
