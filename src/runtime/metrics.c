/* SPDX-License-Identifier: MIT
 *
 * Counters, and their text. Those that only grow are in struct counters; what grows and shrinks is
 * counted at each call. The text is one table: name, type, meaning, value; the samples of several
 * caches stand together under what the first says of the metric. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "pagedkv/metrics.h"
#include "runtime/cache.h"
#include "runtime/label.h"

static void add_group(const struct group *group, struct pkv_stats *stats)
{
    const int32_t num_free = block_num_free(&group->blocks);
    stats->num_blocks += group->config->num_blocks;
    stats->free_blocks += num_free;
    stats->held_blocks += group->config->num_blocks - num_free;
    stats->cached_blocks += block_num_cached(&group->blocks);
    stats->pinned_blocks += group->blocks.num_pinned;
}

/* Cells of a sequence's table, and those that hold committed tokens. */
static void add_table(const struct group *group, int32_t seq, int32_t length,
                      struct pkv_stats *stats)
{
    const struct seq_table *table = &group->tables.at[seq];
    const int64_t block_size = group->config->block_size;
    const int32_t full = (int32_t)(length / block_size);
    const int32_t tail_cells = (int32_t)(length % block_size);
    const int32_t full_end = full < table->end ? full : table->end;
    stats->table_cells += seq_table_num_mapped(table, table->end) * block_size;
    stats->used_cells += seq_table_num_mapped(table, full_end) * block_size;
    stats->used_cells += seq_table_maps(table, full) ? tail_cells : 0;
}

static void read_index(const pkv_cache *cache, struct pkv_stats *stats)
{
    const struct prefix_index *index = cache->reuse.index;
    const struct prefix_counters counters = prefix_index_counters(index);
    stats->evicted_blocks = counters.evictions;
    stats->collisions = counters.collisions;
    stats->num_nodes = prefix_index_num_used(index);
    stats->max_nodes = prefix_index_num_nodes(index);
    stats->num_pins = cache->pins.num_used;
    stats->num_events = cache->events.next - 1;
    stats->lost_events = cache->events.total_lost;
    stats->index_bytes = cache->reuse.index_bytes;
}

static struct pkv_stats counted(const struct counters *counters)
{
    return (struct pkv_stats){
        .num_admissions = counters->num_admissions,
        .queried_tokens = counters->queried_tokens,
        .hit_tokens = counters->hit_tokens,
        .readmitted_tokens = counters->readmitted_tokens,
        .rehit_tokens = counters->rehit_tokens,
        .stored_blocks = counters->stored_blocks,
        .deduplicated_blocks = counters->deduplicated_blocks,
        .unpublished_blocks = counters->unpublished_blocks,
        .evicted_age_ns = counters->evicted_age_ns,
        .copied_blocks = counters->copied_blocks,
        .expired_pins = counters->expired_pins,
        .attention_bytes = counters->attention_bytes,
    };
}

static void read_stats(const pkv_cache *cache, struct pkv_stats *stats)
{
    *stats = counted(&cache->counters);
    if (cache_has_reuse(cache)) {
        read_index(cache, stats);
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            add_group(&cache->groups[g], stats);
        }
    }
    for (int32_t i = 0; i < cache->config.max_seqs; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        stats->num_seqs += seq->state == SEQ_LIVE;
        for (int32_t g = 0; seq->state != SEQ_FREE && g < cache->config.num_groups; g++) {
            if (group_is_paged(&cache->groups[g])) {
                add_table(&cache->groups[g], i, seq->length, stats);
            }
        }
    }
}

enum pkv_status pkv_cache_stats(pkv_cache *cache, struct pkv_stats *stats)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = sized_check("stats", stats, struct pkv_stats, index_bytes);
    if (status != PKV_OK) {
        return status;
    }
    struct pkv_stats found;
    cache_lock(cache);
    read_stats(cache, &found);
    cache_unlock(cache);
    sized_fill(stats, &found);
    return PKV_OK;
}

struct metric {
    const char *name;
    const char *type;
    const char *help;
    double value;
};

#define NUM_METRICS 26

