/* SPDX-License-Identifier: MIT */
#include "runtime/save_case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADS = 4, MAX_WIDTH = 16 };

static const float scale = 0.0078125f;

void save_bytes_free(struct save_bytes *bytes)
{
    free(bytes->at);
    *bytes = (struct save_bytes){0};
}

/* Counts a callback; false when it is to fail. */
static bool goes_on(struct save_bytes *bytes)
{
    bytes->calls++;
    if (bytes->before != NULL) {
        bytes->before(bytes->context, bytes->calls);
    }
    return bytes->fail_at == 0 || bytes->calls < bytes->fail_at;
}

bool save_write(void *context, const void *from, size_t n)
{
    struct save_bytes *bytes = context;
    const bool has_room = bytes->write_limit == 0 || bytes->count + n <= bytes->write_limit;
    if (!goes_on(bytes) || !has_room) {
        return false;
    }
    while (bytes->count + n > bytes->capacity) {
        bytes->capacity = 2 * bytes->capacity + 4096;
        bytes->at = realloc(bytes->at, bytes->capacity);
    }
    memcpy(bytes->at + bytes->count, from, n);
    bytes->count += n;
    return true;
}

bool save_read(void *context, void *to, size_t n)
{
    struct save_bytes *bytes = context;
    if (!goes_on(bytes) || n > bytes->count - bytes->next) {
        return false;
    }
    memcpy(to, bytes->at + bytes->next, n);
    bytes->next += n;
    return true;
}

bool save_read_at(void *context, uint64_t offset, void *to, size_t n)
{
    struct save_bytes *bytes = context;
    CU_ASSERT(offset <= bytes->count && n <= bytes->count - offset);
    if (!goes_on(bytes) || offset > bytes->count || n > bytes->count - offset) {
        return false;
    }
    memcpy(to, bytes->at + offset, n);
    return true;
}

enum pkv_status save_to(struct runtime_case *c, pkv_seq seq, struct save_bytes *bytes)
{
    const struct pkv_writer writer = {sizeof writer, bytes, save_write};
    bytes->count = bytes->next = 0;
    bytes->calls = 0;
    return pkv_seq_save(c->cache, seq, &writer);
}

enum pkv_status save_load(struct runtime_case *c, struct save_bytes *bytes, pkv_seq *seq,
                          struct pkv_shortage *shortage)
{
    const struct pkv_reader reader = {.size = sizeof reader,
                                      .context = bytes,
                                      .read_at = save_read_at,
                                      .num_bytes = bytes->count};
    bytes->calls = 0;
    return pkv_seq_load(c->cache, &reader, seq, shortage);
}

enum pkv_status save_load_stream(struct runtime_case *c, struct save_bytes *bytes, pkv_seq *seq,
                                 struct pkv_shortage *shortage)
{
    const struct pkv_reader reader = {.size = sizeof reader, .context = bytes, .read = save_read};
    bytes->next = 0;
    bytes->calls = 0;
    return pkv_seq_load(c->cache, &reader, seq, shortage);
}

static bool is_coded(enum pkv_dtype dtype)
{
    return dtype == PKV_INT8 || dtype == PKV_E4M3;
}

void save_open(struct runtime_case *c, enum pkv_dtype k_dtype, enum pkv_dtype v_dtype)
{
    (void)case_add_layer(c, 0);
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        c->groups[g].k_dtype = k_dtype;
        c->groups[g].v_dtype = c->groups[g].v_in_k ? k_dtype : v_dtype;
    }
    for (int32_t i = 0; i < c->config.num_layers; i++) {
        struct pkv_attn_constants *of = &c->layers[i].constants;
        const struct pkv_group_config *group = &c->groups[c->layers[i].group];
        of->k_scale = is_coded(k_dtype) ? &scale : NULL;
        of->k_scale_count = is_coded(k_dtype);
        of->v_scale = is_coded(v_dtype) && !group->v_in_k ? &scale : NULL;
        of->v_scale_count = is_coded(v_dtype) && !group->v_in_k;
    }
    case_open(c);
}

void save_ids(int32_t text, int32_t n, int32_t *ids)
{
    for (int32_t i = 0; i < n; i++) {
        ids[i] = 1000 * text + i;
    }
}

static float value_of(int32_t text, int32_t position, int32_t layer, int32_t what, int32_t i)
{
    uint64_t z = ((uint64_t)text << 48) ^ ((uint64_t)position << 24) ^ ((uint64_t)layer << 16) ^
                 ((uint64_t)what << 12) ^ (uint64_t)i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)(z >> 40) / (1 << 23) - 1);
}

/* Queries (2), keys (0) or values (1) of tokens [first, first + n), in a layer. */
static void fill(int32_t text, int32_t first, int32_t n, int32_t layer, int32_t what, int32_t count,
                 float *to)
{
    for (int32_t t = 0; t < n; t++) {
        for (int32_t i = 0; i < count; i++) {
            to[t * count + i] = value_of(text, first + t, layer, what, i);
        }
    }
}

static uint64_t attend(struct runtime_case *c, pkv_step step, int32_t layer, int32_t text,
                       int32_t first, int32_t n)
{
    static float q[64 * MAX_HEADS * MAX_WIDTH], k[64 * MAX_HEADS * MAX_WIDTH];
    static float v[64 * MAX_HEADS * MAX_WIDTH], out[64 * MAX_HEADS * MAX_WIDTH];
    const struct pkv_layer_config *of = &c->layers[layer];
    const struct pkv_group_config *group = &c->groups[of->group];
    const int32_t v_width = group->v_width != 0 ? group->v_width : group->k_width;
    fill(text, first, n, layer, 2, of->num_heads * group->k_width, q);
    fill(text, first, n, layer, 0, group->kv_heads * group->k_width, k);
    fill(text, first, n, layer, 1, group->kv_heads * v_width, v);
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = q,
                                    .k = of->shares_kv ? NULL : k,
                                    .v = of->shares_kv || group->v_in_k ? NULL : v,
                                    .out = out};
    ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, &io));
    uint64_t digest = 0xcbf29ce484222325u;
    const unsigned char *bytes = (const unsigned char *)out;
    for (size_t i = 0; i < (size_t)(n * of->num_heads * v_width) * sizeof *out; i++) {
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
    }
    return digest;
}

uint64_t save_run(struct runtime_case *c, pkv_seq seq, int32_t text, int32_t n)
{
    int32_t ids[CASE_MAX_LENGTH];
    const int32_t first = case_length(c, seq);
    save_ids(text, first + n, ids);
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &n,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids + first};
    pkv_step step = {0};
    uint64_t digest = 0;
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    for (int32_t i = 0; step.id != 0 && i < c->config.num_layers; i++) {
        digest = digest * 31 + attend(c, step, i, text, first, n);
    }
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
    return digest;
}

pkv_seq save_seq(struct runtime_case *c, const struct pkv_seq_options *options, int32_t text,
                 int32_t length)
{
    pkv_seq seq = {0};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, options, &seq));
    /* In small steps, so that windows release what leaves them. */
    for (int32_t at = 0; at < length; at += 8) {
        (void)save_run(c, seq, text, length - at < 8 ? length - at : 8);
    }
    return seq;
}
