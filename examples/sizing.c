/* SPDX-License-Identifier: MIT
 *
 * sizing: what a model's KV cache takes on this machine. From the model's numbers and a budget of
 * memory it computes bytes a token, blocks of each layer group and a watermark, then creates that
 * cache and admits sequences until one is refused: so the library itself says how many fit. Pages
 * that are never written take no memory, so 64 GiB can be tried on a laptop.
 *
 * Layers with a sliding window are a group of their own: they keep the window, not the sequence.
 * docs/sizing.md works through four models. Exit status 0, or 1 after a line on stderr. */
#include "report.h"
#include "source.h"

#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char program_name[] = "sizing";

enum { MAX_LAYERS = 256, MAX_GROUPS = 2, MAX_SEQS = 16384 };

static const char usage[] =
    "sizing: blocks and bytes of a model's KV cache, and how many sequences fit\n"
    "\n"
    "  --model NAME        llama-3-8b, qwen3-30b-a3b, gpt-oss-20b, deepseek-v3; or its numbers:\n"
    "  --layers N          layers that have keys and values\n"
    "  --heads N           query heads\n"
    "  --kv-heads N        heads of keys and values\n"
    "  --k-width N         channels of a key\n"
    "  --v-width N         channels of a value (those of a key)\n"
    "  --latent N          values are the first N channels of the stored key (MLA)\n"
    "  --window N          sliding window of the layers that have one\n"
    "  --window-layers N   how many layers have it (0)\n"
    "\n"
    "  --dtype NAME        of the cache: f32, f16, bf16, int8, e4m3 (bf16)\n"
    "  --memory GIB        for keys and values (16)\n"
    "  --seq-len N         tokens of a sequence, prompt and answer (8192)\n"
    "  --block-size N      tokens of a block (64)\n"
    "  --step-tokens N     of one step, that is the longest prefill chunk (512)\n";

struct kv_model {
    const char *name;
    int32_t layers, heads, kv_heads, k_width, v_width;
    int32_t latent; /* v_width of a latent cache; 0 = keys and values apart */
    int32_t window, window_layers;
};

/* From the models' config.json. DeepSeek-V3 stores 512 latent channels and 64 of rope a token; its
 * 128 query heads read the same ones, and values are the latent channels. */
static const struct kv_model presets[] = {
    {.name = "llama-3-8b", .layers = 32, .heads = 32, .kv_heads = 8, .k_width = 128},
    {.name = "qwen3-30b-a3b", .layers = 48, .heads = 32, .kv_heads = 4, .k_width = 128},
    {.name = "gpt-oss-20b",
     .layers = 24,
     .heads = 64,
     .kv_heads = 8,
     .k_width = 64,
     .window = 128,
     .window_layers = 12},
    {.name = "deepseek-v3",
     .layers = 61,
     .heads = 128,
     .kv_heads = 1,
     .k_width = 576,
     .latent = 512},
};

struct options {
    struct kv_model model;
    const char *dtype;
    int32_t memory_gib, seq_len, block_size, step_tokens;
};

/* A config and the arrays that it points to. */
struct setup {
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
    struct pkv_cache_config config;
};

/* --- arguments */

static bool take_model(struct kv_model *model, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *model = presets[i];
            return true;
        }
    }
    return complain("no model %s (--help lists them)", name);
}

