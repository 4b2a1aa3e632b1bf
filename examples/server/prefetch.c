/* SPDX-License-Identifier: MIT */
#include "prefetch.h"

#include "report.h"

/* Does the cache have all of the prompt that could be adopted? */
static bool is_cached(pkv_cache *cache, const struct pkv_seq_options *options,
                      const struct pkv_prompt *prompt, int32_t max_cached)
{
    struct pkv_cache_config config = {.size = sizeof config};
    struct pkv_probe probe = {.size = sizeof probe};
    if (pkv_cache_describe(cache, &config) != PKV_OK ||
        pkv_cache_probe(cache, options, prompt, 0, max_cached, &probe, NULL) != PKV_OK) {
        return false;
    }
    const int32_t block_size = config.groups[0].block_size;
    return probe.num_cached / block_size >= (prompt->num_tokens - 1) / block_size;
}

bool prefetch_begin(struct prefetch *prefetch, pkv_cache *cache,
                    const struct pkv_seq_options *options, const struct pkv_prompt *prompt,
                    int32_t max_cached, uint64_t now_ns)
{
    if (prefetch->begun) {
        return true;
    }
    if (!is_cached(cache, options, prompt, max_cached)) {
        const enum pkv_status status =
            pkv_tier_prefetch(cache, options, prompt, max_cached, now_ns, &prefetch->ticket);
        if (status == PKV_NO_BLOCKS) {
            return false;
        }
        if (status != PKV_OK) {
            complain("prefetch: %s", pkv_last_error());
            prefetch->ticket = (pkv_ticket){0};
        }
    }
    prefetch->begun = true;
    prefetch->begun_ns = now_ns;
    return true;
}

bool prefetch_is_over(const struct prefetch *prefetch, pkv_cache *cache, uint64_t now_ns,
                      uint64_t max_ns)
{
    struct pkv_ticket_info info = {.size = sizeof info};
    return prefetch->ticket.id == 0 || now_ns - prefetch->begun_ns >= max_ns ||
           pkv_ticket_describe(cache, prefetch->ticket, &info) != PKV_OK ||
           info.state == PKV_TICKET_DONE;
}

bool prefetch_end(struct prefetch *prefetch, pkv_cache *cache)
{
    if (prefetch->ticket.id == 0) {
        return false;
    }
    if (pkv_ticket_close(cache, prefetch->ticket) != PKV_OK) {
        complain("a ticket would not close: %s", pkv_last_error());
    }
    prefetch->ticket = (pkv_ticket){0};
    return true;
}
