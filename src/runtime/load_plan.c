/* SPDX-License-Identifier: MIT
 *
 * Sections that decide how later ones are judged come first in a file: the length before the
 * geometry (which rows of cos/sin tables count), both before the blocks, and these before the
 * payload, whose length follows from all of them. A section that is missing is found when a later
 * one needs it, or at the end. */
#include "runtime/load_plan.h"

#include <string.h>

#include "base/little_endian.h"
#include "base/minmax.h"
#include "base/window.h"
#include "runtime/save_states.h"
#include "runtime/shortage.h"

#define BLOCKS_WORDS 3
#define BLOCKS_BYTES (BLOCKS_WORDS * sizeof(uint64_t))

/* The first pass at work. */
struct scan {
    struct load_plan *plan;
    struct saved_reader reader;
    struct save_geometry geometry;
    struct pkv_shortage *shortage;
    uint32_t seen; /* a bit for each known kind */
    int32_t num_payloads;
    int32_t num_states; /* sections of states */
};

static bool has_seen(const struct scan *scan, uint32_t kind)
{
    return (scan->seen >> kind & 1) != 0;
}

static enum pkv_status refuse_section(const struct saved_section *section, const char *what)
{
    return refuse(PKV_CORRUPT, "section %s %u at offset %llu: %s", saved_kind_name(section->kind),
                  section->index, (unsigned long long)section->offset, what);
}

/* A section that comes once and whose content has a length of `length`. */
static enum pkv_status check_length(const struct saved_section *section, uint64_t length)
{
    if (section->index != 0) {
        return refuse_section(section, "its index is not 0");
    }
    return section->length == length ? PKV_OK : refuse_section(section, "a length that is not its");
}

static enum pkv_status refuse_tokens(const struct scan *scan)
{
    const struct seq *of = &scan->plan->prototype;
    *scan->shortage = (struct pkv_shortage){.row = SHORTAGE_NO_ROW,
                                            .group = SHORTAGE_NO_GROUP,
                                            .need = of->length,
                                            .max_tokens = of->max_tokens};
    return refuse(PKV_NEVER_FITS, "%d tokens, max_seq_len is %d", of->length, of->max_tokens);
}

/* The length and the options; the fields are known once all before the geometry was read. */
static enum pkv_status take_sequence(struct scan *scan, struct saved_section *section)
{
    const enum pkv_status status = check_length(section, SAVE_SEQUENCE_BYTES);
    return status == PKV_OK ? saved_take(&scan->reader, section, scan->plan->options.sequence)
                            : status;
}

static enum pkv_status take_namespace(struct scan *scan, struct saved_section *section)
{
    struct save_options *options = &scan->plan->options;
    if (section->length == 0 || section->length > sizeof options->fields) {
        return refuse_section(section, "a length that is not its");
    }
    options->num_field_bytes = (size_t)section->length;
    const enum pkv_status status = check_length(section, section->length);
    return status == PKV_OK ? saved_take(&scan->reader, section, options->fields) : status;
}

static enum pkv_status take_geometry(struct scan *scan, struct saved_section *section)
{
    struct load_plan *plan = scan->plan;
    if (!has_seen(scan, SAVED_SEQUENCE)) {
        return refuse_section(section, "no section sequence is before it");
    }
    enum pkv_status status = check_length(section, section->length);
    if (status == PKV_OK) {
        status = save_options_get(plan->cache, &plan->options, &plan->prototype, &plan->fields);
    }
    if (status == PKV_OK) {
        status = save_geometry_make(plan->cache, plan->prototype.length, &scan->geometry);
    }
    if (status == PKV_OK) {
        status = save_geometry_check(&scan->geometry, &scan->reader, section);
    }
    if (status == PKV_OK && plan->prototype.length > plan->prototype.max_tokens) {
        return refuse_tokens(scan);
    }
    return status;
}

