/* SPDX-License-Identifier: MIT
 *
 * Nothing here shares code with the library: contents are compared by tags that are chained over
 * plain lists of tokens. */
#include "reuse_case.h"

#include <stdio.h>
#include <string.h>

static struct prefix_seq *of_case(const struct case_seq *seq)
{
    return (struct prefix_seq *)(uintptr_t)seq;
}

void prefix_init(struct runtime_case *c)
{
    case_init(c);
    c->config.prefix_cache = true;
    c->config.no_partial_hits = true;
    c->config.max_pinned_blocks = 8;
    c->config.num_events = 64;
    c->config.max_namespaces = 64;
}

void prefix_open(struct runtime_case *c, int32_t num_blocks)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    case_open(c);
}

int32_t prefix_node_size(const struct runtime_case *c)
{
    int32_t smallest = c->groups[0].block_size;
    for (int32_t g = 1; g < c->config.num_groups; g++) {
        smallest = c->groups[g].block_size < smallest ? c->groups[g].block_size : smallest;
    }
    return smallest;
}

static uint32_t mixed(uint32_t state, uint64_t value)
{
    uint64_t z = ((uint64_t)state << 32 | state) ^ (value * 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 17) ^ (uint32_t)(z >> 40);
}

/* Fields that count in the block of position i. */
static uint32_t mix_fields(const struct prefix_seq *seq, int32_t block, int32_t block_size,
                           uint32_t state)
{
    for (int32_t f = 0; f < seq->options.num_namespace_fields; f++) {
        const struct pkv_namespace_field *field = &seq->fields[f];
        if (field->begins_at / block_size > block) {
            continue;
        }
        state = mixed(state, (uint64_t)field->tag << 32 | (uint32_t)field->length);
        for (int32_t i = 0; i < field->length; i++) {
            state = mixed(state, ((const unsigned char *)field->bytes)[i]);
        }
    }
    return state;
}

static uint32_t next_tag(const struct runtime_case *c, const struct prefix_seq *seq, int32_t i,
                         uint32_t before)
{
    const int32_t block_size = prefix_node_size(c);
    uint32_t state = before;
    if (i % block_size == 0) {
        state = mix_fields(seq, i / block_size, block_size, state);
    }
    state = mixed(state, (uint32_t)seq->ids[i]);
    return mixed(state, seq->has_extra ? seq->extra[i] : 0);
}

uint32_t prefix_tag(const struct runtime_case *c, const struct prefix_seq *seq, int32_t i)
{
    uint32_t tag = 1;
    for (int32_t j = 0; j <= i; j++) {
        tag = next_tag(c, seq, j, tag);
    }
    return tag;
}

static void set_tags(const struct runtime_case *c, struct prefix_seq *seq, int32_t first,
                     int32_t end)
{
    uint32_t tag = first > 0 ? seq->seq.tags[first - 1] : 1;
    for (int32_t i = first; i < end; i++) {
        tag = next_tag(c, seq, i, tag);
        seq->seq.tags[i] = tag;
    }
}

void prefix_own_options(struct prefix_seq *seq, const struct pkv_seq_options *options)
{
    seq->options = *options;
    for (int32_t f = 0; f < options->num_namespace_fields; f++) {
        seq->fields[f] = options->namespace_fields[f];
    }
    seq->options.namespace_fields = seq->fields;
    if (options->kept_prefix != NULL) {
        seq->kept_prefix = *options->kept_prefix;
        seq->options.kept_prefix = &seq->kept_prefix;
    }
}

enum pkv_status prefix_create(struct runtime_case *c, struct prefix_seq *seq, int32_t base,
                              const struct pkv_seq_options *options)
{
    const struct pkv_seq_options none = {.size = sizeof none};
    prefix_own_options(seq, options != NULL ? options : &none);
    seq->has_extra = false;
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->ids[i] = base + i;
    }
    return case_create(c, &seq->seq, &seq->options);
}

struct pkv_prompt prefix_prompt(const struct prefix_seq *seq, int32_t num_tokens)
{
    return (struct pkv_prompt){.size = sizeof(struct pkv_prompt),
                               .token_ids = seq->ids,
                               .token_extra = seq->has_extra ? seq->extra : NULL,
                               .num_tokens = num_tokens};
}

enum pkv_status prefix_admit(struct runtime_case *c, struct prefix_seq *seq, int32_t num_tokens,
                             int32_t reserve, int32_t *num_cached)
{
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const struct pkv_prompt prompt = prefix_prompt(seq, num_tokens);
    const enum pkv_status status = pkv_seq_admit(c->cache, seq->seq.handle, &prompt, reserve,
                                                 num_tokens, &admission, &shortage);
    if (status == PKV_OK) {
        CU_ASSERT(admission.num_cached >= 0);
        CU_ASSERT(admission.num_cached < num_tokens || num_tokens == 0);
        for (int32_t g = 0; g < c->config.num_groups; g++) {
            CU_ASSERT_EQUAL(admission.num_cached % c->groups[g].block_size, admission.num_copied);
        }
        CU_ASSERT_EQUAL(admission.num_to_write, num_tokens - admission.num_cached);
        seq->seq.length = admission.num_cached;
        set_tags(c, seq, 0, seq->seq.length);
        CU_ASSERT_EQUAL(case_length(c, seq->seq.handle), seq->seq.length);
    } else {
        CU_ASSERT_EQUAL(admission.num_cached, -1);
    }
    if (num_cached != NULL) {
        *num_cached = admission.num_cached;
    }
    return status;
}

