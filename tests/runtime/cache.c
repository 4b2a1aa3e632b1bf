/* SPDX-License-Identifier: MIT
 *
 * The cache as an object: what its config may be, what it costs, how it reads back, how it ends. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "support/runtime_case.h"

/* Two groups and three layers, so that an index in a refusal means something. */
static void init_two_groups(struct runtime_case *c)
{
    case_init(c);
    struct pkv_group_config *window = case_add_group(c);
    window->kv_heads = 2;
    window->sliding_window = 6;
    window->block_size = 3;
    window->num_blocks = 24;
    case_add_layer(c, 1);
    case_add_layer(c, 1);
}

enum part { CONFIG, GROUP, LAYER, CONSTANTS };

/* One field of one part set to one value; the index says of which group or layer. */
struct fault {
    enum part part;
    int32_t index;
    size_t offset;
    size_t bytes; /* of the field: 4 or 8 */
    int64_t value;
    enum pkv_status status;
    const char *name;
};

#define FIELD(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
#define CONFIG_FIELD(field) CONFIG, 0, FIELD(pkv_cache_config, field)
#define GROUP_FIELD(field) GROUP, 1, FIELD(pkv_group_config, field)
#define LAYER_FIELD(field) LAYER, 2, FIELD(pkv_layer_config, field)

static const struct fault faults[] = {
    {CONFIG_FIELD(size), 0, PKV_INVALID_ARGUMENT, "size"},
    {CONFIG_FIELD(size), 8, PKV_INVALID_ARGUMENT, "size"},
    {CONFIG_FIELD(groups), 0, PKV_INVALID_ARGUMENT, "groups"},
    {CONFIG_FIELD(num_groups), 0, PKV_INVALID_ARGUMENT, "num_groups"},
    {CONFIG_FIELD(num_groups), -1, PKV_INVALID_ARGUMENT, "num_groups"},
    {CONFIG_FIELD(layers), 0, PKV_INVALID_ARGUMENT, "layers"},
    {CONFIG_FIELD(num_layers), 0, PKV_INVALID_ARGUMENT, "num_layers"},
    {CONFIG_FIELD(num_layers), INT32_MIN, PKV_INVALID_ARGUMENT, "num_layers"},
    {CONFIG_FIELD(dtype), PKV_INT8, PKV_INVALID_ARGUMENT, "dtype"},
    {CONFIG_FIELD(dtype), 99, PKV_INVALID_ARGUMENT, "dtype"},
    {CONFIG_FIELD(max_seqs), 0, PKV_INVALID_ARGUMENT, "max_seqs"},
    {CONFIG_FIELD(max_seqs), -1, PKV_INVALID_ARGUMENT, "max_seqs"},
    {CONFIG_FIELD(max_seq_len), 0, PKV_INVALID_ARGUMENT, "max_seq_len"},
    {CONFIG_FIELD(max_seq_len), -8, PKV_INVALID_ARGUMENT, "max_seq_len"},
    {CONFIG_FIELD(max_step_rows), -1, PKV_INVALID_ARGUMENT, "max_step_rows"},
    {CONFIG_FIELD(max_step_tokens), 0, PKV_INVALID_ARGUMENT, "max_step_tokens"},
    {CONFIG_FIELD(max_step_tokens), -1, PKV_INVALID_ARGUMENT, "max_step_tokens"},
    {CONFIG_FIELD(num_threads), -1, PKV_INVALID_ARGUMENT, "num_threads"},
    {CONFIG_FIELD(num_threads), 1025, PKV_INVALID_ARGUMENT, "num_threads"},
    {CONFIG_FIELD(isa), 99, PKV_INVALID_ARGUMENT, "isa"},
    {GROUP_FIELD(kind), PKV_GROUP_STATE, PKV_INVALID_ARGUMENT, "state_bytes"},
    {GROUP_FIELD(kind), 7, PKV_INVALID_ARGUMENT, "kind"},
    {GROUP_FIELD(storage), 7, PKV_INVALID_ARGUMENT, "storage"},
    {GROUP_FIELD(kv_heads), 0, PKV_INVALID_ARGUMENT, "kv_heads"},
    {GROUP_FIELD(kv_heads), -2, PKV_INVALID_ARGUMENT, "kv_heads"},
    {GROUP_FIELD(k_width), 0, PKV_INVALID_ARGUMENT, "k_width"},
    {GROUP_FIELD(k_width), -1, PKV_INVALID_ARGUMENT, "k_width"},
    {GROUP_FIELD(v_width), -1, PKV_INVALID_ARGUMENT, "v_width"},
    {GROUP_FIELD(k_dtype), 99, PKV_INVALID_ARGUMENT, "k_dtype"},
    {GROUP_FIELD(v_dtype), 99, PKV_INVALID_ARGUMENT, "v_dtype"},
    {GROUP_FIELD(block_size), 0, PKV_INVALID_ARGUMENT, "block_size"},
    {GROUP_FIELD(block_size), -4, PKV_INVALID_ARGUMENT, "block_size"},
    {GROUP_FIELD(sliding_window), -1, PKV_INVALID_ARGUMENT, "sliding_window"},
    {GROUP_FIELD(kept_prefix), -1, PKV_INVALID_ARGUMENT, "kept_prefix"},
    {GROUP_FIELD(num_blocks), -1, PKV_INVALID_ARGUMENT, "num_blocks"},
    {LAYER_FIELD(group), -1, PKV_INVALID_ARGUMENT, "group"},
    {LAYER_FIELD(group), 2, PKV_INVALID_ARGUMENT, "group"},
    {LAYER_FIELD(num_heads), 0, PKV_INVALID_ARGUMENT, "num_heads"},
    {LAYER_FIELD(num_heads), -2, PKV_INVALID_ARGUMENT, "num_heads"},
    {LAYER_FIELD(num_heads), 3, PKV_INVALID_ARGUMENT, "num_heads"}, /* B8: 3 over 2 */
};