static bool take_pair(struct options *o, const char *name, const char *value)
{
    struct kv_model *m = &o->model;
    const struct number_option numbers[] = {
        {"--layers", 1, MAX_LAYERS, &m->layers},
        {"--heads", 1, 65536, &m->heads},
        {"--kv-heads", 1, 65536, &m->kv_heads},
        {"--k-width", 1, 65536, &m->k_width},
        {"--v-width", 1, 65536, &m->v_width},
        {"--latent", 1, 65536, &m->latent},
        {"--window", 1, INT32_MAX, &m->window},
        {"--window-layers", 0, MAX_LAYERS, &m->window_layers},
        {"--memory", 1, 65536, &o->memory_gib},
        {"--seq-len", 1, 1 << 24, &o->seq_len},
        {"--block-size", 1, 1 << 16, &o->block_size},
        {"--step-tokens", 1, 1 << 20, &o->step_tokens},
    };
    bool taken = false;
    if (value == NULL) {
        return complain("%s is unknown, or lacks its value (--help)", name);
    }
    if (strcmp(name, "--model") == 0) {
        return take_model(m, value);
    }
    if (strcmp(name, "--dtype") == 0) {
        o->dtype = value;
        return true;
    }
    return take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken) &&
           (taken || complain("unknown argument %s (--help lists them)", name));
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.model = {.name = "a model"},
                          .dtype = "bf16",
                          .memory_gib = 16,
                          .seq_len = 8192,
                          .block_size = 64,
                          .step_tokens = 512};
    for (int i = 1; i < argc; i += 2) {
        if (!take_pair(o, argv[i], argv[i + 1])) {
            return false;
        }
    }
    const struct kv_model *m = &o->model;
    if (m->layers == 0 || m->heads == 0 || m->kv_heads == 0 || m->k_width == 0) {
        return complain("needs --model, or --layers, --heads, --kv-heads and --k-width (--help)");
    }
    if (m->window_layers > m->layers || (m->window_layers > 0 && m->window == 0)) {
        return complain("--window-layers is more than there are layers, or lacks --window");
    }
    return true;
}

static bool dtype_of(const char *name, enum pkv_dtype *dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "int8", "e4m3"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *dtype = (enum pkv_dtype)i;
            return true;
        }
    }
    return complain("no dtype %s (--help lists them)", name);
}

/* --- the cache */

static struct pkv_group_config group_of(const struct options *o, enum pkv_dtype dtype)
{
    return (struct pkv_group_config){.kv_heads = o->model.kv_heads,
                                     .k_width = o->model.k_width,
                                     .v_width =
                                         o->model.latent > 0 ? o->model.latent : o->model.v_width,
                                     .v_in_k = o->model.latent > 0,
                                     .k_dtype = dtype,
                                     .v_dtype = dtype,
                                     .block_size = o->block_size};
}

/* Which layers have the window does not matter for sizes: here the last ones. */
static bool make_setup(const struct options *o, struct setup *setup)
{
    static const float unit_scale = 1;
    const struct kv_model *m = &o->model;
    enum pkv_dtype dtype = PKV_BF16;
    if (!dtype_of(o->dtype, &dtype)) {
        return false;
    }
    const int32_t full_layers = m->layers - m->window_layers;
    int32_t num_groups = 0;
    if (full_layers > 0) {
        setup->groups[num_groups++] = group_of(o, dtype);
    }
    if (m->window_layers > 0) {
        setup->groups[num_groups] = group_of(o, dtype);
        setup->groups[num_groups++].sliding_window = m->window;
    }
    for (int32_t i = 0; i < m->layers; i++) {
        struct pkv_layer_config *layer = &setup->layers[i];
        *layer = (struct pkv_layer_config){.num_heads = m->heads};
        layer->group = i < full_layers ? 0 : num_groups - 1;
        if (pkv_dtype_bytes(dtype) == 1) {
            layer->constants.k_scale = layer->constants.v_scale = &unit_scale;
            layer->constants.k_scale_count = layer->constants.v_scale_count = 1;
        }
    }
    setup->config = (struct pkv_cache_config){.size = sizeof setup->config,
                                              .groups = setup->groups,
                                              .num_groups = num_groups,
                                              .layers = setup->layers,
                                              .num_layers = m->layers,
                                              .dtype = PKV_BF16,
                                              .bytes = (size_t)o->memory_gib << 30,
                                              .max_seqs = MAX_SEQS,
                                              .max_seq_len = o->seq_len,
                                              .max_step_tokens = o->step_tokens};
    return true;
}

/* The blocks of each group, and one per cent of the smallest pool as the watermark. */
static bool share_memory(struct setup *setup)
{
    struct pkv_cache_config *config = &setup->config;
    int32_t num_blocks[MAX_GROUPS];
    if (pkv_cache_blocks_for_bytes(config, config->bytes, num_blocks) != PKV_OK) {
        return complain("%s", pkv_last_error());
    }
    int32_t smallest = INT32_MAX;
    for (int32_t g = 0; g < config->num_groups; g++) {
        setup->groups[g].num_blocks = num_blocks[g];
        smallest = num_blocks[g] < smallest ? num_blocks[g] : smallest;
    }
    config->watermark_blocks = (smallest + 99) / 100;
    return true;
}

