/* SPDX-License-Identifier: MIT
 *
 * A program of the day when 0.1.0 was first published: compiled against the headers of then
 * (tests/abi/v0_1) and run with the library of today. It passes each struct that has a size, and
 * those without, and looks at what comes back where its own headers say that it lies. Painted bytes
 * behind each struct that is filled must stay. Prints what failed; exit 1. */
#include <pagedkv.h>
#include <stdio.h>
#include <string.h>

static int num_failed;

#define EXPECT(holds)                                                                              \
    ((holds)                                                                                       \
         ? (void)0                                                                                 \
         : (void)(num_failed++, printf("line %d: %s; %s\n", __LINE__, #holds, pkv_last_error())))

/* A struct to be filled, and what lies behind it in the caller's memory. */
#define FILLED(type, name)                                                                         \
    struct {                                                                                       \
        struct type at;                                                                            \
        unsigned char behind[64];                                                                  \
    } name;                                                                                        \
    memset(&name, 0x5a, sizeof name);                                                              \
    name.at.size = sizeof name.at

static bool is_painted(const unsigned char *behind)
{
    bool is = true;
    for (int i = 0; i < 64; i++) {
        is = is && behind[i] == 0x5a;
    }
    return is;
}

static const int32_t ids[] = {1, 2, 3, 4, 5};

static void run_step(pkv_cache *cache, pkv_seq seq)
{
    const int32_t q_len = 5;
    const float zeros[5] = {0};
    const float values[5] = {1, 2, 3, 4, 5};
    float out[5] = {0};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &q_len,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids};
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zeros, .k = zeros, .v = values, .out = out};
    pkv_step step = {0};
    FILLED(pkv_shortage, shortage);
    FILLED(pkv_step_view, view);
    EXPECT(pkv_step_begin(cache, &batch, &step, &shortage.at) == PKV_OK);
    EXPECT(shortage.at.row == 1 && is_painted(shortage.behind));
    EXPECT(pkv_step_describe(cache, step, 0, &view.at) == PKV_OK);
    EXPECT(view.at.num_tokens == 5 && view.at.kv_lens[0] == 5 && is_painted(view.behind));
    EXPECT(view.at.first_layer.block_size == 4 && view.at.first_layer.kv_heads == 1);
    EXPECT(pkv_step_attend(cache, step, 0, &io) == PKV_OK);
    EXPECT(out[0] == 1 && out[4] == 3);
    EXPECT(pkv_step_commit(cache, step, NULL) == PKV_OK);
}

static void run_request(pkv_cache *cache)
{
    const struct pkv_seq_options options = {.size = sizeof options, .tag = 3, .priority = 1};
    const struct pkv_prompt prompt = {.size = sizeof prompt, .token_ids = ids, .num_tokens = 5};
    pkv_seq seq = {0};
    FILLED(pkv_admission, admission);
    FILLED(pkv_probe, probe);
    EXPECT(pkv_seq_create(cache, &options, &seq) == PKV_OK);
    EXPECT(pkv_seq_admit(cache, seq, &prompt, 1, 5, &admission.at, NULL) == PKV_OK);
    EXPECT(admission.at.num_cached == 0 && admission.at.num_to_write == 5);
    EXPECT(is_painted(admission.behind));
    run_step(cache, seq);
    EXPECT(pkv_cache_probe(cache, &options, &prompt, 1, 5, &probe.at, NULL) == PKV_OK);
    EXPECT(probe.at.status == PKV_OK && probe.at.num_cached == 4 && is_painted(probe.behind));
    EXPECT(pkv_seq_destroy(cache, seq) == PKV_OK);
}

static bool see(void *context, const struct pkv_block_info *info)
{
    *(int *)context += info->size >= sizeof *info && info->state == PKV_BLOCK_CACHED;
    return true;
}

static void look(pkv_cache *cache)
{
    struct pkv_event events[4];
    int32_t count = 0;
    int num_cached = 0;
    FILLED(pkv_stats, stats);
    FILLED(pkv_group_usage, usage);
    FILLED(pkv_flush_report, report);
    EXPECT(pkv_cache_stats(cache, &stats.at) == PKV_OK);
    EXPECT(stats.at.num_admissions == 1 && stats.at.num_blocks == 8 && is_painted(stats.behind));
    EXPECT(pkv_cache_usage(cache, 0, &usage.at) == PKV_OK);
    EXPECT(usage.at.cached == 1 && usage.at.free == 8 && is_painted(usage.behind));
    EXPECT(pkv_cache_visit(cache, see, &num_cached, NULL) == PKV_OK && num_cached == 1);
    EXPECT(pkv_events_drain(cache, events, sizeof events[0], 4, &count, NULL) == PKV_OK);
    EXPECT(count == 1 && events[0].kind == PKV_EVENT_STORED && events[0].groups == 1);
    EXPECT(pkv_cache_reset(cache, false, &report.at) == PKV_OK);
    EXPECT(report.at.removed == 1 && is_painted(report.behind));
}

static void serve(void)
{
    const struct pkv_group_config group = {
        .kv_heads = 1, .k_width = 1, .block_size = 4, .num_blocks = 8};
    const struct pkv_layer_config layers[] = {{.num_heads = 1}};
    struct pkv_cache_config config = {.size = sizeof config,
                                      .groups = &group,
                                      .num_groups = 1,
                                      .layers = layers,
                                      .num_layers = 1,
                                      .max_seqs = 2,
                                      .max_seq_len = 16,
                                      .max_step_tokens = 8,
                                      .num_threads = 1,
                                      .prefix_cache = true,
                                      .num_events = 8};
    pkv_cache *cache = NULL;
    FILLED(pkv_cache_sizes, sizes);
    FILLED(pkv_cache_config, got);
    EXPECT(pkv_cache_size(&config, &sizes.at) == PKV_OK);
    EXPECT(sizes.at.token_bytes == 8 && is_painted(sizes.behind));
    EXPECT(pkv_cache_create(&config, &cache) == PKV_OK);
    EXPECT(pkv_cache_describe(cache, &got.at) == PKV_OK);
    EXPECT(got.at.max_seq_len == 16 && got.at.groups[0].num_blocks == 8 && is_painted(got.behind));
    run_request(cache);
    look(cache);
    EXPECT(pkv_cache_check(cache) == 0);
    EXPECT(pkv_cache_destroy(cache, false) == PKV_OK);
}

static void attend(void)
{
    const float zero = 0;
    const float value = 7;
    float out = 0;
    pkv_workspace *workspace = NULL;
    const struct pkv_gqa_args args = {.size = sizeof args,
                                      .num_heads = 1,
                                      .kv_heads = 1,
                                      .k_width = 1,
                                      .batch = 1,
                                      .num_tokens = 1,
                                      .q = &zero,
                                      .k = &zero,
                                      .v = &value,
                                      .out = &out};
    EXPECT(pkv_workspace_create(1, PKV_ISA_BEST, NULL, &workspace) == PKV_OK);
    EXPECT(pkv_gqa(workspace, &args) == PKV_OK && out == 7);
    pkv_workspace_destroy(workspace);
    const struct pkv_page_geometry geometry = {.size = sizeof geometry,
                                               .num_layers = 1,
                                               .num_blocks = 2,
                                               .kv_heads = 1,
                                               .block_size = 4,
                                               .k_width = 8};
    FILLED(pkv_page_sizes, sizes);
    EXPECT(pkv_page_sizes_of(&geometry, &sizes.at) == PKV_OK);
    EXPECT(sizes.at.token_bytes == 64 && is_painted(sizes.behind));
}

int main(void)
{
    serve();
    attend();
    printf("compiled for %d.%d.%d, run with %s: %d failed\n", PKV_VERSION_MAJOR, PKV_VERSION_MINOR,
           PKV_VERSION_PATCH, pkv_version(), num_failed);
    return num_failed != 0;
}