static bool digest_block(void *context, const struct pkv_block_info *info)
{
    uint64_t *digest = context;
    const uint64_t words[] = {(uint64_t)info->group,  (uint64_t)info->block,
                              (uint64_t)info->state,  (uint64_t)info->ref_count,
                              info->is_indexed,       (uint64_t)info->priority,
                              info->key.low,          info->key.high,
                              info->parent_key.low,   info->parent_key.high,
                              info->namespace_key.low};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        *digest = (*digest ^ words[i]) * 0x100000001b3u;
    }
    return true;
}

uint64_t prefix_digest(struct runtime_case *c)
{
    uint64_t digest = 0xcbf29ce484222325u;
    uint64_t next_event = 0;
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c->cache, digest_block, &digest, &next_event));
    return (digest ^ next_event) * 0x100000001b3u;
}

struct pkv_probe prefix_probe(struct runtime_case *c, const struct prefix_seq *seq,
                              int32_t num_tokens, int32_t reserve)
{
    const struct pkv_prompt prompt = prefix_prompt(seq, num_tokens);
    struct pkv_probe probe = {.size = sizeof probe};
    memset(&probe, 0xff, sizeof probe);
    probe.size = sizeof probe;
    c->lacking = (struct pkv_shortage){sizeof c->lacking, -1, -1, -1, -1, -1, -1, -1};
    const uint64_t before = prefix_digest(c);
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c->cache, &seq->options, &prompt, reserve, num_tokens,
                                          &probe, &c->lacking));
    CU_ASSERT_EQUAL(prefix_digest(c), before);
    return probe;
}

int32_t prefix_hit(struct runtime_case *c, const struct prefix_seq *seq, int32_t num_tokens)
{
    return prefix_probe(c, seq, num_tokens, 0).num_cached;
}

enum pkv_status prefix_begin(struct runtime_case *c, struct case_step *step,
                             int32_t num_required_rows)
{
    static int32_t ids[CASE_MAX_LENGTH];
    static uint64_t extra[CASE_MAX_LENGTH];
    pkv_seq seqs[CASE_MAX_ROWS];
    int32_t q_lens[CASE_MAX_ROWS];
    int32_t num_tokens = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct prefix_seq *seq = of_case(step->rows[i].seq);
        seqs[i] = seq->seq.handle;
        q_lens[i] = step->rows[i].q_len;
        for (int32_t t = 0; t < q_lens[i]; t++, num_tokens++) {
            ids[num_tokens] = seq->ids[seq->seq.length + t];
            extra[num_tokens] = seq->has_extra ? seq->extra[seq->seq.length + t] : 0;
        }
    }
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = step->num_rows,
                                    .num_required_rows = num_required_rows,
                                    .token_ids = ids,
                                    .token_extra = extra};
    struct pkv_shortage foreseen = {.size = sizeof foreseen};
    const enum pkv_status expected = pkv_step_fits(c->cache, &batch, &foreseen);
    step->shortage.size = sizeof step->shortage;
    const enum pkv_status status = pkv_step_begin(c->cache, &batch, &step->handle, &step->shortage);
    CU_ASSERT_EQUAL(status, expected);
    if (status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS) {
        CU_ASSERT(foreseen.row == step->shortage.row && foreseen.group == step->shortage.group &&
                  foreseen.need == step->shortage.need && foreseen.free == step->shortage.free &&
                  foreseen.quota == step->shortage.quota);
    }
    if (status != PKV_OK) {
        return status;
    }
    step->num_rows = step->shortage.row;
    step->num_tokens = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct prefix_seq *seq = of_case(step->rows[i].seq);
        set_tags(c, seq, seq->seq.length, seq->seq.length + q_lens[i]);
        step->num_tokens += q_lens[i];
    }
    return PKV_OK;
}

void prefix_append(struct runtime_case *c, struct prefix_seq *seq, int32_t n)
{
    struct case_step step = {0};
    case_row(&step, &seq->seq, n);
    ASSERT_STATUS(PKV_OK, prefix_begin(c, &step, 1));
    if (step.handle.id != 0) {
        case_attend_all(c, &step);
        case_commit(c, &step, NULL);
    }
}

int32_t prefix_run(struct runtime_case *c, struct prefix_seq *seq, int32_t base, int32_t length)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, base, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(c, seq, length, 0, &num_cached));
    prefix_append(c, seq, length - seq->seq.length);
    return num_cached;
}

void prefix_destroy(struct runtime_case *c, struct prefix_seq *seq)
{
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seq->seq.handle));
}

void prefix_warm(struct runtime_case *c, struct prefix_seq *seq, int32_t base, int32_t length)
{
    prefix_run(c, seq, base, length);
    prefix_destroy(c, seq);
}

struct pkv_namespace_field prefix_field_of(int32_t tag, const char *text, int32_t begins_at)
{
    const struct pkv_namespace_field field = {tag, (int32_t)strlen(text), text, begins_at};
    return field;
}

struct pkv_stats prefix_stats(struct runtime_case *c)
{
    struct pkv_stats stats = {.size = sizeof stats};
    ASSERT_STATUS(PKV_OK, pkv_cache_stats(c->cache, &stats));
    return stats;
}
