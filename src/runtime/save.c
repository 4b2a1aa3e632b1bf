/* SPDX-License-Identifier: MIT
 *
 * A sequence is saved in three parts: under the mutex it is marked as moving and its options are
 * copied; then, with no lock, everything else is written from where it is, which is constant
 * meanwhile; then it is idle again. The sections are walked twice by the same code: once to add up
 * their lengths, which the header tells, and once to write them. */
#include "pagedkv/save.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "base/sized.h"
#include "base/window.h"
#include "pages/saved_file.h"
#include "pages/saved_writer.h"
#include "runtime/publish.h"
#include "runtime/save_geometry.h"
#include "runtime/save_options.h"
#include "runtime/save_payload.h"
#include "runtime/save_states.h"
#include "runtime/seq_life.h"

#define BLOCKS_WORDS 3

/* A save at work. */
struct save {
    pkv_cache *cache;
    int32_t seq; /* its index */
    int32_t length;
    const uint64_t *extra; /* NULL: all are 0 */
    struct save_options options;
    struct save_geometry geometry;
    struct saved_header header;
    struct saved_writer *writer; /* NULL: lengths are added up */
};

static bool begin_section(struct save *save, uint32_t kind, uint32_t index, uint64_t length)
{
    const struct saved_section section = {
        .kind = kind, .flags = SAVED_NEEDED, .index = index, .length = length};
    if (save->writer == NULL) {
        return saved_plan_add(&save->header, length);
    }
    saved_section_begin(save->writer, &section);
    return true;
}

static bool put_section(struct save *save, uint32_t kind, const void *bytes, size_t length)
{
    const bool fits = begin_section(save, kind, 0, length);
    if (save->writer != NULL) {
        saved_add(save->writer, bytes, length);
        saved_section_end(save->writer);
    }
    return fits;
}

/* Which blocks of each group's table are resident. */
static bool put_blocks(struct save *save)
{
    const int32_t num_groups = save->cache->config.num_groups;
    unsigned char bytes[BLOCKS_WORDS * sizeof(uint64_t)];
    const bool fits = begin_section(save, SAVED_BLOCKS, 0, (uint64_t)num_groups * sizeof bytes);
    for (int32_t g = 0; save->writer != NULL && g < num_groups; g++) {
        const struct payload_extent extent =
            payload_extent_of(&save->cache->groups[g], save->seq, save->length);
        unsigned char *to = put_u64(bytes, (uint64_t)extent.kept_end);
        (void)put_u64(put_u64(to, (uint64_t)extent.hole_end), (uint64_t)extent.end);
        saved_add(save->writer, bytes, sizeof bytes);
    }
    if (save->writer != NULL) {
        saved_section_end(save->writer);
    }
    return fits;
}

static bool put_tokens(struct save *save)
{
    const size_t length = (size_t)save->length;
    if (!cache_has_reuse(save->cache) || length == 0) {
        return true;
    }
    const int32_t *ids = seq_tokens_ids(&save->cache->reuse.tokens, save->seq);
    return put_section(save, SAVED_TOKENS, ids, length * sizeof *ids) &&
           (save->extra == NULL ||
            put_section(save, SAVED_EXTRA, save->extra, length * sizeof *save->extra));
}

static bool add_piece(void *context, void *bytes, size_t n)
{
    struct save *save = context;
    saved_add(save->writer, bytes, n);
    return !save->writer->is_stopped;
}

static bool put_payload(struct save *save, int32_t g)
{
    const struct group *group = &save->cache->groups[g];
    const struct payload_extent extent = payload_extent_of(group, save->seq, save->length);
    uint64_t bytes = 0;
    if (!payload_bytes(group, &extent, save->length, &bytes) ||
        !begin_section(save, SAVED_PAYLOAD, (uint32_t)g, bytes)) {
        return false;
    }
    if (save->writer != NULL) {
        (void)payload_visit(group, save->seq, &extent, save->length, add_piece, save);
        saved_section_end(save->writer);
    }
    return true;
}

static bool put_states(struct save *save, const struct state_group *states)
{
    const struct state_entry *entries = state_entries(states, save->seq);
    const int32_t count = states->lists[save->seq].count;
    uint64_t bytes = 0;
    size_t length = 0;
    if (!save_states_bytes(states, &bytes) || !checked_mul((size_t)count, bytes, &length) ||
        !begin_section(save, SAVED_STATE, (uint32_t)states->index, length)) {
        return false;
    }
    for (int32_t i = 0; save->writer != NULL && i < count; i++) {
        unsigned char word[sizeof(uint64_t)];
        (void)put_u64(word, (uint64_t)entries[i].length);
        saved_add(save->writer, word, sizeof word);
    }
    if (save->writer != NULL) {
        (void)save_states_visit(states, save->seq, add_piece, save);
        saved_section_end(save->writer);
    }
    return true;
}

/* In ascending order of kinds. */
static bool put_sections(struct save *save)
{
    bool fits =
        put_section(save, SAVED_SEQUENCE, save->options.sequence, sizeof save->options.sequence);
    if (fits && save->options.num_field_bytes > 0) {
        fits =
            put_section(save, SAVED_NAMESPACE, save->options.fields, save->options.num_field_bytes);
    }
    fits = fits && put_section(save, SAVED_GEOMETRY, save->geometry.bytes,
                               save_geometry_bytes(&save->geometry));
    fits = fits && put_blocks(save) && put_tokens(save);
    for (int32_t g = 0; fits && g < save->cache->config.num_groups; g++) {
        fits = put_payload(save, g);
    }
    for (int32_t s = 0; fits && s < save->cache->num_states; s++) {
        fits = put_states(save, &save->cache->states[s]);
    }
    return fits;
}

