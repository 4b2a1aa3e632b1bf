/* SPDX-License-Identifier: MIT
 *
 * The public calls on pins. The clock is the caller's: nothing ends by itself, but at calls that
 * bring a time. */
#include "base/error.h"
#include "base/minmax.h"
#include "runtime/match.h"
#include "runtime/prompt.h"
#include "runtime/seq_options.h"

/* Nodes of the longest cached prefix that can be pinned. A node less takes at most one block off
 * any group's count. */
static int32_t find_pinnable(pkv_cache *cache, const struct seq *prototype,
                             const struct pkv_prompt *prompt)
{
    const struct prefix_ref *nodes = cache->reuse.matched;
    const int32_t num_tokens = min_i32(prompt->num_tokens, cache->config.max_seq_len);
    int32_t count = match_prefix(cache, prototype, prompt, num_tokens / cache->reuse.block_size);
    int32_t over = count > 0 ? pin_excess(&cache->pins, nodes, count, prototype) : 0;
    while (over > 0) {
        count = count > over ? match_prefix(cache, prototype, prompt, count - over) : 0;
        over = count > 0 ? pin_excess(&cache->pins, nodes, count, prototype) : 0;
    }
    return count;
}

/* When a pin ends by the caller's clock: never, when that does not come to a time. */
static uint64_t end_of(uint64_t ttl_ns, uint64_t now_ns)
{
    return ttl_ns > 0 && ttl_ns < UINT64_MAX - now_ns ? now_ns + ttl_ns : UINT64_MAX;
}

static enum pkv_status pin_found(pkv_cache *cache, const struct seq *prototype,
                                 const struct pkv_prompt *prompt, uint64_t ends_ns, pkv_pin *pin,
                                 int32_t *num_pinned)
{
    const int32_t num_blocks = find_pinnable(cache, prototype, prompt);
    if (num_blocks > 0 && cache->pins.first_free == NO_PIN) {
        return refuse(PKV_NO_BLOCKS, "%d pins exist, as many as max_pinned_blocks",
                      cache->pins.num_used);
    }
    *pin = num_blocks > 0
               ? pin_start(&cache->pins, cache->reuse.matched, num_blocks, prototype, ends_ns)
               : (pkv_pin){0};
    *num_pinned = num_blocks * cache->reuse.block_size;
    return PKV_OK;
}

static enum pkv_status check_pin(const pkv_pin *pin, const int32_t *num_pinned)
{
    if (pin == NULL || num_pinned == NULL) {
        return INVALID("%s is NULL", pin == NULL ? "pin" : "num_pinned");
    }
    return PKV_OK;
}

enum pkv_status pkv_prefix_pin(pkv_cache *cache, const struct pkv_seq_options *options,
                               const struct pkv_prompt *given, uint64_t ttl_ns, uint64_t now_ns,
                               pkv_pin *pin, int32_t *num_pinned)
{
    struct seq prototype;
    struct namespace_fields fields;
    struct pkv_prompt prompt;
    enum pkv_status status = cache_check_reuse(cache);
    if (status == PKV_OK) {
        status = check_pin(pin, num_pinned);
    }
    if (status == PKV_OK) {
        status = prompt_take(given, true, &prompt);
    }
    if (status == PKV_OK) {
        status = seq_options_check(&cache->config, options, &prototype, &fields);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    pin_expire(&cache->pins, now_ns);
    status = namespace_look_up(cache, &fields, &prototype);
    if (status == PKV_OK) {
        status = pin_found(cache, &prototype, &prompt, end_of(ttl_ns, now_ns), pin, num_pinned);
    }
    cache_unlock(cache);
    return status;
}

static enum pkv_status refuse_stale(pkv_pin pin)
{
    return refuse(PKV_STALE_HANDLE, "pin %016llx is stale", (unsigned long long)pin.id);
}

enum pkv_status pkv_prefix_unpin(pkv_cache *cache, pkv_pin pin)
{
    const enum pkv_status status = cache_check_reuse(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const int32_t index = pin_find(&cache->pins, pin);
    if (index != NO_PIN) {
        pin_end(&cache->pins, index);
    }
    cache_unlock(cache);
    return index != NO_PIN ? PKV_OK : refuse_stale(pin);
}

enum pkv_status pkv_prefix_refresh(pkv_cache *cache, pkv_pin pin, uint64_t ttl_ns, uint64_t now_ns)
{
    const enum pkv_status status = cache_check_reuse(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    pin_expire(&cache->pins, now_ns);
    const int32_t index = pin_find(&cache->pins, pin);
    if (index != NO_PIN) {
        pin_extend(&cache->pins, index, end_of(ttl_ns, now_ns));
    }
    cache_unlock(cache);
    return index != NO_PIN ? PKV_OK : refuse_stale(pin);
}

enum pkv_status pkv_prefix_expire(pkv_cache *cache, uint64_t now_ns, int32_t *num_ended)
{
    const enum pkv_status status = cache_check_reuse(cache);
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    const int32_t ended = pin_expire(&cache->pins, now_ns);
    cache_unlock(cache);
    if (num_ended != NULL) {
        *num_ended = ended;
    }
    return PKV_OK;
}
