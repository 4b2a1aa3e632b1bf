/* SPDX-License-Identifier: MIT
 *
 * Namespace fields are read back from the namespaces that a sequence has joined, so begins_at is
 * that of a block's first token. A kept prefix of the sequence's own is an option here and not the
 * field that it also is: loading makes the field again. */
#include "runtime/save_options.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/minmax.h"
#include "runtime/seq_options.h"

/* What the section of a sequence has, 8 bytes each. */
enum {
    LENGTH,
    MAX_TOKENS, /* 0: max_seq_len */
    MAX_REWIND,
    KEPT_PREFIX, /* all bits set: each group's own */
    PRIORITY,
    NO_PUBLISH,
    RETENTION_NS,
    TAG,
    NUM_WORDS
};
_Static_assert(NUM_WORDS * sizeof(uint64_t) == SAVE_SEQUENCE_BYTES, "a word each");

static void put_sequence(const pkv_cache *cache, const struct seq *seq, unsigned char *to)
{
    const bool is_bounded = seq->max_tokens < cache->config.max_seq_len;
    const uint64_t words[NUM_WORDS] = {
        [LENGTH] = (uint64_t)seq->length,
        [MAX_TOKENS] = is_bounded ? (uint64_t)seq->max_tokens : 0,
        [MAX_REWIND] = (uint64_t)seq->max_rewind,
        [KEPT_PREFIX] = seq->kept_prefix >= 0 ? (uint64_t)seq->kept_prefix : UINT64_MAX,
        [PRIORITY] = (uint64_t)seq->reuse.priority,
        [NO_PUBLISH] = seq->reuse.no_publish,
        [RETENTION_NS] = seq->reuse.retention_ns,
        [TAG] = seq->tag,
    };
    for (int i = 0; i < NUM_WORDS; i++) {
        to = put_u64(to, words[i]);
    }
}

static unsigned char *put_field(unsigned char *to, const struct pkv_namespace_field *field,
                                int32_t begins_at)
{
    to = put_u32(to, (uint32_t)field->tag);
    to = put_u32(to, (uint32_t)begins_at);
    to = put_u64(to, (uint64_t)field->length);
    if (field->length > 0) {
        memcpy(to, field->bytes, (size_t)field->length);
    }
    return to + field->length;
}

/* The block that a field of the sequence's last namespace begins in. */
static int32_t first_block_of(const pkv_cache *cache, const struct prefix_scope *scope, int32_t tag)
{
    for (int32_t i = 0; i < scope->count; i++) {
        struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
        const int32_t count =
            prefix_index_fields(cache->reuse.index, scope->namespace_id[i], fields);
        for (int32_t j = 0; j < count; j++) {
            if (fields[j].tag == tag) {
                return scope->from[i];
            }
        }
    }
    return 0;
}

static size_t put_fields(const pkv_cache *cache, const struct prefix_scope *scope,
                         unsigned char *bytes)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char *to = bytes;
    if (!cache_has_reuse(cache) || scope->count == 0) {
        return 0;
    }
    const int32_t count =
        prefix_index_fields(cache->reuse.index, scope->namespace_id[scope->count - 1], fields);
    for (int32_t i = 0; i < count; i++) {
        const int64_t begins_at =
            (int64_t)first_block_of(cache, scope, fields[i].tag) * cache->reuse.block_size;
        if (fields[i].tag >= 1) { /* none of the library's own */
            to = put_field(to, &fields[i], (int32_t)min_i64(begins_at, INT32_MAX));
        }
    }
    return (size_t)(to - bytes);
}

void save_options_put(const pkv_cache *cache, const struct seq *seq, struct save_options *options)
{
    put_sequence(cache, seq, options->sequence);
    options->num_field_bytes = put_fields(cache, &seq->reuse.scope, options->fields);
}

static enum pkv_status refuse_sequence(const char *what)
{
    return refuse(PKV_CORRUPT, "section sequence: %s is out of range", what);
}