static void set_integer(char *field, size_t bytes, int64_t value)
{
    if (bytes == sizeof(int32_t)) {
        const int32_t narrow = (int32_t)value;
        memcpy(field, &narrow, sizeof narrow);
    } else {
        memcpy(field, &value, sizeof value);
    }
}

static void spoil(struct runtime_case *c, const struct fault *fault)
{
    char *part = fault->part == CONFIG  ? (char *)&c->config
                 : fault->part == GROUP ? (char *)&c->groups[fault->index]
                                        : (char *)&c->layers[fault->index];
    set_integer(part + fault->offset, fault->bytes, fault->value);
}

/* Sizing, its inverse and creating refuse alike, name the culprit, and touch nothing. */
static void assert_refused(struct runtime_case *c, enum pkv_status status, const char *name,
                           const char *where)
{
    struct pkv_cache_sizes sizes = {sizeof sizes, 1, 2, 3, 4, 5};
    pkv_cache *cache = NULL;
    ASSERT_CASE_REFUSED(where, status, name, pkv_cache_size(&c->config, &sizes));
    ASSERT_CASE_REFUSED(name, status, where, pkv_cache_size(&c->config, &sizes));
    CU_ASSERT(sizes.payload_bytes == 1 && sizes.table_bytes == 2);
    CU_ASSERT(sizes.metadata_bytes == 3 && sizes.token_bytes == 4 && sizes.swap_bytes == 5);
    ASSERT_REFUSED(status, name, pkv_cache_create(&c->config, &cache));
    CU_ASSERT_PTR_NULL(cache);
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(cache, false));
    CU_ASSERT_EQUAL(c->memory.live, 0);
    CU_ASSERT_EQUAL(c->memory.num_wrong, 0);
}

static void every_bad_field_refuses_and_is_named(void)
{
    static const char *const where[] = {"", "groups[1]", "layers[2]"};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct runtime_case c;
        init_two_groups(&c);
        spoil(&c, &faults[i]);
        assert_refused(&c, faults[i].status, faults[i].name, where[faults[i].part]);
    }
}

