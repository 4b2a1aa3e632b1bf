/* SPDX-License-Identifier: MIT
 *
 * A pin remembers the last node of its run and what its holder would see of it; both say which
 * blocks it holds, so it needs no list. Those blocks cannot be evicted and keep their nodes until
 * the pin ends, last block first, like a sequence.
 *
 * The clock is the caller's: nothing ends by itself, but at calls that bring a time. */
#include "runtime/pin.h"

#include "base/error.h"
#include "prefix/prefix_blocks.h"
#include "runtime/blocks.h"
#include "runtime/handle.h"
#include "runtime/prefix.h"
#include "runtime/prompt.h"
#include "runtime/seq_table.h"
#include "runtime/sequence.h"

static pkv_pin handle_of(const pkv_cache *cache, int32_t index)
{
    return (pkv_pin){handle_make(cache->prefix.pins[index].generation, index)};
}

bool pin_maps(const struct group *group, const struct pin *pin, int32_t i)
{
    const int32_t kept_prefix =
        pin->kept_prefix >= 0 ? pin->kept_prefix : (int32_t)group->config->kept_prefix;
    const struct seq_table table =
        seq_table_adopted(group, kept_prefix, pin->num_nodes, pin->max_rewind);
    return seq_table_maps(&table, i);
}

static void end_pin(pkv_cache *cache, int32_t index)
{
    struct prefix_cache *prefix = &cache->prefix;
    struct pin *pin = &prefix->pins[index];
    struct prefix_ref node = pin->leaf;
    for (int32_t i = pin->num_nodes - 1; i >= 0; i--) {
        const struct prefix_ref parent = prefix_index_node(prefix->index, node)->parent;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            struct group *group = &cache->groups[g];
            if (pin_maps(group, pin, i)) {
                const int32_t block = prefix_index_block(prefix->index, node, g);
                group->blocks[block].num_pins--;
                group->num_pinned -= group->blocks[block].num_pins == 0;
                blocks_drop(cache, group, block, NO_SEQ);
            }
        }
        node = parent;
    }
    prefix_index_release(prefix->index, pin->leaf);
    pin->generation = handle_next_generation(pin->generation);
    pin->num_nodes = 0;
    pin->next_free = prefix->first_free_pin;
    prefix->first_free_pin = index;
    prefix->num_pins--;
}

static void find_soonest(pkv_cache *cache)
{
    struct prefix_cache *prefix = &cache->prefix;
    prefix->soonest_ns = UINT64_MAX;
    for (int32_t i = 0; i < cache->config.max_pinned_blocks; i++) {
        if (prefix->pins[i].num_nodes > 0 && prefix->pins[i].ends_ns < prefix->soonest_ns) {
            prefix->soonest_ns = prefix->pins[i].ends_ns;
        }
    }
}

int32_t pin_expire(pkv_cache *cache, uint64_t now_ns)
{
    struct prefix_cache *prefix = &cache->prefix;
    int32_t ended = 0;
    if (now_ns != UINT64_MAX && now_ns > cache->now_ns) {
        cache->now_ns = now_ns;
    }
    if (prefix->num_pins == 0 || now_ns == 0 ||
        (now_ns < prefix->soonest_ns && now_ns != UINT64_MAX)) {
        return 0;
    }
    for (int32_t i = 0; i < cache->config.max_pinned_blocks; i++) {
        if (prefix->pins[i].num_nodes > 0 && prefix->pins[i].ends_ns <= now_ns) {
            end_pin(cache, i);
            ended++;
        }
    }
    find_soonest(cache);
    prefix->counts.expired_pins += (uint64_t)ended;
    return ended;
}

void pin_end_forgotten(pkv_cache *cache)
{
    struct prefix_cache *prefix = &cache->prefix;
    for (int32_t i = 0; prefix->num_pins > 0 && i < cache->config.max_pinned_blocks; i++) {
        if (prefix->pins[i].num_nodes > 0 &&
            !prefix_index_is_live(prefix->index, prefix->pins[i].leaf)) {
            end_pin(cache, i);
        }
    }
}

/* Blocks by which a run of num_blocks would pass the cap, in the worst group. */
static int32_t excess(const pkv_cache *cache, const struct seq *model, int32_t num_blocks)
{
    int32_t worst = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        const struct seq_table table = seq_table_adopted(group, group_kept_prefix(group, model),
                                                         num_blocks, model->max_rewind);
        int32_t count = group->num_pinned;
        for (int32_t i = 0; i < num_blocks; i++) {
            const int32_t block =
                prefix_index_block(cache->prefix.index, cache->prefix.matched[i], g);
            count += seq_table_maps(&table, i) && group->blocks[block].num_pins == 0;
        }
        const int32_t over = count - cache->config.max_pinned_blocks;
        worst = over > worst ? over : worst;
    }
    return worst;
}

/* The longest run that can be pinned. A block less takes at most one block off any group's count.
 */
static int32_t find_run(pkv_cache *cache, const struct seq *model, const struct pkv_prompt *prompt)
{
    const int32_t most = prompt->num_tokens < cache->config.max_seq_len ? prompt->num_tokens
                                                                        : cache->config.max_seq_len;
    int32_t run = prefix_match(cache, model, prompt, most / cache->prefix.block_size);
    int32_t over = run > 0 ? excess(cache, model, run) : 0;
    while (over > 0) {
        run = run > over ? prefix_match(cache, model, prompt, run - over) : 0;
        over = run > 0 ? excess(cache, model, run) : 0;
    }
    return run;
}