/* The numbers as options. */
static enum pkv_status get_sequence(const pkv_cache *cache, const uint64_t *words,
                                    int64_t *kept_prefix, struct pkv_seq_options *options)
{
    static const char *const names[] = {"length", "max_tokens", "max_rewind"};
    const int32_t max_seq_len = cache->config.max_seq_len;
    for (int i = LENGTH; i <= MAX_REWIND; i++) {
        if (words[i] > INT32_MAX) {
            return refuse_sequence(names[i]);
        }
    }
    if (words[KEPT_PREFIX] != UINT64_MAX && words[KEPT_PREFIX] > INT32_MAX) {
        return refuse_sequence("kept_prefix");
    }
    if (words[PRIORITY] >= PKV_NUM_PRIORITIES || words[NO_PUBLISH] > 1) {
        return refuse_sequence(words[NO_PUBLISH] > 1 ? "no_publish" : "priority");
    }
    if (words[MAX_TOKENS] != 0 && words[LENGTH] > words[MAX_TOKENS]) {
        return refuse_sequence("length, above max_tokens,");
    }
    *kept_prefix = (int64_t)words[KEPT_PREFIX];
    *options = (struct pkv_seq_options){
        .size = sizeof *options,
        .tag = words[TAG],
        .kept_prefix = words[KEPT_PREFIX] != UINT64_MAX ? kept_prefix : NULL,
        .max_rewind = min_i32((int32_t)words[MAX_REWIND], max_seq_len),
        .max_tokens = min_i32((int32_t)words[MAX_TOKENS], max_seq_len),
        .priority = (int32_t)words[PRIORITY],
        .no_publish = words[NO_PUBLISH] != 0,
        .retention_ns = words[RETENTION_NS],
    };
    return PKV_OK;
}

static bool has_tag(const struct pkv_namespace_field *fields, int32_t count, int32_t tag)
{
    bool has = false;
    for (int32_t i = 0; i < count; i++) {
        has |= fields[i].tag == tag;
    }
    return has;
}

/* The next field, from bytes [left]; the bytes that it takes, or 0 when it is none. */
static size_t get_field(const unsigned char *bytes, size_t left, struct pkv_namespace_field *field)
{
    if (left < SAVE_FIELD_BYTES) {
        return 0;
    }
    const uint32_t tag = get_u32(bytes);
    const uint32_t begins_at = get_u32(bytes + 4);
    const uint64_t length = get_u64(bytes + 8);
    if (tag < 1 || tag > INT32_MAX || begins_at > INT32_MAX || length > PKV_MAX_NAMESPACE_BYTES ||
        length > left - SAVE_FIELD_BYTES) {
        return 0;
    }
    *field = (struct pkv_namespace_field){.tag = (int32_t)tag,
                                          .begins_at = (int32_t)begins_at,
                                          .length = (int32_t)length,
                                          .bytes = bytes + SAVE_FIELD_BYTES};
    return SAVE_FIELD_BYTES + (size_t)length;
}

static enum pkv_status get_fields(const struct save_options *options,
                                  struct pkv_namespace_field *fields, int32_t *count)
{
    size_t at = 0;
    *count = 0;
    while (at < options->num_field_bytes) {
        struct pkv_namespace_field field;
        const size_t taken =
            *count < PKV_MAX_NAMESPACE_FIELDS
                ? get_field(options->fields + at, options->num_field_bytes - at, &field)
                : 0;
        if (taken == 0 || has_tag(fields, *count, field.tag)) {
            return refuse(PKV_CORRUPT, "section namespace: field %d is none", *count);
        }
        fields[(*count)++] = field;
        at += taken;
    }
    return PKV_OK;
}

enum pkv_status save_options_get(const pkv_cache *cache, const struct save_options *options,
                                 struct seq *prototype, struct namespace_fields *fields)
{
    uint64_t words[NUM_WORDS];
    int64_t kept_prefix = 0;
    struct pkv_namespace_field given[PKV_MAX_NAMESPACE_FIELDS];
    struct pkv_seq_options read;
    for (int i = 0; i < NUM_WORDS; i++) {
        words[i] = get_u64(options->sequence + (size_t)i * sizeof words[0]);
    }
    enum pkv_status status = get_sequence(cache, words, &kept_prefix, &read);
    if (status == PKV_OK) {
        status = get_fields(options, given, &read.num_namespace_fields);
    }
    if (status != PKV_OK) {
        return status;
    }
    read.namespace_fields = given;
    status = seq_options_check_rewind(&cache->config, read.max_rewind);
    if (status != PKV_OK) {
        return status;
    }
    if (seq_options_check(&cache->config, &read, prototype, fields) != PKV_OK) {
        return refuse_sequence("kept_prefix beside the namespace fields");
    }
    prototype->length = (int32_t)words[LENGTH];
    return PKV_OK;
}