static void metrics_of(const struct pkv_stats *s, struct metric *metrics)
{
    const char *counter = "counter";
    const char *gauge = "gauge";
    const struct metric table[NUM_METRICS] = {
        {"kv_cache_usage_perc", gauge, "Held blocks, as a share of all in [0, 1].",
         s->num_blocks > 0 ? (double)s->held_blocks / (double)s->num_blocks : 0},
        {"prefix_cache_queries_total", counter, "Prompt tokens of first admissions.",
         (double)s->queried_tokens},
        {"prefix_cache_hits_total", counter, "Tokens of those that were adopted.",
         (double)s->hit_tokens},
        {"prefix_cache_readmitted_queries_total", counter,
         "Prompt tokens of sequences that came again after preemption.",
         (double)s->readmitted_tokens},
        {"prefix_cache_readmitted_hits_total", counter, "Tokens of those that were adopted.",
         (double)s->rehit_tokens},
        {"admissions_total", counter, "Admissions that found room.", (double)s->num_admissions},
        {"blocks_total_count", gauge, "Blocks of all paged groups.", (double)s->num_blocks},
        {"blocks_held", gauge, "Blocks that sequences and pins hold.", (double)s->held_blocks},
        {"blocks_free", gauge, "Blocks without a holder, cached ones too.", (double)s->free_blocks},
        {"blocks_cached", gauge, "Free blocks that are in the prefix index.",
         (double)s->cached_blocks},
        {"blocks_pinned", gauge, "Held blocks that a pin holds.", (double)s->pinned_blocks},
        {"table_tokens", gauge, "Tokens that the blocks in all tables have room for.",
         (double)s->table_cells},
        {"used_tokens", gauge, "Tokens committed to them.", (double)s->used_cells},
        {"sequences", gauge, "Sequences alive.", (double)s->num_seqs},
        {"pins", gauge, "Prefixes pinned.", (double)s->num_pins},
        {"index_nodes", gauge, "Nodes of the prefix index in use.", (double)s->num_nodes},
        {"blocks_stored_total", counter, "Blocks that entered the prefix index.",
         (double)s->stored_blocks},
        {"blocks_deduplicated_total", counter, "Blocks released for an equal one.",
         (double)s->deduplicated_blocks},
        {"blocks_unpublished_total", counter, "Full blocks that could not enter it.",
         (double)s->unpublished_blocks},
        {"evictions_total", counter, "Cached blocks whose memory was taken.",
         (double)s->evicted_blocks},
        {"evicted_age_seconds_total", counter,
         "Time since those were held last, by the caller's clock.",
         1e-9 * (double)s->evicted_age_ns},
        {"block_copies_total", counter, "Blocks copied before a write.", (double)s->copied_blocks},
        {"hash_collisions_total", counter, "Equal hashes of different content.",
         (double)s->collisions},
        {"attention_read_bytes_total", counter, "Keys and values that attention went through.",
         (double)s->attention_bytes},
        {"events_total", counter, "Events recorded.", (double)s->num_events},
        {"events_lost_total", counter, "Events overwritten before they were drained.",
         (double)s->lost_events},
    };
    memcpy(metrics, table, sizeof table);
}

/* What a writer is passed at most: names and helps are those of the table above. */
#define MAX_TEXT (512 + LABEL_TEXT_BYTES)

/* Where text goes. */
struct writer {
    bool (*write)(void *context, const char *text, size_t bytes);
    void *context;
};

/* A sample of a cache, behind the lines that say what it is when it is the metric's first. */
static bool write_sample(const struct metric *metric, const char *label, bool is_first,
                         const struct writer *writer)
{
    char text[MAX_TEXT];
    char labels[LABEL_TEXT_BYTES];
    int bytes = 0;
    if (is_first) {
        bytes = snprintf(text, sizeof text, "# HELP pagedkv_%s %s\n# TYPE pagedkv_%s %s\n",
                         metric->name, metric->help, metric->name, metric->type);
    }
    label_write(label, labels);
    bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "pagedkv_%s%s %.17g\n",
                      metric->name, labels, metric->value);
    return writer->write(writer->context, text, (size_t)bytes);
}

static enum pkv_status write_caches(pkv_cache *const *caches, int32_t num_caches,
                                    const struct writer *writer)
{
    double values[PKV_MAX_METRICS_CACHES][NUM_METRICS];
    struct metric metrics[NUM_METRICS];
    for (int32_t c = 0; c < num_caches; c++) {
        struct pkv_stats stats;
        cache_lock(caches[c]);
        read_stats(caches[c], &stats);
        cache_unlock(caches[c]);
        metrics_of(&stats, metrics);
        for (int32_t i = 0; i < NUM_METRICS; i++) {
            values[c][i] = metrics[i].value;
        }
    }
    for (int32_t i = 0; i < NUM_METRICS; i++) {
        for (int32_t c = 0; c < num_caches; c++) {
            metrics[i].value = values[c][i];
            if (!write_sample(&metrics[i], caches[c]->label, c == 0, writer)) {
                return refuse(PKV_IO, "the writer stopped at pagedkv_%s", metrics[i].name);
            }
        }
    }
    return PKV_OK;
}

enum pkv_status pkv_metrics_write(pkv_cache *cache,
                                  bool (*write)(void *context, const char *text, size_t bytes),
                                  void *context)
{
    if (cache == NULL || write == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "write");
    }
    const struct writer writer = {.write = write, .context = context};
    return write_caches(&cache, 1, &writer);
}

/* Samples of one metric differ by their label alone. */
static enum pkv_status check_label(pkv_cache *const *caches, int32_t c)
{
    const char *label = caches[c]->label;
    if (label == NULL) {
        return INVALID("caches[%d] has no metrics_label", c);
    }
    for (int32_t i = 0; i < c; i++) {
        if (strcmp(label, caches[i]->label) == 0) {
            return INVALID("caches[%d] has the metrics_label of caches[%d]", c, i);
        }
    }
    return PKV_OK;
}

enum pkv_status pkv_metrics_write_caches(pkv_cache *const *caches, int32_t num_caches,
                                         bool (*write)(void *context, const char *text,
                                                       size_t bytes),
                                         void *context)
{
    if (num_caches < 0 || num_caches > PKV_MAX_METRICS_CACHES) {
        return INVALID("num_caches = %d, outside [0, %d]", num_caches, PKV_MAX_METRICS_CACHES);
    }
    if (write == NULL || (caches == NULL && num_caches > 0)) {
        return INVALID("%s is NULL", write == NULL ? "write" : "caches");
    }
    for (int32_t c = 0; c < num_caches; c++) {
        if (caches[c] == NULL) {
            return INVALID("caches[%d] is NULL", c);
        }
        const enum pkv_status status = num_caches > 1 ? check_label(caches, c) : PKV_OK;
        if (status != PKV_OK) {
            return status;
        }
    }
    const struct writer writer = {.write = write, .context = context};
    return write_caches(caches, num_caches, &writer);
}