/* Whether a table can be so: what a query behind the last token sees is there. */
static bool is_extent(const struct group *group, const struct seq *of, const uint64_t *words)
{
    const int32_t block_size = group->config->block_size;
    const int64_t window = group->config->sliding_window;
    const uint64_t full = (uint64_t)(of->length / block_size);
    const uint64_t all = (uint64_t)config_blocks_of_cells(of->length, block_size);
    const int32_t kept = window > 0 && group_is_paged(group) ? group_kept_prefix(group, of) : 0;
    const uint64_t kept_blocks = (uint64_t)config_blocks_of_cells(kept, block_size);
    const uint64_t needed = (uint64_t)first_needed_block(of->length, window, block_size);
    const uint64_t kept_end = words[0], hole_end = words[1], end = words[2];
    if (end != all && (end != full || window != 1 || full < kept_blocks)) {
        return false; /* a window of one key needs none before it */
    }
    if (kept_end != (kept_blocks < end ? kept_blocks : end)) {
        return false;
    }
    const bool has_hole = group_is_paged(group) && hole_end > kept_end;
    return hole_end == kept_end || (has_hole && hole_end <= needed && hole_end <= end);
}

static enum pkv_status take_blocks(struct scan *scan, struct saved_section *section)
{
    pkv_cache *cache = scan->plan->cache;
    const int32_t num_groups = cache->config.num_groups;
    if (!has_seen(scan, SAVED_GEOMETRY)) {
        return refuse_section(section, "no section geometry is before it");
    }
    enum pkv_status status = check_length(section, (uint64_t)num_groups * BLOCKS_BYTES);
    if (status != PKV_OK) {
        return status;
    }
    unsigned char *bytes = (unsigned char *)scan->geometry.words; /* no longer needed, and longer */
    status = saved_take(&scan->reader, section, bytes);
    for (int32_t g = 0; status == PKV_OK && g < num_groups; g++) {
        uint64_t words[BLOCKS_WORDS];
        for (size_t i = 0; i < BLOCKS_WORDS; i++) {
            words[i] = get_u64(bytes + (size_t)g * BLOCKS_BYTES + i * sizeof words[0]);
        }
        if (!is_extent(&cache->groups[g], &scan->plan->prototype, words)) {
            return refuse(PKV_CORRUPT, "section blocks: group %d: no table of %d tokens is so", g,
                          scan->plan->prototype.length);
        }
        scan->plan->groups[g].extent = (struct payload_extent){
            .kept_end = (int32_t)words[0], .hole_end = (int32_t)words[1], .end = (int32_t)words[2]};
    }
    return status;
}

/* Token ids, or extras: of `bytes` each. Kept as it is for the second pass. */
static enum pkv_status skim_tokens(struct scan *scan, struct saved_section *section, size_t bytes,
                                   struct saved_section *kept)
{
    if (!has_seen(scan, SAVED_BLOCKS)) {
        return refuse_section(section, "no section blocks is before it");
    }
    const uint64_t length = (uint64_t)scan->plan->prototype.length * bytes;
    enum pkv_status status = check_length(section, length);
    if (status == PKV_OK && length == 0) {
        status = refuse_section(section, "the sequence has no tokens");
    }
    if (status == PKV_OK) {
        status = saved_skim(&scan->reader, section, NULL, NULL);
    }
    *kept = *section;
    return status;
}

static enum pkv_status skim_payload(struct scan *scan, struct saved_section *section)
{
    const pkv_cache *cache = scan->plan->cache;
    const int32_t g = scan->num_payloads;
    uint64_t bytes = 0;
    if (!has_seen(scan, SAVED_BLOCKS) || g >= cache->config.num_groups ||
        section->index != (uint32_t)g) {
        return refuse_section(section, "not the next group's");
    }
    struct load_group *of = &scan->plan->groups[g];
    if (!payload_bytes(&cache->groups[g], &of->extent, scan->plan->prototype.length, &bytes) ||
        section->length != bytes) {
        return refuse_section(section, "a length that is not that of its cells");
    }
    const enum pkv_status status = saved_skim(&scan->reader, section, NULL, NULL);
    scan->num_payloads++;
    of->payload = *section;
    return status;
}