static void the_config_of_these_cases_is_itself_accepted(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    init_two_groups(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    case_open(&c);
    case_close(&c);
}

static void a_group_without_blocks_or_budget_refuses(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    init_two_groups(&c);
    c.groups[1].num_blocks = 0;
    c.config.bytes = 0;
    ASSERT_REFUSED(PKV_NEVER_FITS, "bytes", pkv_cache_size(&c.config, &sizes));
}

static void values_wider_than_the_keys_they_lie_in_refuse(void)
{
    struct runtime_case c;
    init_two_groups(&c);
    c.groups[1].v_in_k = true;
    c.groups[1].v_width = c.groups[1].k_width + 1;
    assert_refused(&c, PKV_INVALID_ARGUMENT, "v_width", "groups[1]");
}

static void half_a_pair_of_hooks_refuses(void)
{
    struct runtime_case c;
    pkv_cache *cache = NULL;
    init_two_groups(&c);
    c.config.hooks.free = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "hooks", pkv_cache_create(&c.config, &cache));
    init_two_groups(&c);
    c.config.hooks.map_pages = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "hooks", pkv_cache_create(&c.config, &cache));
    CU_ASSERT_PTR_NULL(cache);
    CU_ASSERT_EQUAL(c.memory.live, 0);
}

/* Layer 2 shares; what it names is wrong in each possible way. */
static void a_sharing_layer_must_follow_an_owner_of_its_group(void)
{
    static const struct {
        int32_t kv_layer;
        int32_t group;
        bool owner_shares;
    } wrong[] = {{-1, 1, false}, {3, 1, false}, {2, 1, false}, {0, 1, false}, {1, 1, true}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct runtime_case c;
        init_two_groups(&c);
        case_add_layer(&c, 1);
        c.layers[2].shares_kv = true;
        c.layers[2].kv_layer = wrong[i].kv_layer;
        if (wrong[i].owner_shares) {
            c.layers[1].shares_kv = true;
            c.layers[1].kv_layer = 0;
            c.layers[1].group = 0;
            c.layers[2].group = 0;
        }
        assert_refused(&c, PKV_INVALID_ARGUMENT, "kv_layer", "layers[2]");
    }
}

static void assert_constants_refused(struct runtime_case *c, const char *name)
{
    assert_refused(c, PKV_INVALID_ARGUMENT, name, "layers[2]");
    memset(&c->layers[2].constants, 0, sizeof c->layers[2].constants);
}

static void bad_constants_of_a_layer_refuse(void)
{
    static const float not_a_number = NAN;
    static const float infinite = INFINITY;
    static const float scale = 0.5f;
    struct runtime_case c;
    init_two_groups(&c);
    struct pkv_attn_constants *constants = &c.layers[2].constants;
    constants->q_scale = &not_a_number;
    assert_constants_refused(&c, "q_scale");
    constants->q_scale = &infinite;
    assert_constants_refused(&c, "q_scale");
    constants->softcap = -1;
    assert_constants_refused(&c, "softcap");
    constants->softcap = NAN;
    assert_constants_refused(&c, "softcap");
    constants->smooth_softmax = true;
    constants->head_sink = &scale;
    constants->head_sink_count = 1;
    assert_constants_refused(&c, "smooth_softmax");
}

/* Options that mean nothing without others. */
static void constants_that_need_others_refuse_alone(void)
{
    static const float scale = 0.5f;
    struct runtime_case c;
    init_two_groups(&c);
    struct pkv_attn_constants *constants = &c.layers[2].constants;
    constants->qk_norm_eps = 1e-6f; /* without a norm weight */
    assert_constants_refused(&c, "qk_norm_eps");
    constants->rotary_offset = 2; /* without cos/sin tables */
    assert_constants_refused(&c, "rotary_offset");
    constants->rotary_mode = PKV_ROTARY_INTERLEAVED;
    assert_constants_refused(&c, "rotary_mode");
    constants->k_scale = &scale; /* of a float cache */
    constants->k_scale_count = 1;
    assert_constants_refused(&c, "k_scale");
}

/* B5: sizes that do not fit 64 bits are refused, not wrapped. */
static void a_geometry_past_all_memory_refuses(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    pkv_cache *cache = NULL;
    case_init(&c);
    c.groups[0].kv_heads = c.layers[0].num_heads = INT32_MAX;
    c.groups[0].k_width = c.groups[0].block_size = c.groups[0].num_blocks = INT32_MAX;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_create(&c.config, &cache));
    CU_ASSERT_PTR_NULL(cache);
    CU_ASSERT_EQUAL(c.memory.live, 0);
}

