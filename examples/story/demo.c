/* SPDX-License-Identifier: MIT
 *
 * demo.c: a small random model, requests of uneven length, and a pool too small for all of them at
 * once, so that chunks, joins, leaves and preemption all happen. */
#include "demo.h"

#include "random.h"
#include "three_ways.h"

#include <stdio.h>

enum { NUM_REQUESTS = 6, NUM_NEW = 64, SEED = 10 };

static bool make_requests(const struct model *model, int32_t num_new, struct request_list *list)
{
    int32_t prompt[64];
    for (int32_t r = 0; r < NUM_REQUESTS; r++) {
        const int32_t length = 5 + 37 * r % 48;
        for (int32_t i = 0; i < length; i++) {
            prompt[i] = (r * 131 + i * i * 17 + i) % model->vocab_size;
        }
        if (!request_add(list, model, prompt, length, num_new)) {
            return false;
        }
    }
    return true;
}

/* Half of what all requests need at once, but enough for the longest alone: a window row can need
 * a block more than its cells fill. */
static int32_t tight_pool(const struct request_list *list, int32_t block_size)
{
    int32_t sum = 0;
    for (int32_t r = 0; r < list->count; r++) {
        sum += (list->items[r].max_tokens - 1) / block_size + 1;
    }
    const int32_t alone = (request_longest(list) - 1) / block_size + 2;
    return sum / 2 > alone ? sum / 2 : alone;
}

static bool run_three(const struct model *model, struct serve_options *o, struct request_list *list)
{
    struct agreement agreement = {0};
    if (o->num_blocks == 0) {
        o->num_blocks = tight_pool(list, o->block_size);
    }
    if (!three_ways(model, o, list, &agreement)) {
        return false;
    }
    printf("all three emit the same %lld tokens (smallest lead over the second: %.4f)\n",
           (long long)agreement.num_tokens, (double)agreement.margin);
    return true;
}

bool demo(const struct options *options)
{
    struct model model = {.dim = 64,
                          .hidden_dim = 172,
                          .num_layers = 4,
                          .num_heads = 8,
                          .kv_heads = 2,
                          .vocab_size = 256,
                          .seq_len = 256};
    struct serve_options serve = options->serve;
    serve.progress = false;
    struct request_list list = {0};
    if (!model_random(SEED, &model)) {
        return false;
    }
    model_set_window(&model, options->window, options->kept_prefix);
    printf("no --model: a random one (%d wide, %d layers, %d query heads on %d KV heads), "
           "%d requests\n",
           model.dim, model.num_layers, model.num_heads, model.kv_heads, NUM_REQUESTS);
    const bool ok =
        make_requests(&model, options->num_new > 0 ? options->num_new : NUM_NEW, &list) &&
        run_three(&model, &serve, &list);
    request_free(&list);
    model_free(&model);
    return ok;
}