/* Admits sequences of seq_len tokens until one is refused. */
static bool count_sequences(const struct setup *setup, int32_t seq_len, int32_t *count)
{
    pkv_cache *cache = NULL;
    if (pkv_cache_create(&setup->config, &cache) != PKV_OK) {
        return complain("%s", pkv_last_error());
    }
    const struct pkv_prompt prompt = {.size = sizeof prompt};
    enum pkv_status status = PKV_OK;
    for (*count = 0; status == PKV_OK && *count < MAX_SEQS; *count += status == PKV_OK) {
        pkv_seq seq;
        struct pkv_admission admission = {.size = sizeof admission};
        status = pkv_seq_create(cache, NULL, &seq);
        if (status == PKV_OK) { /* without a prefix cache no token is looked at */
            status = pkv_seq_admit(cache, seq, &prompt, seq_len, 0, &admission, NULL);
        }
    }
    const bool ok = status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS ||
                    complain("%s", pkv_last_error());
    return pkv_cache_destroy(cache, true) == PKV_OK && ok;
}

/* --- the report */

static void print_model(const struct options *o)
{
    const struct kv_model *m = &o->model;
    printf("%s: %d layers, %d query and %d KV heads, ", m->name, m->layers, m->heads, m->kv_heads);
    if (m->latent > 0) {
        printf("latent of %d and values in its first %d channels", m->k_width, m->latent);
    } else {
        printf("width %d", m->k_width);
    }
    printf(", %s\n", o->dtype);
}

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool print_group(const struct setup *setup, int32_t g)
{
    const struct pkv_group_config *group = &setup->groups[g];
    int32_t num_layers = 0;
    for (int32_t i = 0; i < setup->config.num_layers; i++) {
        num_layers += setup->layers[i].group == g;
    }
    const struct pkv_page_geometry geometry = {.size = sizeof geometry,
                                               .num_layers = num_layers,
                                               .num_blocks = group->num_blocks,
                                               .kv_heads = group->kv_heads,
                                               .block_size = group->block_size,
                                               .k_width = group->k_width,
                                               .v_width = group->v_width,
                                               .v_in_k = group->v_in_k,
                                               .k_dtype = group->k_dtype,
                                               .v_dtype = group->v_dtype};
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    if (pkv_page_sizes_of(&geometry, &sizes) != PKV_OK) {
        return complain("%s", pkv_last_error());
    }
    printf("group %d      %d layers, ", g, num_layers);
    if (group->sliding_window > 0) {
        printf("window %d: ", (int)group->sliding_window);
    }
    printf("%zu bytes a token, %.2f MiB a block, %d blocks, %.1f GiB\n", sizes.token_bytes,
           mebibytes(sizes.block_bytes), group->num_blocks, mebibytes(sizes.payload_bytes) / 1024);
    return true;
}

static bool report(const struct options *o, struct setup *setup)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    int32_t count = 0;
    if (!count_sequences(setup, o->seq_len, &count)) {
        return false;
    }
    setup->config.max_seqs = count > 0 ? count : 1;
    if (pkv_cache_size(&setup->config, &sizes) != PKV_OK) {
        return complain("%s", pkv_last_error());
    }
    print_model(o);
    printf("token        %zu bytes in all layers\n", sizes.token_bytes);
    for (int32_t g = 0; g < setup->config.num_groups; g++) {
        if (!print_group(setup, g)) {
            return false;
        }
    }
    printf("watermark    %d blocks\n", setup->config.watermark_blocks);
    printf("sequences    %d of %d tokens in %d GiB%s\n", count, o->seq_len, o->memory_gib,
           count == MAX_SEQS ? " or more" : "");
    printf("overhead     %.1f MiB of block tables and metadata\n",
           mebibytes(sizes.table_bytes + sizes.metadata_bytes));
    return true;
}

int main(int argc, char **argv)
{
    struct options options;
    static struct setup setup;
    bool ok = true;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
    } else {
        ok = parse(argc, argv, &options) && make_setup(&options, &setup) && share_memory(&setup) &&
             report(&options, &setup);
    }
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
