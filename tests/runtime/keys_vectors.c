/* SPDX-License-Identifier: MIT
 *
 * The public vectors of keys, tests/vectors/keys/prompts.txt, which the program in docs/keys.md
 * computes from the format alone. A line is a word and its values; `keys` ends a case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define MAX_TOKENS 256
#define MAX_GROUPS 4
#define MAX_LAYERS 8
#define MAX_LINE 8192

struct vector {
    char name[128];
    struct pkv_cache_config config;
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
    unsigned char fingerprint[64];
    struct pkv_seq_options options;
    int64_t kept_prefix;
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char bytes[PKV_MAX_NAMESPACE_FIELDS][PKV_MAX_NAMESPACE_BYTES];
    int32_t tokens[MAX_TOKENS];
    uint64_t extras[MAX_TOKENS];
    struct pkv_prompt prompt;
};

static const float one = 1.0f;

/* The next number of a line. */
static int64_t number(char **at)
{
    return strtoll(*at, at, 10);
}

/* Bytes of the next hex text; their count. */
static int32_t hex_bytes(char **at, unsigned char *bytes)
{
    int32_t count = 0;
    unsigned value = 0;
    *at += strspn(*at, " ");
    while (sscanf(*at, "%2x", &value) == 1) {
        bytes[count++] = (unsigned char)value;
        *at += 2;
    }
    return count;
}

static bool has_more(const char *at)
{
    return at[strspn(at, " \n")] != '\0';
}

static void begin_case(struct vector *v, const char *name)
{
    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%.*s", (int)strcspn(name, "\n"), name);
    v->config = (struct pkv_cache_config){.size = sizeof v->config,
                                          .groups = v->groups,
                                          .layers = v->layers,
                                          .max_seqs = 1,
                                          .max_step_tokens = 1,
                                          .num_threads = 1,
                                          .prefix_cache = true};
    v->options.size = sizeof v->options;
    v->prompt.size = sizeof v->prompt;
    v->prompt.token_ids = v->tokens;
}

static void read_group(struct vector *v, char *at)
{
    struct pkv_group_config *group = &v->groups[v->config.num_groups++];
    group->kv_heads = (int32_t)number(&at);
    group->k_width = (int32_t)number(&at);
    group->v_width = (int32_t)number(&at);
    group->v_in_k = number(&at) != 0;
    group->k_dtype = (enum pkv_dtype)number(&at);
    group->v_dtype = (enum pkv_dtype)number(&at);
    group->block_size = (int32_t)number(&at);
    group->sliding_window = number(&at);
    group->kept_prefix = number(&at);
    group->num_blocks = 1;
}

/* The layer that owns the pages which a sharing one reads is the first of its group. */
static void read_layer(struct vector *v, char *at)
{
    struct pkv_layer_config *layer = &v->layers[v->config.num_layers++];
    layer->group = (int32_t)number(&at);
    layer->shares_kv = number(&at) != 0;
    while (v->layers[layer->kv_layer].group != layer->group) {
        layer->kv_layer++;
    }
    const struct pkv_group_config *group = &v->groups[layer->group];
    layer->num_heads = group->kv_heads;
    if (pkv_dtype_bytes(group->k_dtype) == 1) {
        layer->constants.k_scale = &one;
        layer->constants.k_scale_count = 1;
    }
    if (pkv_dtype_bytes(group->v_dtype) == 1) {
        layer->constants.v_scale = &one;
        layer->constants.v_scale_count = 1;
    }
}

static void read_field(struct vector *v, char *at)
{
    const int32_t f = v->options.num_namespace_fields++;
    struct pkv_namespace_field *field = &v->fields[f];
    field->tag = (int32_t)number(&at);
    field->begins_at = (int32_t)number(&at);
    field->length = hex_bytes(&at, v->bytes[f]);
    field->bytes = v->bytes[f];
    v->options.namespace_fields = v->fields;
}

static void read_tokens(struct vector *v, char *at)
{
    while (has_more(at)) {
        v->tokens[v->prompt.num_tokens++] = (int32_t)number(&at);
    }
}

static void read_extras(struct vector *v, char *at)
{
    for (int32_t i = 0; has_more(at); i++) {
        v->extras[i] = strtoull(at, &at, 16);
    }
    v->prompt.token_extra = v->extras;
}

static uint64_t hex_word(char **at)
{
    unsigned long long word = 0;
    *at += strspn(*at, " ");
    CU_ASSERT_EQUAL(sscanf(*at, "%16llx", &word), 1);
    *at += 16;
    return word;
}

static void check_keys(const struct vector *v, char *at)
{
    struct pkv_block_key keys[MAX_TOKENS];
    int32_t count = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_keys(&v->config, &v->options, &v->prompt, MAX_TOKENS, keys, &count));
    for (int32_t i = 0; i < count; i++) {
        const uint64_t high = hex_word(&at);
        const uint64_t low = hex_word(&at);
        ASSERT_CASE(v->name, keys[i].low == low && keys[i].high == high);
    }
    ASSERT_CASE(v->name, count > 0 && !has_more(at));
}

static void read_scalar(struct vector *v, const char *word, char *at)
{
    if (strcmp(word, "max_seq_len") == 0) {
        v->config.max_seq_len = (int32_t)number(&at);
    } else if (strcmp(word, "dtype") == 0) {
        v->config.dtype = (enum pkv_dtype)number(&at);
    } else if (strcmp(word, "kept_prefix") == 0) {
        v->kept_prefix = number(&at);
        v->options.kept_prefix = &v->kept_prefix;
    } else if (strcmp(word, "fingerprint") == 0) {
        v->config.fingerprint_bytes = hex_bytes(&at, v->fingerprint);
        v->config.fingerprint = v->fingerprint;
    } else {
        CU_FAIL("an unknown word");
    }
}

/* True when the line ended a case. */
static bool read_line(struct vector *v, char *line)
{
    char word[32];
    if (line[0] == '#' || sscanf(line, "%31s", word) != 1) {
        return false;
    }
    char *at = line + strcspn(line, " \n");
    at += strspn(at, " ");
    if (strcmp(word, "case") == 0) {
        begin_case(v, at);
    } else if (strcmp(word, "group") == 0) {
        read_group(v, at);
    } else if (strcmp(word, "layer") == 0) {
        read_layer(v, at);
    } else if (strcmp(word, "field") == 0) {
        read_field(v, at);
    } else if (strcmp(word, "tokens") == 0) {
        read_tokens(v, at);
    } else if (strcmp(word, "extras") == 0) {
        read_extras(v, at);
    } else if (strcmp(word, "keys") == 0) {
        check_keys(v, at);
        return true;
    } else {
        read_scalar(v, word, at);
    }
    return false;
}

/* K6: keys are those that another program computes from the documented format. */
static void keys_are_those_of_the_public_vectors(void)
{
    static struct vector vector;
    static char line[MAX_LINE];
    int32_t num_cases = 0;
    FILE *file = fopen("tests/vectors/keys/prompts.txt", "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    while (fgets(line, sizeof line, file) != NULL) {
        num_cases += read_line(&vector, line);
    }
    fclose(file);
    CU_ASSERT_EQUAL(num_cases, 6);
}

static const struct test_case cases[] = {
    TEST(keys_are_those_of_the_public_vectors),
    TEST_END,
};
const struct test_suite suite_runtime_keys_vectors = {"runtime_keys_vectors", cases};
