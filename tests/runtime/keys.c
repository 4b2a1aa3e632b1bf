/* SPDX-License-Identifier: MIT
 *
 * Keys as a router computes them, without a cache: they are those of events, in every process.
 * Block size 4. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reuse_case.h"

#define MAX_KEYS 16
#define SALT 1
#define ADAPTER 2

static struct prefix_seq a, b;

static bool same_key(struct pkv_block_key x, struct pkv_block_key y)
{
    return x.low == y.low && x.high == y.high;
}

static bool is_zero(struct pkv_block_key key)
{
    return key.low == 0 && key.high == 0;
}

static struct pkv_seq_options options_in(const struct pkv_namespace_field *fields, int32_t count)
{
    return (struct pkv_seq_options){.size = sizeof(struct pkv_seq_options),
                                    .namespace_fields = fields,
                                    .num_namespace_fields = count};
}

/* The STORED events of ids 0, 1, .. 11 in a fresh sequence with these options. */
static void store(struct runtime_case *c, const struct pkv_seq_options *options,
                  struct pkv_event stored[3])
{
    struct pkv_event events[64];
    int32_t count = 0;
    int32_t num_stored = 0;
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, 0, options));
    prefix_append(c, &a, 12);
    prefix_destroy(c, &a);
    ASSERT_STATUS(PKV_OK,
                  pkv_events_drain(c->cache, events, sizeof(struct pkv_event), 64, &count, NULL));
    for (int32_t i = 0; i < count; i++) {
        if (events[i].kind == PKV_EVENT_STORED && num_stored < 3) {
            stored[num_stored++] = events[i];
        }
    }
    CU_ASSERT_EQUAL_FATAL(num_stored, 3);
}

/* K6: a salt changes the key at every depth from where it begins, and no key before. */
static void salts_change_keys_from_where_they_begin(void)
{
    const struct pkv_namespace_field salts[] = {prefix_field_of(SALT, "a", 0),
                                                prefix_field_of(SALT, "b", 0),
                                                prefix_field_of(SALT, "a", 4)};
    struct runtime_case c;
    struct pkv_event stored[4][3];
    prefix_open(&c, 16);
    for (int32_t i = 0; i < 4; i++) {
        const struct pkv_seq_options options = options_in(i < 3 ? &salts[i] : NULL, i < 3);
        store(&c, &options, stored[i]);
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    }
    for (int32_t depth = 0; depth < 3; depth++) {
        CU_ASSERT_EQUAL(stored[0][depth].depth, depth);
        CU_ASSERT_FALSE(same_key(stored[0][depth].key, stored[1][depth].key));
        CU_ASSERT_EQUAL(same_key(stored[2][depth].key, stored[3][depth].key), depth == 0);
        CU_ASSERT_FALSE(same_key(stored[2][depth].key, stored[0][depth].key));
        CU_ASSERT_FALSE(same_key(stored[2][depth].key, stored[1][depth].key));
        CU_ASSERT_EQUAL(is_zero(stored[2][depth].namespace_key), depth == 0);
        CU_ASSERT_TRUE(is_zero(stored[3][depth].namespace_key));
    }
    case_close(&c);
}

static int32_t hit_with_extra(struct runtime_case *c, const uint64_t *extra)
{
    struct pkv_prompt prompt = prefix_prompt(&a, 13);
    struct pkv_probe probe = {.size = sizeof probe};
    prompt.token_extra = extra;
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c->cache, NULL, &prompt, 0, 13, &probe, NULL));
    return probe.num_cached;
}

/* K6: extras count to the last bit, at the token where they are; no extras are zeros. */
static void every_bit_of_an_extra_counts(void)
{
    struct runtime_case c;
    uint64_t extra[13] = {0};
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    prefix_append(&c, &a, 13);
    CU_ASSERT_EQUAL(hit_with_extra(&c, NULL), 12);
    CU_ASSERT_EQUAL(hit_with_extra(&c, extra), 12);
    extra[5] = (uint64_t)1 << 63;
    CU_ASSERT_EQUAL(hit_with_extra(&c, extra), 4);
    extra[5] = 0;
    extra[11] = 1;
    CU_ASSERT_EQUAL(hit_with_extra(&c, extra), 8);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* A configuration with all that enters keys, a sequence in it, and what it does. */
struct routed {
    struct runtime_case c;
    struct pkv_namespace_field fields[2];
    int64_t kept_prefix;
    struct pkv_seq_options options;
};

static void set_up(struct routed *r)
{
    prefix_init(&r->c);
    struct pkv_group_config *window = case_add_group(&r->c);
    window->sliding_window = 6;
    window->kept_prefix = INT64_MAX; /* as far as max_seq_len in force */
    window->v_width = 0;             /* k_width in force */
    case_add_layer(&r->c, 1);
    r->c.config.fingerprint = "weights 1";
    r->c.config.fingerprint_bytes = 9;
    r->fields[0] = prefix_field_of(ADAPTER, "poet", 6);
    r->fields[1] = prefix_field_of(SALT, "", 0);
    r->kept_prefix = 3;
    r->options = options_in(r->fields, 2);
    r->options.kept_prefix = &r->kept_prefix;
}

static struct pkv_prompt routed_prompt(const struct routed *r, struct prefix_seq *seq)
{
    prefix_own_options(seq, &r->options);
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->ids[i] = 7 - i;
        seq->extra[i] = i == 9 ? UINT64_MAX : 0;
    }
    seq->has_extra = true;
    return prefix_prompt(seq, 19);
}

static int32_t keys_of(const struct routed *r, const struct pkv_prompt *prompt,
                       struct pkv_block_key keys[MAX_KEYS])
{
    int32_t count = -1;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_keys(&r->c.config, &r->options, prompt, MAX_KEYS, keys, &count));
    return count;
}