static void null_arguments_refuse(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_cache_config config = {.size = sizeof config};
    struct pkv_kv_view view;
    struct pkv_group_usage usage = {.size = sizeof usage};
    int32_t count = 0;
    pkv_cache *cache = NULL;
    case_init(&c);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(NULL, &sizes));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_blocks_for_bytes(NULL, 1, &count));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_blocks_for_bytes(&c.config, 4096, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_create(NULL, &cache));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_create(&c.config, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_describe(NULL, &config));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(NULL, 0, &view));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_usage(NULL, 0, &usage));
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(NULL, false));
    CU_ASSERT_EQUAL(c.memory.live, 0);
    case_open(&c);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_describe(c.cache, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_usage(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_usage(c.cache, 1, &usage));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_usage(c.cache, -1, &usage));
    case_close(&c);
}

/* One group of num_layers layers, sizes alone. */
static struct pkv_cache_sizes sizes_of(int32_t num_layers, int32_t num_owning, int32_t kv_heads,
                                       int32_t width, enum pkv_dtype dtype, int32_t block_size)
{
    struct pkv_layer_config layers[64] = {{0}};
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    case_init(&c);
    for (int32_t i = 0; i < num_layers; i++) {
        layers[i].num_heads = kv_heads;
        layers[i].shares_kv = i >= num_owning;
        layers[i].kv_layer = i % num_owning;
    }
    c.config.layers = layers;
    c.config.num_layers = num_layers;
    c.groups[0].kv_heads = kv_heads;
    c.groups[0].k_width = width;
    c.groups[0].k_dtype = c.groups[0].v_dtype = dtype;
    c.groups[0].block_size = block_size;
    c.groups[0].num_blocks = 1;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    return sizes;
}

/* lessons 11: the calculator's reference values */
static void sizes_are_those_of_known_models(void)
{
    CU_ASSERT_EQUAL(sizes_of(16, 16, 4, 256, PKV_F16, 64).payload_bytes, 4194304);
    CU_ASSERT_EQUAL(sizes_of(64, 64, 4, 256, PKV_F16, 64).payload_bytes, 16777216);
    CU_ASSERT_EQUAL(sizes_of(64, 16, 4, 256, PKV_F16, 64).payload_bytes, 4194304);
    CU_ASSERT_EQUAL(sizes_of(36, 36, 8, 64, PKV_BF16, 16).token_bytes, 73728);
    CU_ASSERT_EQUAL(sizes_of(32, 32, 8, 128, PKV_F16, 16).payload_bytes, 2097152);
}

static void sizes_count_widths_dtypes_and_values_in_keys_apart(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    init_two_groups(&c);
    c.groups[0].k_width = 5;
    c.groups[0].v_width = 3;
    c.groups[0].k_dtype = PKV_F16;
    c.groups[0].v_dtype = PKV_F32;
    c.groups[1].k_width = 8;
    c.groups[1].v_width = 4;
    c.groups[1].v_in_k = true;
    c.groups[1].k_dtype = PKV_BF16;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    const size_t first = 5 * 2 + 3 * 4;    /* one layer, one head; the blocks are whole lines */
    const size_t second = 2 * 2 * (8 * 2); /* two layers, two heads */
    CU_ASSERT_EQUAL(sizes.token_bytes, first + second);
    CU_ASSERT_EQUAL(sizes.payload_bytes, 16 * 4 * first + 24 * 3 * second);
    c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    CU_ASSERT_EQUAL(sizes.payload_bytes, 16 * 4 * first + 8 * 64 * second);
    /* a part that is no whole number of lines is rounded up to one, and nothing more */
    c.groups[1].storage = PKV_STORAGE_PAGED;
    c.groups[1].k_width = 7;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    const size_t part = 24 * 3 * 2 * (7 * 2);
    CU_ASSERT_EQUAL(sizes.payload_bytes, 16 * 4 * first + 2 * ((part + 63) / 64 * 64));
}

/* What create takes for attention, which is scratch and no part of the sizes. */
static size_t scratch_bytes(const struct runtime_case *c)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    const int num_threads = c->config.num_threads;
    pkv_workspace *workspace;
    pkv_plan *plan;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(num_threads, c->config.isa, &hooks, &workspace));
    const size_t without_plans = memory.live_bytes;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    /* those of the two groups, and that of selected blocks */
    const size_t bytes = without_plans + 3 * (memory.live_bytes - without_plans);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    return bytes;
}

