/* SPDX-License-Identifier: MIT
 *
 * pkv_cache_check walks everything that the runtime keeps twice, or derives, and compares: records
 * with their lists and with what they say, and each group (check_group). A line per violation goes
 * to the log hook; nothing is changed or repaired. The records and each group are a part of their
 * own under the mutex: what is compared must be of one moment. */
#include <string.h>

#include "base/error.h"
#include "base/report.h"
#include "prefix/prefix_check.h"
#include "runtime/check_group.h"
#include "runtime/check_states.h"
#include "runtime/check_tiers.h"
#include "runtime/swap.h"

static void check_seq(const pkv_cache *cache, int32_t i, struct report *report)
{
    const struct seq *seq = &cache->seqs.at[i];
    report_expect(report, seq->length >= 0 && seq->length <= cache->config.max_seq_len,
                  "a length out of range (sequence %d, length %d)", i, seq->length);
    report_expect(report, seq->state != SEQ_DYING || seq->in_step || seq->is_moving,
                  "a dying sequence outside a step (sequence %d)", i);
    report_expect(report, !seq->is_moving || (seq->state != SEQ_FREE && !seq->in_step),
                  "a moving sequence that is free or in a step (sequence %d)", i);
    report_expect(report, seq->state != SEQ_HIDDEN || seq->is_moving,
                  "a hidden sequence that is not moving (sequence %d)", i);
    report_expect(report, !seq->is_swapped || (seq->state != SEQ_FREE && !seq->in_step),
                  "a swapped sequence that is free or in a step (sequence %d)", i);
    report_expect(report, !seq->in_step || cache->step.is_open,
                  "a sequence in a step that is not open (sequence %d)", i);
}

/* Records of sequences are in use, or on the list of free ones. */
static void check_seqs(const pkv_cache *cache, struct report *report)
{
    const struct seq_records *seqs = &cache->seqs;
    int32_t num_free = 0;
    for (int32_t i = 0; i < seqs->capacity; i++) {
        num_free += seqs->at[i].state == SEQ_FREE;
        check_seq(cache, i, report);
    }
    report_expect(report, num_free == seqs->num_free,
                  "the number of free sequences (%d found, %d kept)", num_free, seqs->num_free);
    int32_t length = 0;
    int32_t i = seqs->first_free;
    while (i >= 0 && i < seqs->capacity && length <= num_free && seqs->at[i].state == SEQ_FREE) {
        length++;
        i = seqs->at[i].next_free;
    }
    report_expect(report, i == NO_SEQ && length == num_free,
                  "the list of free sequences (at %d after %d)", i, length);
}

/* Records of pins likewise. */
static void check_pins(const struct pin_records *pins, struct report *report)
{
    const int32_t capacity = pins->capacity;
    int32_t num_used = 0;
    for (int32_t i = 0; i < capacity; i++) {
        num_used += pins->at[i].num_nodes > 0;
    }
    report_expect(report, num_used == pins->num_used, "the number of pins (%d found, %d kept)",
                  num_used, pins->num_used);
    int32_t length = 0;
    int32_t i = pins->first_free;
    while (i >= 0 && i < capacity && length < capacity && pins->at[i].num_nodes == 0) {
        length++;
        i = pins->at[i].next_free;
    }
    report_expect(report, i == NO_PIN && length == capacity - num_used,
                  "the list of free pins (at %d after %d)", i, length);
}

/* A sequence's newest node is at the depth that it says, and has the sequence's tokens. */
static void check_published(const pkv_cache *cache, int32_t seq, struct report *report)
{
    const struct seq *of = &cache->seqs.at[seq];
    const struct seq_reuse *reuse = &of->reuse;
    const struct prefix_node *node = prefix_index_node(cache->reuse.index, reuse->newest);
    const int32_t block_size = cache->reuse.block_size;
    const bool is_newest = reuse->num_published == 0
                               ? reuse->newest.index == PREFIX_NONE
                               : node != NULL && node->depth == reuse->num_published - 1;
    report_expect(
        report,
        reuse->num_published * block_size <= of->length && reuse->num_published <= reuse->num_tried,
        "more published than written (sequence %d, %d blocks)", seq, reuse->num_published);
    if (!report_expect(report, is_newest, "a newest node (sequence %d, node %d)", seq,
                       reuse->newest.index) ||
        node == NULL) {
        return;
    }
    const struct pkv_prompt own =
        seq_tokens_at(&cache->reuse.tokens, seq, &of->tokens, node->depth * block_size, block_size);
    report_expect(report,
                  memcmp(own.token_ids, prefix_index_tokens(cache->reuse.index, reuse->newest),
                         (size_t)block_size * sizeof *own.token_ids) == 0,
                  "tokens of a newest node (sequence %d, node %d)", seq, reuse->newest.index);
}

static void check_charge(const pkv_cache *cache, int32_t seq, struct report *report)
{
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct seq_table *table = &cache->groups[g].tables.at[seq];
        report_expect(report, table->charged == seq_table_charge(table, table->end),
                      "a charge that is not what is held (group %d, sequence %d, %d blocks)", g,
                      seq, table->charged);
    }
}

static void check_reuse(pkv_cache *cache, struct report *report)
{
    if (!cache_has_reuse(cache)) {
        return;
    }
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        if (cache->seqs.at[i].state != SEQ_FREE) {
            check_published(cache, i, report);
            check_charge(cache, i, report);
        }
    }
    check_pins(&cache->pins, report);
    report->num_broken += prefix_index_check(cache->reuse.index);
}

int32_t pkv_cache_check(pkv_cache *cache)
{
    if (cache == NULL) {
        (void)INVALID("cache is NULL");
        return 1;
    }
    struct report report = {.hooks = &cache->mem.routed, .subject = "cache"};
    cache_lock(cache);
    check_seqs(cache, &report);
    swap_check(cache, &report);
    check_reuse(cache, &report);
    check_tiers(cache, &report);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        cache_yield(cache);
        check_group(cache, g, &report);
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        cache_yield(cache);
        check_states(cache, &cache->states[s], &report);
    }
    cache_unlock(cache);
    return report.num_broken;
}
