/* SPDX-License-Identifier: MIT
 *
 * A router beside a cache: it hears events and computes keys, and from these alone, by what
 * docs/keys.md says, it tells what the cache would adopt. Block size 4. */
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"

#define BS 4
#define MAX_LENGTH 64
#define MAX_KEYS 64
#define NUM_SLOTS (1 << 16)
#define NUM_SEQS 6
#define NUM_BASES 4

/* --- the router's side: nothing of the cache but its configuration and its events */

struct slot {
    struct pkv_block_key key;
    uint64_t groups;
};

struct router {
    struct pkv_cache_config config;
    struct slot slots[NUM_SLOTS]; /* by key; open addressing, nothing is taken out */
    int32_t num_slots;
    uint64_t next; /* number of the next event */
    int64_t num_seen;
    int64_t num_wrong;
};

/* The slot of a key: its own, or the empty one that it would get. */
static struct slot *slot_of(struct router *router, struct pkv_block_key key)
{
    uint32_t at = (uint32_t)key.low % NUM_SLOTS;
    while ((router->slots[at].key.low != 0 || router->slots[at].key.high != 0) &&
           (router->slots[at].key.low != key.low || router->slots[at].key.high != key.high)) {
        at = (at + 1) % NUM_SLOTS;
    }
    return &router->slots[at];
}

static void set_groups(struct router *router, struct pkv_block_key key, uint64_t groups)
{
    struct slot *slot = slot_of(router, key);
    router->num_slots += slot->key.low == 0 && slot->key.high == 0;
    CU_ASSERT_FATAL(router->num_slots < NUM_SLOTS / 2);
    *slot = (struct slot){.key = key, .groups = groups};
}

static void clear_all(struct router *router)
{
    memset(router->slots, 0, sizeof router->slots);
    router->num_slots = 0;
}

static void hear(struct router *router, const struct pkv_event *event)
{
    if (event->number < router->next) {
        return; /* before a walk over the blocks */
    }
    CU_ASSERT_EQUAL(event->number, router->next);
    router->next = event->number + 1;
    if (event->kind == PKV_EVENT_CLEARED) {
        clear_all(router);
        return;
    }
    /* Stored: it has more than before. Removed: it has less. */
    const uint64_t before = slot_of(router, event->key)->groups;
    const bool is_more = (before & ~event->groups) == 0 && before != event->groups;
    const bool is_less = (event->groups & ~before) == 0 && before != event->groups;
    CU_ASSERT(event->kind == PKV_EVENT_STORED ? is_more : is_less);
    set_groups(router, event->key, event->groups);
}

/* Blocks [first, end) are all in the group. */
static bool has_blocks(struct router *router, const struct pkv_block_key *keys, int32_t group,
                       int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        if ((slot_of(router, keys[i])->groups >> group & 1) == 0) {
            return false;
        }
    }
    return true;
}

/* A sequence can go on behind `count` blocks in this group. */
static bool can_go_on(struct router *router, const struct pkv_block_key *keys, int32_t count,
                      int32_t group, const struct pkv_seq_options *options)
{
    const struct pkv_group_config *of = &router->config.groups[group];
    const int64_t length = (int64_t)count * BS;
    const int64_t window = of->sliding_window + options->max_rewind;
    const int64_t kept = options->kept_prefix != NULL ? *options->kept_prefix : of->kept_prefix;
    const int64_t first_key = of->sliding_window == 0 || window > length ? 0 : length - window + 1;
    const int64_t kept_end = kept < length ? kept : length;
    return has_blocks(router, keys, group, first_key / BS, count) &&
           has_blocks(router, keys, group, 0, (kept_end + BS - 1) / BS);
}

/* The hit of a prompt; of one group alone, or with -1 of all together. */
static int32_t hit_of(struct router *router, const struct pkv_seq_options *options,
                      const struct pkv_prompt *prompt, int32_t only)
{
    struct pkv_block_key keys[MAX_KEYS];
    int32_t num_keys = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_keys(&router->config, options, prompt, MAX_KEYS, keys, &num_keys));
    for (int32_t count = (prompt->num_tokens - 1) / BS; count > 0; count--) {
        bool is_hit = true;
        for (int32_t g = 0; g < router->config.num_groups; g++) {
            is_hit =
                is_hit && ((only >= 0 && g != only) || can_go_on(router, keys, count, g, options));
        }
        if (is_hit) {
            return count * BS;
        }
    }
    return 0;
}