static void sizes_are_what_create_takes(void)
{
    for (int variant = 0; variant < 3; variant++) {
        struct runtime_case c;
        struct pkv_cache_sizes sizes = {.size = sizeof sizes};
        init_two_groups(&c);
        c.groups[1].storage = variant == 1 ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
        c.groups[0].num_blocks = variant == 2 ? 1000 : 16;
        c.config.max_seqs = variant == 2 ? 33 : 8;
        ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
        case_open(&c);
        CU_ASSERT_EQUAL(c.memory.map_bytes, sizes.payload_bytes + sizes.table_bytes);
        CU_ASSERT_EQUAL(c.memory.alloc_bytes, sizes.metadata_bytes + scratch_bytes(&c));
        case_close(&c);
    }
}

static size_t payload_of(struct runtime_case *c, int32_t num_blocks)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    const int32_t before = c->groups[0].num_blocks;
    c->groups[0].num_blocks = num_blocks;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c->config, &sizes));
    c->groups[0].num_blocks = before;
    return sizes.payload_bytes;
}

/* The most blocks whose payload, with whatever padding sizing counts, is within the bytes. */
static void blocks_for_bytes_is_the_inverse_of_sizing(void)
{
    for (int32_t width = 1; width <= 16; width *= 2) {
        struct runtime_case c;
        int32_t count = -1;
        case_init(&c);
        c.config.max_seqs = 100;
        c.groups[0].k_width = width;
        c.groups[0].num_blocks = 0;
        ASSERT_STATUS(PKV_NEVER_FITS, pkv_cache_blocks_for_bytes(&c.config, 0, &count));
        ASSERT_STATUS(PKV_NEVER_FITS,
                      pkv_cache_blocks_for_bytes(&c.config, payload_of(&c, 1) - 1, &count));
        CU_ASSERT_EQUAL(count, -1);
        for (size_t bytes = payload_of(&c, 1); bytes < payload_of(&c, 20); bytes += 7) {
            ASSERT_STATUS(PKV_OK, pkv_cache_blocks_for_bytes(&c.config, bytes, &count));
            CU_ASSERT(payload_of(&c, count) <= bytes && payload_of(&c, count + 1) > bytes);
        }
    }
}

/* Blocks of whole cache lines, so that nothing is padded: what a token and a block cost. */
#define TOKEN_0 ((size_t)(2 * 8 * 4))         /* one layer, one head, K and V of 8 floats */
#define TOKEN_1 ((size_t)(2 * 2 * 2 * 8 * 4)) /* two layers, two heads */
#define BLOCK_0 (4 * TOKEN_0)
#define BLOCK_1 (3 * TOKEN_1)

static void init_two_wide_groups(struct runtime_case *c)
{
    init_two_groups(c);
    c->groups[0].k_width = c->groups[1].k_width = 8;
}

static void a_budget_is_shared_out_over_the_groups(void)
{
    for (size_t bytes = 8000; bytes < 80000; bytes += 777) {
        struct runtime_case c;
        struct pkv_cache_sizes sizes = {.size = sizeof sizes};
        struct pkv_cache_config described = {.size = sizeof described};
        int32_t counts[3] = {0};
        init_two_wide_groups(&c);
        case_add_group(&c)->num_blocks = 5;
        case_add_layer(&c, 2);
        c.config.max_seqs = 200;
        c.groups[0].num_blocks = c.groups[1].num_blocks = 0;
        c.config.bytes = bytes;
        ASSERT_STATUS(PKV_OK, pkv_cache_blocks_for_bytes(&c.config, bytes, counts));
        ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
        CU_ASSERT(counts[0] >= 1 && counts[1] >= 1);
        CU_ASSERT_EQUAL(counts[2], 5);
        CU_ASSERT(sizes.payload_bytes <= bytes);
        /* what is left over is less than one block of each group that shares */
        CU_ASSERT(sizes.payload_bytes + BLOCK_0 + BLOCK_1 > bytes);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &described));
        for (int32_t g = 0; g < 3; g++) {
            CU_ASSERT_EQUAL(described.groups[g].num_blocks, counts[g]);
        }
        case_close(&c);
    }
}

