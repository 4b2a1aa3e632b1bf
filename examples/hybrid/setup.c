/* SPDX-License-Identifier: MIT
 *
 * setup.c: draws the numbers of a cache. Each group has room for one text of the greatest length at
 * least, with a step's tokens and copies beside it. */
#include "setup.h"

#include "dice.h"
#include "report.h"

#include <string.h>

static void draw_groups(uint64_t *random, int32_t max_len, struct setup *s)
{
    static const int32_t block_sizes[] = {4, 8, 16};
    const int32_t full = block_sizes[dice_between(random, 0, 2)];
    const int32_t window = block_sizes[dice_between(random, 0, 2)];
    const int32_t in_flight = s->config.max_step_tokens + s->max_rewind;
    const int32_t in_window = s->window + s->kept_prefix + 2 * window + in_flight;
    s->groups[GROUP_FULL].block_size = full;
    s->groups[GROUP_FULL].num_blocks =
        (max_len + in_flight) / full + 4 + dice_between(random, 0, 3 * max_len / full);
    s->groups[GROUP_WINDOW].block_size = window;
    s->groups[GROUP_WINDOW].num_blocks =
        in_window / window + 6 + dice_between(random, 0, 6 * in_window / window);
    s->groups[GROUP_STATE].num_blocks =
        2 * (s->max_rewind + 1) + 2 + dice_between(random, 0, 6 * (s->max_rewind + 3));
    s->groups[GROUP_STATE].max_rewind = s->max_rewind;
    const int32_t interval = dice_between(random, 1, 3) * (full > window ? full : window);
    s->groups[GROUP_STATE].snapshot_interval = interval;
    s->groups[GROUP_STATE].segment_tokens = dice_between(random, 0, 3) * interval;
}

void setup_draw(uint64_t seed, int32_t max_len, bool has_trees, struct setup *s)
{
    uint64_t random = seed;
    *s = (struct setup){.has_trees = has_trees};
    s->window = dice_between(&random, 5, 40);
    s->kept_prefix = dice_between(&random, 0, 1) * dice_between(&random, 1, 9);
    s->max_rewind = dice_between(&random, has_trees ? 3 : 0, 6);
    s->config = (struct pkv_cache_config){.size = sizeof s->config,
                                          .num_groups = NUM_GROUPS,
                                          .num_layers = HYBRID_LAYERS,
                                          .dtype = PKV_F32,
                                          .max_seqs = dice_between(&random, 3, 8),
                                          .max_seq_len = max_len,
                                          .max_step_tokens = dice_between(&random, 12, 64),
                                          .num_threads = 1,
                                          .poison_freed = true,
                                          .check_tokens = true,
                                          .prefix_cache = true,
                                          .no_partial_hits = dice_chance(&random, 50)};
    draw_groups(&random, max_len, s);
}

static struct pkv_layer_config attention_layer(const struct model *m, int32_t group)
{
    return (struct pkv_layer_config){.group = group,
                                     .num_heads = m->num_heads,
                                     .constants = {.rope_cos = m->rope_cos,
                                                   .rope_sin = m->rope_sin,
                                                   .rope_dtype = PKV_F32,
                                                   .rope_positions = m->seq_len,
                                                   .rope_width = m->head_dim / 2,
                                                   .rotary_mode = m->rotary_mode}};
}

bool setup_create(struct setup *s, const struct hybrid *hybrid, pkv_cache **cache)
{
    const struct model *m = &hybrid->model;
    for (int32_t g = GROUP_FULL; g <= GROUP_WINDOW; g++) {
        s->groups[g].kv_heads = m->kv_heads;
        s->groups[g].k_width = m->head_dim;
    }
    s->groups[GROUP_WINDOW].sliding_window = s->window;
    s->groups[GROUP_WINDOW].kept_prefix = s->kept_prefix;
    s->groups[GROUP_STATE].kind = PKV_GROUP_STATE;
    s->groups[GROUP_STATE].state_bytes = hybrid->state_bytes;
    for (int32_t layer = 0; layer < HYBRID_LAYERS; layer++) {
        const bool has_window = m->layers[layer].window > 0;
        s->layers[layer] = hybrid_recurrence(layer) >= 0
                               ? (struct pkv_layer_config){.group = GROUP_STATE}
                               : attention_layer(m, has_window ? GROUP_WINDOW : GROUP_FULL);
    }
    s->config.groups = s->groups;
    s->config.layers = s->layers;
    return pkv_cache_create(&s->config, cache) == PKV_OK ||
           complain("no cache: %s", pkv_last_error());
}