static void listen(struct router *router, struct runtime_case *c)
{
    struct pkv_event events[64];
    int32_t count = 64;
    while (count == 64) { /* a loss would be a gap in the numbers */
        ASSERT_STATUS(
            PKV_OK, pkv_events_drain(c->cache, events, sizeof(struct pkv_event), 64, &count, NULL));
        for (int32_t i = 0; i < count; i++) {
            hear(router, &events[i]);
        }
    }
}

/* Windows are told once. */
static void start(struct router *router, const struct runtime_case *c)
{
    clear_all(router);
    router->next = 1;
    router->config.size = sizeof router->config;
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c->cache, &router->config));
    router->config.fingerprint = c->config.fingerprint;
    router->config.fingerprint_bytes = c->config.fingerprint_bytes;
}

static bool learn_block(void *context, const struct pkv_block_info *info)
{
    struct router *router = context;
    if (info->is_indexed) {
        const uint64_t groups = slot_of(router, info->key)->groups;
        set_groups(router, info->key, groups | (uint64_t)1 << info->group);
    }
    return true;
}

/* After a loss. */
static void learn_anew(struct router *router, struct runtime_case *c)
{
    clear_all(router);
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c->cache, learn_block, router, &router->next));
}

static bool count_block(void *context, const struct pkv_block_info *info)
{
    struct router *router = context;
    if (info->is_indexed) {
        const struct slot *slot = slot_of(router, info->key);
        router->num_wrong += (slot->groups >> info->group & 1) == 0;
        router->num_seen++;
    }
    return true;
}

/* The router's index is what a walk over the blocks shows, no more and no less. */
static void compare_blocks(struct router *router, struct runtime_case *c)
{
    int64_t num_known = 0;
    router->num_seen = 0;
    router->num_wrong = 0;
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c->cache, count_block, router, NULL));
    for (int32_t i = 0; i < NUM_SLOTS; i++) {
        for (int32_t g = 0; g < router->config.num_groups; g++) {
            num_known += (int64_t)(router->slots[i].groups >> g & 1);
        }
    }
    CU_ASSERT_EQUAL(router->num_wrong, 0);
    CU_ASSERT_EQUAL(num_known, router->num_seen);
}

/* --- a cache under random operations */

struct world {
    struct runtime_case c;
    struct router router;
    struct test_random random;
    struct prefix_seq seqs[NUM_SEQS];
    bool is_alive[NUM_SEQS];
    pkv_pin pin;
    int64_t kept_prefix;
    struct pkv_namespace_field field;
};

static int32_t below(struct world *w, int32_t n)
{
    return random_between(&w->random, 0, n - 1);
}

static void open_world(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    prefix_init(&w->c);
    w->c.config.no_partial_hits = false;
    w->c.config.min_blank_percent = below(w, 2) * 20;
    w->c.groups[0].num_blocks = 40;
    struct pkv_group_config *window = case_add_group(&w->c);
    window->sliding_window = 9;
    window->num_blocks = 26;
    case_add_layer(&w->c, 1);
    w->c.config.num_events = 96;
    w->c.config.max_pinned_blocks = 6;
    case_open(&w->c);
    start(&w->router, &w->c);
    w->kept_prefix = 5;
    w->field = prefix_field_of(1, "ann", 8);
}

static struct pkv_seq_options any_options(struct world *w)
{
    const bool in_namespace = below(w, 3) == 0;
    return (struct pkv_seq_options){.size = sizeof(struct pkv_seq_options),
                                    .namespace_fields = in_namespace ? &w->field : NULL,
                                    .num_namespace_fields = in_namespace,
                                    .max_rewind = below(w, 3) == 0 ? 3 : 0,
                                    .kept_prefix = below(w, 5) == 0 ? &w->kept_prefix : NULL};
}

/* Ids of a prompt: one of a few beginnings, and from some place on tokens of a few kinds. */
static void any_text(struct world *w, int32_t ids[MAX_LENGTH + 1])
{
    const int32_t base = 1000 * below(w, NUM_BASES);
    const int32_t parts = below(w, 3) * 12 + below(w, 9);
    const int32_t kind = 100 * below(w, 40);
    for (int32_t i = 0; i <= MAX_LENGTH; i++) {
        ids[i] = i < parts ? base + i : base + kind + i;
    }
}