/* There must be a free record. */
static pkv_pin start_pin(pkv_cache *cache, const struct seq *model, int32_t num_blocks,
                         uint64_t ends_ns)
{
    struct prefix_cache *prefix = &cache->prefix;
    const int32_t index = prefix->first_free_pin;
    struct pin *pin = &prefix->pins[index];
    prefix->first_free_pin = pin->next_free;
    prefix->num_pins++;
    pin->leaf = prefix->matched[num_blocks - 1];
    pin->num_nodes = num_blocks;
    pin->kept_prefix = model->kept_prefix;
    pin->max_rewind = model->max_rewind;
    pin->ends_ns = ends_ns;
    prefix->soonest_ns = ends_ns < prefix->soonest_ns ? ends_ns : prefix->soonest_ns;
    prefix_index_hold(prefix->index, pin->leaf);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        for (int32_t i = 0; i < num_blocks; i++) {
            if (pin_maps(group, pin, i)) {
                const int32_t block = prefix_index_block(prefix->index, prefix->matched[i], g);
                group->num_pinned += group->blocks[block].num_pins == 0;
                group->blocks[block].num_pins++;
                blocks_adopt(group, block);
            }
        }
    }
    return handle_of(cache, index);
}

/* When a pin ends by the caller's clock: never, when that does not come to a time. */
static uint64_t end_of(uint64_t ttl_ns, uint64_t now_ns)
{
    return ttl_ns > 0 && ttl_ns < UINT64_MAX - now_ns ? now_ns + ttl_ns : UINT64_MAX;
}

static enum pkv_status pin_run(pkv_cache *cache, const struct seq *model,
                               const struct pkv_prompt *prompt, uint64_t ends_ns, pkv_pin *pin,
                               int32_t *num_pinned)
{
    const int32_t run = find_run(cache, model, prompt);
    if (run > 0 && cache->prefix.first_free_pin == NO_BLOCK) {
        return refuse(PKV_NO_BLOCKS, "%d pins exist, as many as max_pinned_blocks",
                      cache->prefix.num_pins);
    }
    *pin = run > 0 ? start_pin(cache, model, run, ends_ns) : (pkv_pin){0};
    *num_pinned = run * cache->prefix.block_size;
    return PKV_OK;
}

static enum pkv_status check_pin(const struct pkv_prompt *prompt, const pkv_pin *pin,
                                 const int32_t *num_pinned)
{
    if (pin == NULL || num_pinned == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", pin == NULL ? "pin" : "num_pinned");
    }
    return prompt_check(prompt);
}

enum pkv_status pkv_prefix_pin(pkv_cache *cache, const struct pkv_seq_options *options,
                               const struct pkv_prompt *prompt, uint64_t ttl_ns, uint64_t now_ns,
                               pkv_pin *pin, int32_t *num_pinned)
{
    struct seq model;
    struct prefix_name name;
    enum pkv_status status = prefix_require(cache);
    if (status == PKV_OK) {
        status = check_pin(prompt, pin, num_pinned);
    }
    if (status == PKV_OK) {
        status = sequence_check_options(cache, options, &model, &name);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    pin_expire(cache, now_ns);
    status = prefix_scope_find(cache->prefix.index, name.fields, name.count, &model.prefix.scope);
    if (status == PKV_OK) {
        status = pin_run(cache, &model, prompt, end_of(ttl_ns, now_ns), pin, num_pinned);
    }
    cache_unlock(cache);
    return status;
}

/* The index of a live pin; NO_BLOCK for a stale one. */
static int32_t find_pin(const pkv_cache *cache, pkv_pin pin)
{
    const uint64_t at = pin.id & HANDLE_INDEX_MASK;
    const bool is_live = at < (uint64_t)cache->config.max_pinned_blocks &&
                         cache->prefix.pins[at].num_nodes > 0 &&
                         handle_of(cache, (int32_t)at).id == pin.id;
    return is_live ? (int32_t)at : NO_BLOCK;
}

static enum pkv_status refuse_stale(pkv_pin pin)
{
    return refuse(PKV_STALE_HANDLE, "pin %016llx is stale", (unsigned long long)pin.id);
}

enum pkv_status pkv_prefix_unpin(pkv_cache *cache, pkv_pin pin)
{
    const enum pkv_status status = prefix_require(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const int32_t index = find_pin(cache, pin);
    if (index != NO_BLOCK) {
        end_pin(cache, index);
    }
    cache_unlock(cache);
    return index != NO_BLOCK ? PKV_OK : refuse_stale(pin);
}

enum pkv_status pkv_prefix_refresh(pkv_cache *cache, pkv_pin pin, uint64_t ttl_ns, uint64_t now_ns)
{
    const enum pkv_status status = prefix_require(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    pin_expire(cache, now_ns);
    const int32_t index = find_pin(cache, pin);
    if (index != NO_BLOCK) {
        cache->prefix.pins[index].ends_ns = end_of(ttl_ns, now_ns);
        find_soonest(cache);
    }
    cache_unlock(cache);
    return index != NO_BLOCK ? PKV_OK : refuse_stale(pin);
}

enum pkv_status pkv_prefix_expire(pkv_cache *cache, uint64_t now_ns, int32_t *num_ended)
{
    const enum pkv_status status = prefix_require(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const int32_t ended = pin_expire(cache, now_ns);
    cache_unlock(cache);
    if (num_ended != NULL) {
        *num_ended = ended;
    }
    return PKV_OK;
}
