/* SPDX-License-Identifier: MIT
 *
 * What is known of a tier at create comes from its list of names, which are those of record.h. */
#include "runtime/offload.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "tiers/record.h"
#include "tiers/tier.h"

uint32_t offload_suspended(const struct offload *offload)
{
    uint32_t tiers = offload->raising.tiers;
    for (int32_t i = 0; i < offload->num_raises; i++) {
        tiers |= offload->raises[i].tiers;
    }
    return tiers;
}

void offload_carve(const struct pkv_cache_config *config, const int32_t *num_blocks,
                   int64_t num_nodes, struct offload *offload, struct carver *carver)
{
    int64_t all_blocks = 0;
    for (int32_t g = 0; g < config->num_groups; g++) {
        all_blocks += num_blocks[g];
    }
    store_queue_carve(config, num_blocks, &offload->stores, carver);
    tier_known_carve(&offload->known, 4 * all_blocks, carver);
    offload->tickets.at = carve(carver, (size_t)config->max_tickets, sizeof *offload->tickets.at);
    offload->origins = carve(carver, (size_t)num_nodes, sizeof *offload->origins);
}

bool offload_size(const struct pkv_cache_config *config, size_t *bytes)
{
    return ticket_size(config, bytes);
}

/* Who is told the names of a tier. */
struct listing {
    struct offload *offload;
    uint32_t tiers;
};

/* 32 digits of a key; false for anything else. */
static bool read_key(const char *digits, struct pkv_block_key *key)
{
    char word[17] = {0};
    char *end = word;
    memcpy(word, digits, 16);
    key->high = strtoull(word, &end, 16);
    if (*end != '\0') {
        return false;
    }
    memcpy(word, digits + 16, 16);
    key->low = strtoull(word, &end, 16);
    return *end == '\0';
}

static bool learn(void *context, const char *name)
{
    const struct listing *listing = context;
    const size_t digits = 32;
    struct pkv_block_key key;
    char *end = NULL;
    if (strlen(name) < 2 * digits + 3 || name[digits] != '.' || name[2 * digits + 1] != '.' ||
        !read_key(name + digits + 1, &key)) {
        return true;
    }
    const unsigned long group = strtoul(name + 2 * digits + 2, &end, 16);
    if (*end == '\0' && group < (unsigned long)listing->offload->tickets.num_groups) {
        tier_known_add(&listing->offload->known, key, (int32_t)group, listing->tiers);
    }
    return true;
}

static enum pkv_status build_conditions(struct offload *offload)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    bool is_made = pthread_cond_init(&offload->has_work, &monotonic) == 0;
    if (is_made && pthread_cond_init(&offload->has_done, &monotonic) != 0) {
        pthread_cond_destroy(&offload->has_work);
        is_made = false;
    }
    pthread_condattr_destroy(&monotonic);
    offload->has_conditions = is_made;
    return is_made ? PKV_OK : refuse(PKV_NO_MEMORY, "no memory for a condition variable");
}

enum pkv_status offload_build(struct offload *offload, const struct pkv_cache_config *config,
                              const struct prefix_index *index, struct group *groups,
                              uint64_t generation, const struct pkv_hooks *hooks)
{
    offload->num_tiers = config->num_tiers;
    memcpy(offload->tiers, config->tiers, (size_t)config->num_tiers * sizeof offload->tiers[0]);
    offload->index = index;
    store_queue_init(&offload->stores, groups);
    enum pkv_status status = build_conditions(offload);
    if (status == PKV_OK) {
        status = ticket_build(&offload->tickets, config, generation, hooks);
    }
    for (int32_t t = 0; status == PKV_OK && t < offload->num_tiers; t++) {
        struct listing listing = {.offload = offload, .tiers = 1u << t};
        tier_list(offload->tiers[t], learn, &listing);
    }
    return status;
}

void offload_free(struct offload *offload, const struct pkv_hooks *hooks)
{
    ticket_free(&offload->tickets, hooks);
    if (offload->has_conditions) {
        pthread_cond_destroy(&offload->has_work);
        pthread_cond_destroy(&offload->has_done);
    }
}

void offload_add_raise(struct offload *offload, const char *counter, uint32_t tiers)
{
    for (int32_t i = 0; i < offload->num_raises; i++) {
        if (strcmp(offload->raises[i].counter, counter) == 0) {
            offload->raises[i].tiers |= tiers;
            return;
        }
    }
    const bool fits = offload->num_raises < OFFLOAD_MAX_RAISES;
    offload->num_raises = fits ? offload->num_raises : 0;
    struct offload_flush *raise = &offload->raises[offload->num_raises++];
    raise->tiers = fits ? tiers : offload_tiers(offload);
    if (fits) {
        memcpy(raise->counter, counter, strlen(counter) + 1);
    } else {
        record_counter_name(NULL, raise->counter);
    }
}

void offload_raise(struct offload *offload, const struct pkv_namespace_field *field)
{
    char counter[PKV_MAX_TIER_NAME + 1];
    if (offload->num_tiers == 0) {
        return;
    }
    record_counter_name(field, counter);
    offload_add_raise(offload, counter, offload_tiers(offload));
    tier_known_clear(&offload->known, offload_tiers(offload));
    pthread_cond_signal(&offload->has_work);
}

void offload_store_block(struct offload *offload, struct prefix_ref node, int32_t group,
                         int32_t block)
{
    const struct prefix_node *of = prefix_index_node(offload->index, node);
    if (of == NULL || prefix_index_is_tail(offload->index, node)) {
        return;
    }
    const uint32_t tiers =
        offload_tiers(offload) & ~tier_known_get(&offload->known, of->key, group);
    if (tiers == 0 || store_queue_has(&offload->stores, group, block)) {
        return;
    }
    if (!store_queue_admits(&offload->stores, group, block)) {
        offload->num_skipped++;
        return;
    }
    store_queue_add(&offload->stores, node, group, block, tiers, NO_TICKET);
    pthread_cond_signal(&offload->has_work);
}

struct pkv_tier_stats offload_stats(const struct offload *offload, int32_t tier)
{
    struct pkv_tier_stats stats = offload->stats[tier];
    stats.skipped_stores = offload->num_skipped;
    stats.waiting_stores = offload->stores.num_waiting;
    stats.num_tickets = offload->tickets.num_open;
    return stats;
}