static void grow(struct world *w, struct prefix_seq *seq, int32_t n)
{
    struct case_step step = {0};
    if (seq->seq.length + n > MAX_LENGTH) {
        return;
    }
    case_row(&step, &seq->seq, n);
    const enum pkv_status status = prefix_begin(&w->c, &step, 1);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS);
    if (status == PKV_OK) {
        case_attend_all(&w->c, &step);
        case_commit(&w->c, &step, NULL);
    }
}

static void begin_one(struct world *w, int32_t s)
{
    struct prefix_seq *seq = &w->seqs[s];
    const struct pkv_seq_options options = any_options(w);
    const int32_t length = 1 + below(w, 48);
    ASSERT_STATUS(PKV_OK, prefix_create(&w->c, seq, 0, &options));
    any_text(w, seq->ids);
    w->is_alive[s] = true;
    if (below(w, 8) != 0 && prefix_admit(&w->c, seq, length, 0, NULL) != PKV_OK) {
        return;
    }
    while (seq->seq.length < length && below(w, 12) != 0) {
        const int32_t left = length - seq->seq.length;
        grow(w, seq, left < 10 ? left : 10);
    }
}

static void end_one(struct world *w, int32_t s)
{
    prefix_destroy(&w->c, &w->seqs[s]);
    w->is_alive[s] = false;
}

static void flush_some(struct world *w)
{
    if (below(w, 4) != 0) {
        ASSERT_STATUS(PKV_OK, pkv_namespace_flush(w->c.cache, &w->field, NULL));
    } else {
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(w->c.cache, true, NULL));
    }
}

static void pin_some(struct world *w)
{
    const struct pkv_seq_options options = any_options(w);
    int32_t ids[MAX_LENGTH + 1];
    int32_t num_pinned = 0;
    if (pkv_prefix_unpin(w->c.cache, w->pin) == PKV_OK) {
        return;
    }
    any_text(w, ids);
    ASSERT_STATUS(
        PKV_OK, pkv_prefix_pin(w->c.cache, &options, PROMPT(ids, 24), 0, 0, &w->pin, &num_pinned));
}

static void change_one(struct world *w, int32_t s)
{
    struct prefix_seq *seq = &w->seqs[s];
    const int32_t cut = below(w, seq->seq.length + 1);
    switch (below(w, 8)) {
    case 0:
    case 1: end_one(w, s); break;
    case 2:
        if (case_truncate(&w->c, &seq->seq, cut) == PKV_OK) {
            seq->seq.length = cut;
        }
        break;
    default: grow(w, seq, 1 + below(w, 6)); break;
    }
}

static void do_any(struct world *w)
{
    const int32_t s = below(w, NUM_SEQS);
    const int32_t what = below(w, 40);
    if (what == 0 && below(w, 4) == 0) {
        flush_some(w);
    } else if (what == 1) {
        pin_some(w);
    } else if (!w->is_alive[s]) {
        begin_one(w, s);
    } else {
        change_one(w, s);
    }
}

/* Of any prompt, cached or not, the router says what the probe says: of whole blocks, for what is
 * copied from the next one is a matter of the cache's tokens. */
static void ask(struct world *w, int64_t *num_hits)
{
    const struct pkv_seq_options options = any_options(w);
    int32_t ids[MAX_LENGTH + 1];
    struct pkv_probe probe = {.size = sizeof probe};
    any_text(w, ids);
    const struct pkv_prompt *prompt = PROMPT(ids, 1 + below(w, MAX_LENGTH));
    ASSERT_STATUS(PKV_OK,
                  pkv_cache_probe(w->c.cache, &options, prompt, 0, MAX_LENGTH, &probe, NULL));
    const int32_t num_whole = probe.num_cached - (int32_t)probe.num_copied;
    CU_ASSERT_EQUAL(num_whole, hit_of(&w->router, &options, prompt, -1));
    *num_hits += probe.num_cached > 0;
    int32_t group_cached[2] = {-1, -1};
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, pkv_cache_probe_groups(w->c.cache, &options, prompt, MAX_LENGTH,
                                                 group_cached, &num_cached));
    CU_ASSERT_EQUAL(num_cached / w->c.groups[0].block_size * w->c.groups[0].block_size, num_whole);
    CU_ASSERT(num_cached == probe.num_cached || probe.num_copied == 0);
    for (int32_t g = 0; g < 2; g++) {
        CU_ASSERT_EQUAL(group_cached[g] / w->c.groups[0].block_size * w->c.groups[0].block_size,
                        hit_of(&w->router, &options, prompt, g));
        CU_ASSERT(group_cached[g] >= num_cached);
    }
}