static void a_fixed_group_or_rows_can_use_up_the_budget(void)
{
    struct runtime_case c;
    int32_t counts[2] = {-1, -1};
    init_two_wide_groups(&c);
    c.groups[0].num_blocks = 0;
    const size_t fixed = 24 * BLOCK_1;
    ASSERT_STATUS(PKV_NEVER_FITS,
                  pkv_cache_blocks_for_bytes(&c.config, fixed + BLOCK_0 - 1, counts));
    CU_ASSERT(counts[0] == -1 && counts[1] == -1);
    ASSERT_STATUS(PKV_OK, pkv_cache_blocks_for_bytes(&c.config, fixed + BLOCK_0, counts));
    CU_ASSERT(counts[0] == 1 && counts[1] == 24);
    c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    const size_t rows = 8 * 64 * TOKEN_1;
    ASSERT_STATUS(PKV_NEVER_FITS,
                  pkv_cache_blocks_for_bytes(&c.config, rows + BLOCK_0 - 1, counts));
    ASSERT_STATUS(PKV_OK, pkv_cache_blocks_for_bytes(&c.config, rows + 2 * BLOCK_0, counts));
    CU_ASSERT(counts[0] == 2 && counts[1] == 8);
}

/* B7: block sizes, strides and bounds are read from the cache, not guessed. */
static void describe_gives_the_bounds_in_force(void)
{
    struct runtime_case c;
    struct pkv_cache_config got;
    init_two_groups(&c);
    c.groups[1].sliding_window = (int64_t)1 << 40;
    c.groups[1].kept_prefix = 3;
    c.config.num_threads = 0;
    c.config.isa = PKV_ISA_BEST;
    case_open(&c);
    memset(&got, 0x5a, sizeof got);
    got.size = sizeof got;
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.size, sizeof got);
    CU_ASSERT(got.num_groups == 2 && got.num_layers == 3);
    CU_ASSERT(got.groups != c.groups && got.layers != c.layers);
    CU_ASSERT(got.dtype == PKV_F32 && got.max_seqs == 8 && got.max_seq_len == 64);
    CU_ASSERT_EQUAL(got.max_step_rows, 8);
    CU_ASSERT_EQUAL(got.max_step_tokens, 64);
    CU_ASSERT(got.num_threads >= 1);
    CU_ASSERT(got.poison_freed && !got.zero_freed);
    CU_ASSERT(got.hooks.context == NULL && got.hooks.alloc == NULL && got.hooks.log == NULL);
    CU_ASSERT(got.groups[0].num_blocks == 16 && got.groups[1].num_blocks == 24);
    CU_ASSERT(got.groups[0].v_width == 2 && got.groups[0].block_size == 4);
    CU_ASSERT_EQUAL(got.groups[1].sliding_window, 64);
    CU_ASSERT_EQUAL(got.groups[1].kept_prefix, 3);
    CU_ASSERT(got.layers[2].group == 1 && got.layers[2].num_heads == 2);
    case_close(&c);
}

static void the_config_is_copied_whole(void)
{
    static const float right = 0.25f;
    struct runtime_case c;
    struct case_seq seq;
    init_two_groups(&c);
    c.layers[0].constants.q_scale = &right;
    struct pkv_group_config groups[2] = {c.groups[0], c.groups[1]};
    struct pkv_layer_config layers[3] = {c.layers[0], c.layers[1], c.layers[2]};
    float scale = right;
    layers[0].constants.q_scale = &scale;
    c.config.groups = groups;
    c.config.layers = layers;
    case_open(&c);
    scale = -8;
    memset(groups, 0x55, sizeof groups);
    memset(layers, 0x55, sizeof layers);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 9));
    case_close(&c);
}

static void views_are_stable_and_disjoint(void)
{
    struct runtime_case c;
    struct pkv_kv_view views[4];
    struct pkv_kv_view again;
    init_two_groups(&c);
    case_add_layer(&c, 1);
    c.layers[3].shares_kv = true;
    c.layers[3].kv_layer = 2;
    c.groups[0].storage = PKV_STORAGE_CONTINUOUS;
    case_open(&c);
    for (int32_t i = 0; i < 4; i++) {
        ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, i, &views[i]));
        ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, i, &again));
        CU_ASSERT(again.k == views[i].k && again.v == views[i].v);
        CU_ASSERT(views[i].k != NULL && views[i].v != NULL && views[i].k != views[i].v);
    }
    CU_ASSERT(views[0].num_blocks == 8 && views[0].block_size == 64);
    CU_ASSERT(views[1].num_blocks == 24 && views[1].block_size == 3);
    CU_ASSERT(views[1].kv_heads == 2 && views[1].k_width == 2 && views[1].v_width == 2);
    CU_ASSERT_PTR_EQUAL(views[3].k, views[2].k);
    CU_ASSERT_PTR_EQUAL(views[3].v, views[2].v);
    CU_ASSERT_PTR_NOT_EQUAL(views[1].k, views[2].k);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(c.cache, 4, &again));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(c.cache, -1, &again));
    CU_ASSERT_PTR_EQUAL(again.k, views[3].k);
    case_close(&c);
}