/* What a process without a cache sends through the pipe. */
static void compute_in_child(int to)
{
    struct routed r;
    struct pkv_block_key keys[MAX_KEYS] = {{0, 0}};
    set_up(&r);
    const struct pkv_prompt prompt = routed_prompt(&r, &b);
    (void)keys_of(&r, &prompt, keys);
    const ssize_t written = write(to, keys, sizeof keys);
    _exit(written == (ssize_t)sizeof keys ? 0 : 1);
}

/* K6: keys that a process without a cache computes are those of another one's events. */
static void keys_of_another_process_are_those_of_events(void)
{
    struct routed r;
    struct pkv_block_key keys[MAX_KEYS];
    struct pkv_event events[64];
    int32_t count = 0;
    int ends[2];
    int status = -1;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        compute_in_child(ends[1]);
    }
    CU_ASSERT_EQUAL(read(ends[0], keys, sizeof keys), (ssize_t)sizeof keys);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ends[0]);
    close(ends[1]);
    set_up(&r);
    case_open(&r.c);
    ASSERT_STATUS(PKV_OK, prefix_create(&r.c, &a, 0, &r.options));
    (void)routed_prompt(&r, &a);
    prefix_append(&r.c, &a, 19);
    ASSERT_STATUS(PKV_OK,
                  pkv_events_drain(r.c.cache, events, sizeof(struct pkv_event), 64, &count, NULL));
    CU_ASSERT_EQUAL_FATAL(count, 4);
    for (int32_t i = 0; i < 4; i++) {
        CU_ASSERT(events[i].kind == PKV_EVENT_STORED && events[i].depth == i);
        CU_ASSERT_TRUE(same_key(events[i].key, keys[i]));
    }
    CU_ASSERT(is_zero(keys[4]));
    prefix_destroy(&r.c, &a);
    case_close(&r.c);
}

/* A configuration with its defaults filled in makes the same keys. */
static void defaults_of_a_configuration_make_no_other_keys(void)
{
    struct routed r;
    struct pkv_block_key keys[2][MAX_KEYS];
    set_up(&r);
    const struct pkv_prompt prompt = routed_prompt(&r, &a);
    CU_ASSERT_EQUAL(keys_of(&r, &prompt, keys[0]), 4);
    case_open(&r.c);
    struct pkv_cache_config config = {.size = sizeof config};
    int32_t count = 0;
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(r.c.cache, &config));
    config.fingerprint = r.c.config.fingerprint;
    config.fingerprint_bytes = r.c.config.fingerprint_bytes;
    ASSERT_STATUS(PKV_OK, pkv_prefix_keys(&config, &r.options, &prompt, MAX_KEYS, keys[1], &count));
    CU_ASSERT_EQUAL(memcmp(keys[0], keys[1], 4 * sizeof keys[0][0]), 0);
    ASSERT_STATUS(PKV_OK, pkv_prefix_keys(&config, &r.options, &prompt, 2, keys[1], &count));
    CU_ASSERT(count == 2);
    ASSERT_STATUS(PKV_OK, pkv_prefix_keys(&config, &r.options, &prompt, 0, NULL, &count));
    CU_ASSERT(count == 0);
    case_close(&r.c);
}

static void keys_refuse_what_a_cache_refuses(void)
{
    const struct pkv_namespace_field twice[] = {prefix_field_of(SALT, "a", 0),
                                                prefix_field_of(SALT, "b", 0)};
    struct routed r;
    struct pkv_block_key keys[MAX_KEYS];
    int32_t count = -7;
    set_up(&r);
    struct pkv_prompt prompt = routed_prompt(&r, &a);
    struct pkv_cache_config *config = &r.c.config;
    const struct pkv_seq_options doubled = options_in(twice, 2);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "count is NULL",
                   pkv_prefix_keys(config, NULL, &prompt, MAX_KEYS, keys, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_keys",
                   pkv_prefix_keys(config, NULL, &prompt, 1, NULL, &count));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_keys",
                   pkv_prefix_keys(config, NULL, &prompt, -1, keys, &count));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config is NULL",
                   pkv_prefix_keys(NULL, NULL, &prompt, MAX_KEYS, keys, &count));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "prompt is NULL",
                   pkv_prefix_keys(config, NULL, NULL, MAX_KEYS, keys, &count));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "appears twice",
                   pkv_prefix_keys(config, &doubled, &prompt, MAX_KEYS, keys, &count));
    struct test_memory memory = {.fail_at = 1};
    config->hooks = test_hooks(&memory);
    ASSERT_REFUSED(PKV_NO_MEMORY, "block's content",
                   pkv_prefix_keys(config, NULL, &prompt, MAX_KEYS, keys, &count));
    memory.fail_at = 0;
    prompt.num_tokens = 3;
    CU_ASSERT_EQUAL(count, -7);
    ASSERT_STATUS(PKV_OK, pkv_prefix_keys(config, NULL, &prompt, MAX_KEYS, keys, &count));
    CU_ASSERT_EQUAL(count, 0);
    config->prefix_cache = false;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "prefix_cache",
                   pkv_prefix_keys(config, NULL, &prompt, MAX_KEYS, keys, &count));
    CU_ASSERT_EQUAL(memory.live, 0);
}

static const struct test_case cases[] = {
    TEST(salts_change_keys_from_where_they_begin),
    TEST(every_bit_of_an_extra_counts),
    TEST(keys_of_another_process_are_those_of_events),
    TEST(defaults_of_a_configuration_make_no_other_keys),
    TEST(keys_refuse_what_a_cache_refuses),
    TEST_END,
};
const struct test_suite suite_runtime_keys = {"runtime_keys", cases};