static void close_world(struct world *w)
{
    for (int32_t s = 0; s < NUM_SEQS; s++) {
        if (w->is_alive[s]) {
            end_one(w, s);
        }
    }
    (void)!pkv_prefix_unpin(w->c.cache, w->pin);
    case_close(&w->c);
}

static int64_t ops_wanted(void)
{
    const char *text = getenv("PKV_TEST_OPS");
    return text != NULL ? strtoll(text, NULL, 10) : 10000;
}

static struct world world;

/* K2: an index that follows from events alone says what a probe says, after each of 10^4 random
 * operations on a full and a window group. */
static void an_index_from_events_alone_equals_the_probe(void)
{
    const unsigned failures = CU_get_number_of_failures();
    int64_t num_hits = 0;
    const int64_t num_ops = ops_wanted();
    open_world(&world, test_seed());
    for (int64_t op = 0; op < num_ops && CU_get_number_of_failures() == failures; op++) {
        do_any(&world);
        listen(&world.router, &world.c);
        for (int32_t i = 0; i < 4; i++) {
            ask(&world, &num_hits);
        }
    }
    CU_ASSERT(num_hits > num_ops / 10);
    close_world(&world);
}

static void drop_losses(struct world *w, uint64_t *num_lost)
{
    uint64_t lost = 0;
    int32_t count = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_events_drain(w->c.cache, NULL, sizeof(struct pkv_event), 0, &count, &lost));
    *num_lost += lost;
}

/* Events are lost where nobody drains; then the blocks say everything, and later events the rest:
 * nothing that happens after the walk is told by an event from before it. */
static void a_router_that_lost_events_learns_from_the_blocks(void)
{
    const unsigned failures = CU_get_number_of_failures();
    int64_t num_hits = 0;
    uint64_t num_lost = 0;
    open_world(&world, test_seed() + 1);
    for (int32_t round = 0; round < 1000 && CU_get_number_of_failures() == failures; round++) {
        for (int32_t i = below(&world, 2) == 0 ? 1 : below(&world, 60); i > 0; i--) {
            do_any(&world);
        }
        drop_losses(&world, &num_lost);
        learn_anew(&world.router, &world.c);
        ask(&world, &num_hits);
        for (int32_t i = below(&world, 3); i >= 0; i--) {
            do_any(&world);
        }
        listen(&world.router, &world.c);
        ask(&world, &num_hits);
        compare_blocks(&world.router, &world.c);
    }
    CU_ASSERT(num_hits > 200 && num_lost > 200);
    close_world(&world);
}

/* K2: six requests under one system prompt of 40 tokens; events say what the window group lost of
 * it, and a probe says that it was this group. */
static void each_group_says_its_part_of_a_hit(void)
{
    static struct runtime_case c;
    static struct prefix_seq seq;
    static struct router router;
    bool is_shortened = false;
    prefix_init(&c);
    c.groups[0].num_blocks = 512;
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 8;
    window->num_blocks = 12;
    case_add_layer(&c, 1);
    c.config.max_seq_len = 256;
    c.config.max_step_tokens = 8;
    c.config.num_events = 256;
    case_open(&c);
    start(&router, &c);
    for (int32_t request = 0; request < 6; request++) {
        struct pkv_probe probe = {.size = sizeof probe};
        int32_t of[2] = {-1, -1};
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 0, NULL));
        for (int32_t i = 40; i < 140; i++) {
            seq.ids[i] = 1000 * (request + 1) + i;
        }
        const struct pkv_prompt prompt = prefix_prompt(&seq, 140);
        ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, 140, &probe, NULL));
        ASSERT_STATUS(PKV_OK, pkv_cache_probe_groups(c.cache, NULL, &prompt, 140, of, NULL));
        CU_ASSERT_EQUAL(probe.num_cached, hit_of(&router, &seq.options, &prompt, -1));
        CU_ASSERT_EQUAL(of[0], request == 0 ? 0 : 40);
        CU_ASSERT_EQUAL(of[1], hit_of(&router, &seq.options, &prompt, 1));
        is_shortened = is_shortened || of[1] < of[0];
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &seq, 140, 0, NULL));
        while (seq.seq.length < 140) {
            const int32_t left = 140 - seq.seq.length;
            prefix_append(&c, &seq, left < 8 ? left : 8);
        }
        prefix_destroy(&c, &seq);
        listen(&router, &c);
        compare_blocks(&router, &c);
    }
    CU_ASSERT_TRUE(is_shortened);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "group_cached",
                   pkv_cache_probe_groups(c.cache, NULL, PROMPT(seq.ids, 9), 9, NULL, NULL));
    case_close(&c);
}