static void a_closed_cache_takes_no_new_work_and_finishes_the_old(void)
{
    struct runtime_case c;
    struct case_seq a, b;
    struct case_step open = {0};
    struct case_step late = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    case_row(&open, &a, 5);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &open, 1));
    pkv_cache_close(c.cache);
    pkv_cache_close(c.cache);
    pkv_seq handle = {0};
    ASSERT_STATUS(PKV_BUSY, pkv_seq_create(c.cache, NULL, &handle));
    ASSERT_STATUS(PKV_BUSY, case_admit(&c, &b, 3, 0, NULL));
    case_attend_all(&c, &open);
    case_commit(&c, &open, NULL);
    case_row(&late, &a, 1);
    ASSERT_STATUS(PKV_BUSY, case_begin(&c, &late, 1));
    CU_ASSERT_EQUAL(handle.id, 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

static void destroy_waits_for_the_open_step_unless_forced(void)
{
    struct runtime_case c;
    struct case_seq a;
    struct case_step step = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    case_row(&step, &a, 5);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    ASSERT_STATUS(PKV_BUSY, pkv_cache_destroy(c.cache, false));
    case_attend_all(&c, &step); /* still usable */
    ASSERT_STATUS(PKV_BUSY, pkv_cache_destroy(c.cache, false));
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(c.cache, true));
    CU_ASSERT_EQUAL(c.memory.live, 0);
    CU_ASSERT_EQUAL(c.memory.num_wrong, 0);
}

static void destroy_frees_what_sequences_still_hold(void)
{
    struct runtime_case c;
    struct case_seq a, b;
    init_two_groups(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 20));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a, 20, &b));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b, 3));
    case_close(&c);
}

/* I2: create undoes everything when any of its allocations fails. */
static void create_that_fails_at_any_allocation_leaves_nothing(void)
{
    for (int variant = 0; variant < 2; variant++) {
        enum pkv_status status = PKV_NO_MEMORY;
        for (long k = 1; status != PKV_OK && k < 1000; k++) {
            struct runtime_case c;
            init_two_groups(&c);
            c.groups[1].storage = variant ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED;
            c.memory.fail_at = k;
            status = pkv_cache_create(&c.config, &c.cache);
            if (status == PKV_OK) {
                CU_ASSERT(k > 3);
                case_close(&c);
                continue;
            }
            CU_ASSERT_EQUAL(status, PKV_NO_MEMORY);
            CU_ASSERT_PTR_NULL(c.cache);
            CU_ASSERT_EQUAL(c.memory.live, 0);
            CU_ASSERT_EQUAL(c.memory.num_wrong, 0);
        }
        CU_ASSERT_EQUAL(status, PKV_OK);
    }
}

/* I2: scratch that the first steps grow may be refused; the cache is then as it was. */
static void begin_that_fails_at_any_allocation_changes_nothing(void)
{
    enum pkv_status status = PKV_NO_MEMORY;
    for (long k = 1; status != PKV_OK && k < 100; k++) {
        struct runtime_case c;
        struct case_seq a, b;
        struct case_step step = {0};
        init_two_groups(&c);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
        c.memory.fail_at = c.memory.calls + k;
        case_row(&step, &a, 30);
        case_row(&step, &b, 7);
        status = case_begin(&c, &step, 2);
        c.memory.fail_at = 0;
        if (status != PKV_OK) {
            CU_ASSERT_EQUAL(status, PKV_NO_MEMORY);
            CU_ASSERT_EQUAL(case_held(&c, 0) + case_held(&c, 1), 0);
            CU_ASSERT_EQUAL(case_check(&c), 0);
            ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        }
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        case_close(&c);
    }
    CU_ASSERT_EQUAL(status, PKV_OK);
}