/* The extras of the sequence, unless all are 0. */
static const uint64_t *find_extra(const pkv_cache *cache, int32_t seq, int32_t length)
{
    const struct seq *of = &cache->seqs.at[seq];
    if (!cache_has_reuse(cache) || !of->tokens.has_extra) {
        return NULL;
    }
    const uint64_t *extra = seq_tokens_extra(&cache->reuse.tokens, seq);
    for (int32_t i = 0; i < length; i++) {
        if (extra[i] != 0) {
            return extra;
        }
    }
    return NULL;
}

/* Writes a sequence that is moving. */
static enum pkv_status write_all(struct save *save, const struct saved_sink *sink)
{
    struct saved_writer writer;
    const struct pkv_hooks *hooks = &save->cache->mem.routed;
    save->extra = find_extra(save->cache, save->seq, save->length);
    if (!put_sections(save)) {
        return INVALID("the bytes of the sequence overflow");
    }
    unsigned char *buffer = hooks_alloc_array(hooks, 1, SAVED_BUFFER_BYTES);
    if (buffer == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a buffer");
    }
    saved_begin(&writer, sink, &save->header, buffer);
    save->writer = &writer;
    (void)put_sections(save);
    const enum pkv_status status = saved_end(&writer);
    hooks_free_array(hooks, buffer, 1, SAVED_BUFFER_BYTES);
    return status;
}

/* What the sequence has published is hit up to the end of a block, and a query there may see one
 * block that the sequence itself has seen the last of. While that block is still cached it is saved
 * too, or a cache that loads the file would hit less, or nothing. */
static void hold_hit(pkv_cache *cache, struct group *group, int32_t seq)
{
    struct seq_table *table = &group->tables.at[seq];
    const int32_t block_size = group->config->block_size;
    const int32_t num_published = cache->seqs.at[seq].reuse.num_published;
    const int32_t num_hit = num_published - num_published % cache->reuse.index->hit_nodes;
    const int64_t hit = group_tokens_of_nodes(group, num_hit);
    const int32_t i = table->hole_end - 1;
    if (i < table->kept_end ||
        i != first_needed_block(hit, group->config->sliding_window, block_size)) {
        return;
    }
    const int32_t block = publish_block_of(cache, seq, group->index, i);
    if (block != NO_BLOCK &&
        (!block_costs_spare(&group->blocks, block) || seq_table_num_spare(&group->tables) > 0)) {
        block_adopt(&group->blocks, block, false);
        table->saved = block;
    }
}

static void drop_hit(struct group *group, int32_t seq)
{
    struct seq_table *table = &group->tables.at[seq];
    if (table->saved != NO_BLOCK) {
        block_drop_out_of_window(&group->blocks, table->saved, NO_SEQ, false);
        table->saved = NO_BLOCK;
    }
}

static enum pkv_status begin_save(struct save *save, pkv_seq handle)
{
    pkv_cache *cache = save->cache;
    struct seq *seq = NULL;
    cache_lock(cache);
    const enum pkv_status status = sequence_find_resident(&cache->seqs, handle, &seq);
    if (status == PKV_OK) {
        save->seq = sequence_index(&cache->seqs, seq);
        save->length = seq->length;
        save_options_put(cache, seq, &save->options);
        seq_life_begin_move(cache, save->seq);
        for (int32_t g = 0; cache_has_reuse(cache) && g < cache->config.num_groups; g++) {
            hold_hit(cache, &cache->groups[g], save->seq);
        }
    }
    cache_unlock(cache);
    return status;
}

static void end_save(struct save *save)
{
    cache_lock(save->cache);
    for (int32_t g = 0; cache_has_reuse(save->cache) && g < save->cache->config.num_groups; g++) {
        drop_hit(&save->cache->groups[g], save->seq);
    }
    (void)seq_life_end_move(save->cache, save->seq);
    cache_unlock(save->cache);
}

static enum pkv_status save_seq(pkv_cache *cache, pkv_seq handle, const struct saved_sink *sink)
{
    struct save save = {.cache = cache};
    enum pkv_status status = begin_save(&save, handle);
    if (status != PKV_OK) {
        return status;
    }
    status = save_geometry_make(cache, save.length, &save.geometry);
    if (status == PKV_OK) {
        status = write_all(&save, sink);
    }
    save_geometry_free(&save.geometry);
    end_save(&save);
    return status;
}

enum pkv_status pkv_seq_save(pkv_cache *cache, pkv_seq seq, const struct pkv_writer *given)
{
    struct pkv_writer writer;
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = sized_read("writer", given, write, &writer);
    if (status != PKV_OK) {
        return status;
    }
    if (writer.write == NULL) {
        return INVALID("writer->write is NULL");
    }
    const struct saved_sink sink = {.context = writer.context, .write = writer.write};
    return save_seq(cache, seq, &sink);
}

enum pkv_status pkv_seq_save_file(pkv_cache *cache, pkv_seq seq, const char *path)
{
    struct saved_file file;
    struct saved_sink sink;
    if (cache == NULL || path == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "path");
    }
    enum pkv_status status = saved_file_create(&file, path, &cache->mem.routed, &sink);
    if (status == PKV_OK) {
        status = saved_file_explain(&file, save_seq(cache, seq, &sink));
    }
    if (status == PKV_OK) {
        status = saved_file_commit(&file);
    }
    saved_file_close(&file);
    return status;
}
