/* SPDX-License-Identifier: MIT
 *
 * The text of the numbers. It is one table: name, type, meaning, value; the samples of several
 * caches stand together under what the first says of the metric. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "runtime/label.h"
#include "runtime/stats.h"
#include "tiers/tier.h"

_Static_assert(LABEL_MAX_TIER == TIER_MAX_LABEL, "the name of every tier fits");

struct metric {
    const char *name;
    const char *type;
    const char *help;
    double value;
};

#define NUM_METRICS 37
#define NUM_SWAP_METRICS 7

static void swap_metrics_of(const struct pkv_stats *s, struct metric *metrics)
{
    const struct metric table[NUM_SWAP_METRICS] = {
        {"swap_sequences", "gauge", "Sequences that are swapped out.", (double)s->swapped_seqs},
        {"swap_units", "gauge", "Units of the swap area.", (double)s->swap_units},
        {"swap_units_used", "gauge", "Units that sequences have.", (double)s->used_swap_units},
        {"swap_outs_total", "counter", "Sequences that were swapped out.", (double)s->swap_outs},
        {"swap_ins_total", "counter", "Sequences that came back.", (double)s->swap_ins},
        {"swap_out_bytes_total", "counter", "Keys and values copied to the swap area.",
         (double)s->swap_out_bytes},
        {"swap_in_bytes_total", "counter", "Keys and values copied from there.",
         (double)s->swap_in_bytes},
    };
    memcpy(metrics, table, sizeof table);
}

static void metrics_of(const struct pkv_stats *s, struct metric *metrics)
{
    const char *counter = "counter";
    const char *gauge = "gauge";
    const struct metric table[NUM_METRICS - NUM_SWAP_METRICS] = {
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
        {"prefix_cache_copied_hits_total", counter,
         "Tokens of all hits that were copied, from blocks that hits end inside.",
         (double)s->copied_hit_tokens},
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
        {"table_blocks", gauge, "Blocks in all tables, shared ones for each.",
         (double)s->table_blocks},
        {"table_runs", gauge, "Runs of adjacent blocks in them.", (double)s->table_runs},
        {"table_run_length", gauge, "Mean length of those runs, in blocks.",
         s->table_runs > 0 ? (double)s->table_blocks / (double)s->table_runs : 0},
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
    swap_metrics_of(s, metrics + NUM_METRICS - NUM_SWAP_METRICS);
}

/* What a writer is passed at most: names and helps are those of the table above. */
#define MAX_TEXT (512 + LABEL_TEXT_BYTES)

/* Where text goes. */
struct writer {
    bool (*write)(void *context, const char *text, size_t bytes);
    void *context;
};

/* A sample of a cache, or of a tier of it, after the lines that say what it is when it is the
 * metric's first. */
static bool write_sample(const struct metric *metric, const pkv_cache *cache, int32_t tier,
                         bool is_first, const struct writer *writer)
{
    char text[MAX_TEXT];
    char labels[LABEL_TEXT_BYTES];
    int bytes = 0;
    if (is_first) {
        bytes = snprintf(text, sizeof text, "# HELP pagedkv_%s %s\n# TYPE pagedkv_%s %s\n",
                         metric->name, metric->help, metric->name, metric->type);
    }
    label_write(cache->label, tier, tier != LABEL_NO_TIER ? cache->offload.tiers[tier]->name : NULL,
                labels);
    bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "pagedkv_%s%s %.17g\n",
                      metric->name, labels, metric->value);
    return writer->write(writer->context, text, (size_t)bytes);
}

#define NUM_TIER_METRICS 14

static void tier_metrics_of(const struct pkv_tier_stats *s, struct metric *metrics)
{
    const char *counter = "counter";
    const char *gauge = "gauge";
    const struct metric table[NUM_TIER_METRICS] = {
        {"tier_stored_blocks_total", counter, "Blocks written to the tier.",
         (double)s->stored_blocks},
        {"tier_stored_bytes_total", counter, "Bytes of them.", (double)s->stored_bytes},
        {"tier_failed_stores_total", counter, "Blocks that the tier did not take.",
         (double)s->failed_stores},
        {"tier_skipped_stores_total", counter, "Blocks for which the queue had no room.",
         (double)s->skipped_stores},
        {"tier_loaded_blocks_total", counter, "Blocks read from the tier, and checked.",
         (double)s->loaded_blocks},
        {"tier_loaded_bytes_total", counter, "Bytes of them.", (double)s->loaded_bytes},
        {"tier_missed_blocks_total", counter, "Blocks that were looked up and not there.",
         (double)s->missed_blocks},
        {"tier_void_blocks_total", counter, "Blocks that a flush has made void.",
         (double)s->void_blocks},
        {"tier_collisions_total", counter, "Values of another content under an equal key.",
         (double)s->collisions},
        {"tier_failed_loads_total", counter, "Blocks that the tier did not give.",
         (double)s->failed_loads},
        {"tier_corrupt_blocks_total", counter, "Damaged values, which were removed.",
         (double)s->corrupt_blocks},
        {"tier_hit_tokens_total", counter, "Adopted tokens that came from the tier.",
         (double)s->hit_tokens},
        {"tier_waiting_stores", gauge, "Blocks that wait to be stored, in all tiers.",
         (double)s->waiting_stores},
        {"tier_tickets", gauge, "Open tickets.", (double)s->num_tickets},
    };
    memcpy(metrics, table, sizeof table);
}

/* The samples of all tiers of all caches, metric by metric. */
static enum pkv_status write_tiers(pkv_cache *const *caches, int32_t num_caches,
                                   const struct writer *writer)
{
    struct metric metrics[NUM_TIER_METRICS];
    for (int32_t i = 0; i < NUM_TIER_METRICS; i++) {
        bool is_first = true;
        for (int32_t s = 0; s < num_caches * PKV_MAX_TIERS; s++) {
            pkv_cache *cache = caches[s / PKV_MAX_TIERS];
            const int32_t tier = s % PKV_MAX_TIERS;
            if (tier >= cache->config.num_tiers) {
                continue;
            }
            cache_lock(cache);
            const struct pkv_tier_stats stats = offload_stats(&cache->offload, tier);
            cache_unlock(cache);
            tier_metrics_of(&stats, metrics);
            if (!write_sample(&metrics[i], cache, tier, is_first, writer)) {
                return refuse(PKV_IO, "the writer stopped at pagedkv_%s", metrics[i].name);
            }
            is_first = false;
        }
    }
    return PKV_OK;
}

static enum pkv_status write_caches(pkv_cache *const *caches, int32_t num_caches,
                                    const struct writer *writer)
{
    double values[PKV_MAX_METRICS_CACHES][NUM_METRICS];
    struct metric metrics[NUM_METRICS];
    for (int32_t c = 0; c < num_caches; c++) {
        struct pkv_stats stats;
        cache_lock(caches[c]);
        stats_read(caches[c], &stats);
        cache_unlock(caches[c]);
        metrics_of(&stats, metrics);
        for (int32_t i = 0; i < NUM_METRICS; i++) {
            values[c][i] = metrics[i].value;
        }
    }
    for (int32_t i = 0; i < NUM_METRICS; i++) {
        for (int32_t c = 0; c < num_caches; c++) {
            metrics[i].value = values[c][i];
            if (!write_sample(&metrics[i], caches[c], LABEL_NO_TIER, c == 0, writer)) {
                return refuse(PKV_IO, "the writer stopped at pagedkv_%s", metrics[i].name);
            }
        }
    }
    return write_tiers(caches, num_caches, writer);
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