/* Beyond how many bytes of a section nothing is kept. */
struct beginning {
    unsigned char *to;
    size_t num_left;
};

static void keep(void *context, const unsigned char *bytes, size_t n)
{
    struct beginning *kept = context;
    const size_t taken = n < kept->num_left ? n : kept->num_left;
    if (taken > 0) {
        memcpy(kept->to, bytes, taken);
        kept->to += taken;
        kept->num_left -= taken;
    }
}

/* Reads the lengths that a section of states begins with, as bytes. */
static enum pkv_status take_lengths(struct scan *scan, struct saved_section *section,
                                    struct load_states *of, unsigned char *bytes)
{
    const struct seq *seq = &scan->plan->prototype;
    struct beginning kept = {bytes, (size_t)of->count * sizeof(uint64_t)};
    const enum pkv_status status = saved_skim(&scan->reader, section, keep, &kept);
    uint64_t before = seq->length > seq->max_rewind ? (uint64_t)(seq->length - seq->max_rewind) : 1;
    for (int32_t i = 0; status == PKV_OK && i < of->count; i++) {
        const uint64_t length = get_u64(bytes + (size_t)i * sizeof length);
        if (length < before || length > (uint64_t)seq->length) {
            return refuse_section(section, "no sequence has states of such lengths");
        }
        of->lengths[i] = (int32_t)length;
        before = length + 1;
    }
    return status;
}

static enum pkv_status skim_states(struct scan *scan, struct saved_section *section)
{
    const pkv_cache *cache = scan->plan->cache;
    const struct pkv_hooks *hooks = &cache->mem.routed;
    const int32_t s = scan->num_states;
    uint64_t bytes = 0;
    if (scan->num_payloads < cache->config.num_groups || s >= cache->num_states ||
        section->index != (uint32_t)cache->states[s].index) {
        return refuse_section(section, "not the next group's");
    }
    struct load_states *of = &scan->plan->states[s];
    if (!save_states_bytes(&cache->states[s], &bytes) || section->length % bytes != 0 ||
        section->length / bytes > (uint64_t)scan->plan->prototype.max_rewind + 1) {
        return refuse_section(section, "a length that is not that of its states");
    }
    enum pkv_status status = PKV_OK;
    const int32_t count = (int32_t)(section->length / bytes);
    if (count == 0) {
        status = saved_skim(&scan->reader, section, NULL, NULL);
    } else {
        of->lengths = hooks_alloc_array(hooks, (size_t)count, sizeof *of->lengths);
        unsigned char *words = hooks_alloc_array(hooks, (size_t)count, sizeof(uint64_t));
        of->count = of->lengths != NULL ? count : 0;
        status = of->lengths != NULL && words != NULL
                     ? take_lengths(scan, section, of, words)
                     : refuse(PKV_NO_MEMORY, "no memory for the lengths of %d states", count);
        if (words != NULL) {
            hooks_free_array(hooks, words, (size_t)count, sizeof(uint64_t));
        }
    }
    scan->num_states++;
    of->section = *section;
    return status;
}

static enum pkv_status read_section(struct scan *scan, struct saved_section *section)
{
    switch (section->kind) {
    case SAVED_SEQUENCE: return take_sequence(scan, section);
    case SAVED_NAMESPACE: return take_namespace(scan, section);
    case SAVED_GEOMETRY: return take_geometry(scan, section);
    case SAVED_BLOCKS: return take_blocks(scan, section);
    case SAVED_TOKENS: return skim_tokens(scan, section, sizeof(int32_t), &scan->plan->tokens);
    case SAVED_EXTRA: return skim_tokens(scan, section, sizeof(uint64_t), &scan->plan->extra);
    case SAVED_PAYLOAD: return skim_payload(scan, section);
    default: break;
    }
    if (section->kind == SAVED_STATE && scan->plan->cache->num_states > 0) {
        return skim_states(scan, section);
    }
    if ((section->flags & SAVED_NEEDED) != 0) {
        return refuse(PKV_UNSUPPORTED,
                      "section %s, %u, at offset %llu: this version needs it and "
                      "does not know it",
                      saved_kind_name(section->kind), section->kind,
                      (unsigned long long)section->offset);
    }
    return saved_skim(&scan->reader, section, NULL, NULL);
}