/* The tokens of waiting events: each event's block has the key of its event. */
static void check_tokens(struct runtime_case *c, const struct pkv_event *events, int32_t count,
                         const int32_t *ids, const uint64_t *extra)
{
    for (int32_t i = 0; i < count; i++) {
        if (events[i].kind == PKV_EVENT_CLEARED) {
            CU_ASSERT(ids[i * BS] == 0 && ids[i * BS + BS - 1] == 0 && extra[i * BS + 1] == 0);
            continue;
        }
        CU_ASSERT_EQUAL(ids[i * BS + 1], 500 + BS * events[i].depth + 1);
        CU_ASSERT_EQUAL(extra[i * BS + 1], events[i].depth == 1 ? 77 : 0);
    }
    CU_ASSERT_EQUAL(case_check(c), 0);
}

/* K2: on request an event brings the tokens of its block, their extras too, around the ring. */
static void events_bring_the_tokens_of_their_blocks(void)
{
    static struct prefix_seq seq;
    struct runtime_case c;
    struct pkv_event events[8];
    int32_t ids[8 * BS];
    uint64_t extra[8 * BS];
    uint64_t num_lost = 0;
    int32_t count = 0;
    prefix_init(&c);
    c.config.num_events = 5;
    c.config.event_tokens = true;
    case_open(&c);
    for (int32_t round = 0; round < 4; round++) {
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 500, NULL));
        memset(seq.extra, 0, sizeof seq.extra);
        seq.extra[BS + 1] = 77;
        seq.has_extra = true;
        prefix_append(&c, &seq, 3 * BS);
        prefix_destroy(&c, &seq);
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
        ASSERT_STATUS(PKV_OK, pkv_events_drain_tokens(c.cache, events, sizeof *events, 2, ids, NULL,
                                                      &count, NULL));
        CU_ASSERT(count == 2 && ids[BS] == 504);
        ASSERT_STATUS(PKV_OK,
                      pkv_events_drain_tokens(c.cache, events + 2, sizeof *events, 6, ids + 2 * BS,
                                              extra + 2 * BS, &count, &num_lost));
        CU_ASSERT(count == 2 && num_lost == 0 && events[3].kind == PKV_EVENT_CLEARED);
        check_tokens(&c, events + 2, count, ids + 2 * BS, extra + 2 * BS);
    }
    case_close(&c);
}

static void tokens_of_events_refuse_without_the_flag(void)
{
    struct runtime_case c;
    struct pkv_event events[8];
    struct pkv_cache_sizes with = {.size = sizeof with};
    struct pkv_cache_sizes without = {.size = sizeof without};
    int32_t count = 0;
    prefix_init(&c);
    c.config.num_events = 64;
    case_open(&c);
    ASSERT_REFUSED(
        PKV_UNSUPPORTED, "event_tokens",
        pkv_events_drain_tokens(c.cache, events, sizeof *events, 8, NULL, NULL, &count, NULL));
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &without));
    c.config.event_tokens = true;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &with));
    CU_ASSERT_EQUAL(with.metadata_bytes - without.metadata_bytes, 64 * BS * 12);
    c.config.event_tokens = false;
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(events_bring_the_tokens_of_their_blocks),
    TEST(tokens_of_events_refuse_without_the_flag),
    TEST(each_group_says_its_part_of_a_hit),
    TEST(an_index_from_events_alone_equals_the_probe),
    TEST(a_router_that_lost_events_learns_from_the_blocks),
    TEST_END,
};
const struct test_suite suite_runtime_router = {"runtime_router", cases};