/* Attend, commit, abort and destroy take no memory. */
static void an_open_step_takes_no_memory(void)
{
    struct runtime_case c;
    struct case_seq a, b;
    struct case_step step = {0};
    init_two_groups(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 30));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a, 30, &b));
    case_row(&step, &a, 2);
    case_row(&step, &b, 3);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    const long calls = c.memory.calls;
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b, 0));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, b.handle));
    CU_ASSERT_EQUAL(c.memory.calls, calls);
    case_close(&c);
}

static void a_cache_without_hooks_works(void)
{
    struct runtime_case c;
    struct case_seq a;
    init_two_groups(&c);
    memset(&c.config.hooks, 0, sizeof c.config.hooks);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 20));
    case_close(&c);
}

/* All written cells of all blocks have this byte. */
static bool cells_are(struct runtime_case *c, unsigned char byte, int32_t num_blocks,
                      int32_t num_cells)
{
    struct pkv_kv_view view;
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c->cache, 0, &view));
    for (int32_t i = 0; i < 2 * num_blocks * num_cells; i++) {
        const unsigned char *cell =
            case_cell(&view, i % 2, i / 2 / num_cells, 0, i / 2 % num_cells);
        for (size_t b = 0; b < 2 * sizeof(float); b++) {
            if (cell[b] != byte) {
                return false;
            }
        }
    }
    return true;
}

static void zero_freed_leaves_no_content_behind(void)
{
    for (int storage = 0; storage < 2; storage++) {
        struct runtime_case c;
        struct case_seq a;
        case_init(&c);
        c.groups[0].storage = storage == 0 ? PKV_STORAGE_PAGED : PKV_STORAGE_CONTINUOUS;
        c.groups[0].num_blocks = 5;
        c.config.max_seqs = 1;
        c.config.poison_freed = false;
        c.config.zero_freed = true;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 20));
        CU_ASSERT_FALSE(cells_are(&c, 0, storage == 0 ? 5 : 1, storage == 0 ? 4 : 20));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
        CU_ASSERT(cells_are(&c, 0, storage == 0 ? 5 : 1, storage == 0 ? 4 : 20));
        case_close(&c);
    }
}

static void poison_freed_overwrites_a_block_that_becomes_free(void)
{
    struct runtime_case c;
    struct case_seq a;
    struct pkv_kv_view view;
    float channel = 0;
    case_init(&c);
    c.memory.fill = 0;
    c.groups[0].num_blocks = 5;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 20));
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, 0, &view));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    for (int32_t cell = 0; cell < 40; cell++) {
        memcpy(&channel, case_cell(&view, cell % 2, cell / 8, 0, cell / 2 % 4), sizeof channel);
        CU_ASSERT(isnan(channel));
    }
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(the_config_of_these_cases_is_itself_accepted),
    TEST(every_bad_field_refuses_and_is_named),
    TEST(a_group_without_blocks_or_budget_refuses),
    TEST(values_wider_than_the_keys_they_lie_in_refuse),
    TEST(half_a_pair_of_hooks_refuses),
    TEST(a_sharing_layer_must_follow_an_owner_of_its_group),
    TEST(bad_constants_of_a_layer_refuse),
    TEST(constants_that_need_others_refuse_alone),
    TEST(a_geometry_past_all_memory_refuses),
    TEST(null_arguments_refuse),
    TEST(sizes_are_those_of_known_models),
    TEST(sizes_count_widths_dtypes_and_values_in_keys_apart),
    TEST(sizes_are_what_create_takes),
    TEST(blocks_for_bytes_is_the_inverse_of_sizing),
    TEST(a_budget_is_shared_out_over_the_groups),
    TEST(a_fixed_group_or_rows_can_use_up_the_budget),
    TEST(describe_gives_the_bounds_in_force),
    TEST(the_config_is_copied_whole),
    TEST(views_are_stable_and_disjoint),
    TEST(a_closed_cache_takes_no_new_work_and_finishes_the_old),
    TEST(destroy_waits_for_the_open_step_unless_forced),
    TEST(destroy_frees_what_sequences_still_hold),
    TEST(create_that_fails_at_any_allocation_leaves_nothing),
    TEST(begin_that_fails_at_any_allocation_changes_nothing),
    TEST(an_open_step_takes_no_memory),
    TEST(a_cache_without_hooks_works),
    TEST(zero_freed_leaves_no_content_behind),
    TEST(poison_freed_overwrites_a_block_that_becomes_free),
    TEST_END,
};
const struct test_suite suite_runtime_cache = {"runtime_cache", cases};