/* All sections were read: what must be there is. */
static enum pkv_status check_complete(const struct scan *scan)
{
    const struct load_plan *plan = scan->plan;
    if (!has_seen(scan, SAVED_BLOCKS) || scan->num_payloads < plan->cache->config.num_groups ||
        scan->num_states < plan->cache->num_states) {
        return refuse(PKV_CORRUPT, "end at offset %llu: sections are missing",
                      (unsigned long long)scan->reader.at);
    }
    if (plan->extra.kind != 0 && plan->tokens.kind == 0) {
        return refuse_section(&plan->extra, "no section tokens is before it");
    }
    if (cache_has_reuse(plan->cache) && plan->prototype.length > 0 && plan->tokens.kind == 0) {
        return INVALID("prefix_cache needs token ids, and a sequence that was saved without it has "
                       "none");
    }
    return PKV_OK;
}

static enum pkv_status scan_all(struct scan *scan, const struct saved_source *source,
                                unsigned char *buffer)
{
    enum pkv_status status = saved_open(&scan->reader, source, buffer);
    while (status == PKV_OK && saved_has_next(&scan->reader)) {
        struct saved_section section;
        status = saved_next(&scan->reader, &section);
        if (status == PKV_OK) {
            status = read_section(scan, &section);
        }
        if (status == PKV_OK && section.kind <= SAVED_STATE) {
            scan->seen |= 1u << section.kind;
        }
    }
    if (status == PKV_OK) {
        status = saved_finish(&scan->reader);
    }
    return status == PKV_OK ? check_complete(scan) : status;
}

enum pkv_status load_plan_make(struct load_plan *plan, pkv_cache *cache,
                               const struct saved_source *source, struct pkv_shortage *shortage)
{
    const struct pkv_hooks *hooks = &cache->mem.routed;
    struct scan scan = {.plan = plan, .shortage = shortage};
    *plan = (struct load_plan){.cache = cache};
    plan->groups = hooks_alloc_array(hooks, (size_t)cache->config.num_groups, sizeof *plan->groups);
    const size_t num_states = (size_t)cache->num_states;
    if (num_states > 0) {
        plan->states = hooks_alloc_array(hooks, num_states, sizeof *plan->states);
    }
    unsigned char *buffer = hooks_alloc_array(hooks, 1, SAVED_BUFFER_BYTES);
    const bool has_memory =
        plan->groups != NULL && buffer != NULL && (plan->states != NULL || num_states == 0);
    const enum pkv_status status = has_memory ? scan_all(&scan, source, buffer)
                                              : refuse(PKV_NO_MEMORY, "no memory for a buffer");
    if (buffer != NULL) {
        hooks_free_array(hooks, buffer, 1, SAVED_BUFFER_BYTES);
    }
    save_geometry_free(&scan.geometry);
    return status;
}

static void free_states(struct load_plan *plan)
{
    const struct pkv_hooks *hooks = &plan->cache->mem.routed;
    for (int32_t s = 0; s < plan->cache->num_states; s++) {
        const struct load_states *of = &plan->states[s];
        if (of->lengths != NULL) {
            hooks_free_array(hooks, of->lengths, (size_t)of->count, sizeof *of->lengths);
        }
    }
    hooks_free_array(hooks, plan->states, (size_t)plan->cache->num_states, sizeof *plan->states);
}

void load_plan_free(struct load_plan *plan)
{
    if (plan->states != NULL) {
        free_states(plan);
    }
    if (plan->groups != NULL) {
        hooks_free_array(&plan->cache->mem.routed, plan->groups,
                         (size_t)plan->cache->config.num_groups, sizeof *plan->groups);
    }
}
