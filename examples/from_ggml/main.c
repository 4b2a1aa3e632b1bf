/* SPDX-License-Identifier: MIT
 *
 * from_ggml: a ggml graph whose attention nodes call pagedkv. The same small model, of random
 * weights, decodes greedily in two ways:
 *
 *   - all in ggml: the graph of a step has the whole text so far, and ggml_flash_attn_ext
 *   - with pagedkv: the graph has the new tokens alone. The attention node is ggml_map_custom3 over
 *     queries, keys and values; its function is pkv_step_attend, which appends to paged storage and
 *     attends to all the tokens before.
 *
 * Tokens must be equal, and logits up to rounding.
 *
 *     from_ggml FOLDER     where libggml-base.so lies and the builds of its CPU backend */
#include "ggml.h"

#include <math.h>
#include <pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 8, KV_HEADS = 2, WIDTH = 32, MODEL = HEADS * WIDTH, VOCAB = 96 };
enum { PROMPT = 21, DECODES = 40, MAX_TOKENS = PROMPT + DECODES, HALF_INFINITY = 0xfc00 };
enum { WEIGHT_Q, WEIGHT_K, WEIGHT_V, WEIGHT_OUT, WEIGHTS };

struct model {
    float embedding[VOCAB][MODEL]; /* of a token, and the rows that logits come from */
    float weights[LAYERS][WEIGHTS][MODEL * MODEL];
};

struct request {
    pkv_cache *cache;
    pkv_seq seq;
    pkv_step step;
};

/* What the function of an attention node needs. */
struct node {
    const struct ggml *ggml;
    const struct request *request;
    int32_t layer;
};

static const int rows_of[WEIGHTS] = {MODEL, KV_HEADS *WIDTH, KV_HEADS *WIDTH, MODEL};

static void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        exit(EXIT_FAILURE);
    }
}

static void fill(float *numbers, size_t count, float scale, uint32_t *state)
{
    for (size_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        numbers[i] = ((float)(*state >> 8) / 8388608.0f - 1.0f) * scale;
    }
}

static void make_model(struct model *model)
{
    uint32_t state = 1;
    fill(model->embedding[0], (size_t)VOCAB * MODEL, 1, &state);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int w = 0; w < WEIGHTS; w++) {
            fill(model->weights[layer][w], (size_t)rows_of[w] * MODEL, 0.2f, &state);
        }
    }
}

/* The function of an attention node: ggml's [heads * width, tokens] is [tokens][heads * width]. */
static void attend(void *dst, const void *q, const void *k, const void *v, int ith, int nth,
                   void *data)
{
    (void)nth;
    if (ith != 0) { /* ggml's other threads call it too, and wait for this one behind the node */
        return;
    }
    const struct node *node = data;
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = node->ggml->get_data(q),
                                    .k = node->ggml->get_data(k),
                                    .v = node->ggml->get_data(v),
                                    .out = node->ggml->get_data(dst)};
    must(pkv_step_attend(node->request->cache, node->request->step, node->layer, &io));
}

/* ggml's own attention over all tokens of the text. */
static void *attend_by_ggml(const struct ggml *ggml, void *context, void *const qkv[3], void *mask,
                            int tokens)
{
    void *heads[3];
    for (int i = 0; i < 3; i++) {
        void *split = ggml->reshape_3d(context, qkv[i], WIDTH, rows_of[i] / WIDTH, tokens);
        heads[i] = ggml->permute(context, split, 0, 2, 1, 3);
    }
    const float scale = 1.0f / sqrtf(WIDTH);
    void *out = ggml->flash_attn_ext(context, heads[0], heads[1], heads[2], mask, scale, 0, 0);
    return ggml->reshape_2d(context, out, MODEL, tokens);
}

/* A graph and its inputs. */
struct graph {
    void *context, *tokens, *mask, *logits;
    void *weights[LAYERS][WEIGHTS], *embedding;
    struct node nodes[LAYERS];
};

/* The graph of a step over `tokens` tokens; request NULL = all in ggml. */
static void build(const struct ggml *ggml, const struct request *request, int tokens,
                  struct graph *graph)
{
    void *const context = graph->context =
        ggml->init((struct ggml_init_params){(size_t)1 << 20, NULL, true});
    graph->tokens = ggml->new_tensor_2d(context, GGML_F32, MODEL, tokens);
    graph->embedding = ggml->new_tensor_2d(context, GGML_F32, MODEL, VOCAB);
    graph->mask = ggml->new_tensor_2d(context, GGML_F16, tokens, tokens);
    void *x = graph->tokens;
    for (int layer = 0; layer < LAYERS; layer++) {
        void **weights = graph->weights[layer], *qkv[3], *attention;
        for (int w = 0; w < WEIGHTS; w++) {
            weights[w] = ggml->new_tensor_2d(context, GGML_F32, MODEL, rows_of[w]);
        }
        for (int i = 0; i < 3; i++) {
            qkv[i] = ggml->mul_mat(context, weights[i], x);
        }
        if (request != NULL) {
            graph->nodes[layer] = (struct node){ggml, request, layer};
            attention =
                ggml->map_custom3(context, qkv[0], qkv[1], qkv[2], attend, 1, &graph->nodes[layer]);
        } else {
            attention = attend_by_ggml(ggml, context, qkv, graph->mask, tokens);
        }
        x = ggml->add(context, x, ggml->mul_mat(context, weights[WEIGHT_OUT], attention));
    }
    graph->logits = ggml->mul_mat(context, graph->embedding, x);
}

static void set_inputs(const struct ggml *ggml, const struct model *model, const int32_t *ids,
                       int tokens, const struct graph *graph)
{
    static uint16_t mask[MAX_TOKENS * MAX_TOKENS];
    const size_t row = sizeof model->embedding[0];
    for (int i = 0; i < tokens; i++) {
        ggml->tensor_set(graph->tokens, model->embedding[ids[i]], (size_t)i * row, row);
        for (int j = 0; j < tokens; j++) {
            mask[i * tokens + j] = j <= i ? 0 : HALF_INFINITY;
        }
    }
    ggml->tensor_set(graph->mask, mask, 0, (size_t)tokens * (size_t)tokens * sizeof mask[0]);
    ggml->tensor_set(graph->embedding, model->embedding, 0, sizeof model->embedding);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int w = 0; w < WEIGHTS; w++) {
            ggml->tensor_set(graph->weights[layer][w], model->weights[layer][w], 0,
                             (size_t)rows_of[w] * MODEL * sizeof(float));
        }
    }
}

/* Runs the model over `tokens` tokens, and reads the logits of the last one. */
static void forward(const struct ggml *ggml, const struct model *model,
                    const struct request *request, const int32_t *ids, int tokens,
                    float logits[VOCAB])
{
    struct graph graph;
    build(ggml, request, tokens, &graph);
    void *const compute = ggml->new_graph(graph.context);
    ggml->build_forward_expand(compute, graph.logits);
    void *const buffer = ggml->alloc_ctx_tensors(graph.context, ggml->backend);
    if (buffer == NULL) {
        fprintf(stderr, "ggml: no memory\n");
        exit(EXIT_FAILURE);
    }
    set_inputs(ggml, model, ids, tokens, &graph);
    if (ggml->graph_compute(ggml->backend, compute) != 0) {
        fprintf(stderr, "ggml: the graph failed\n");
        exit(EXIT_FAILURE);
    }
    const size_t bytes = VOCAB * sizeof logits[0];
    ggml->tensor_get(graph.logits, logits, (size_t)(tokens - 1) * bytes, bytes);
    ggml->buffer_free(buffer);
    ggml->free(graph.context);
}

static int32_t best_of(const float logits[VOCAB])
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void make_request(struct request *request)
{
    const struct pkv_group_config group = {
        .kv_heads = KV_HEADS, .k_width = WIDTH, .block_size = 16, .num_blocks = 8};
    struct pkv_layer_config layers[LAYERS];
    memset(layers, 0, sizeof layers);
    for (int i = 0; i < LAYERS; i++) {
        layers[i].num_heads = HEADS;
    }
    const struct pkv_cache_config config = {.size = sizeof config,
                                            .groups = &group,
                                            .num_groups = 1,
                                            .layers = layers,
                                            .num_layers = LAYERS,
                                            .max_seqs = 1,
                                            .max_seq_len = MAX_TOKENS,
                                            .max_step_tokens = PROMPT,
                                            .num_threads = 1};
    must(pkv_cache_create(&config, &request->cache));
    must(pkv_seq_create(request->cache, NULL, &request->seq));
}

/* A forward pass over new tokens alone: what came before is in the cache. */
static void forward_paged(const struct ggml *ggml, const struct model *model,
                          struct request *request, const int32_t *ids, int32_t tokens,
                          float logits[VOCAB])
{
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &request->seq,
                                    .q_lens = &tokens,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids};
    must(pkv_step_begin(request->cache, &batch, &request->step, NULL));
    forward(ggml, model, request, ids, tokens, logits);
    must(pkv_step_commit(request->cache, request->step, NULL));
}

static bool compare(const struct ggml *ggml, const struct model *model, struct request *request)
{
    static float by_ggml[VOCAB], paged[VOCAB];
    int32_t ids[MAX_TOKENS + 1];
    int count = 0, equal = 0;
    double largest = 0, scale = 0;
    for (; count < PROMPT; count++) {
        ids[count] = count * 29 % VOCAB;
    }
    for (int done = 0; count <= MAX_TOKENS; done = count, count++) {
        forward(ggml, model, NULL, ids, count, by_ggml);
        forward_paged(ggml, model, request, ids + done, count - done, paged);
        for (int i = 0; i < VOCAB; i++) {
            const double error = fabs((double)paged[i] - by_ggml[i]);
            largest = error <= largest ? largest : error; /* NaN is kept */
            scale = fmax(scale, fabs(by_ggml[i]));
        }
        ids[count] = best_of(by_ggml);
        equal += best_of(paged) == ids[count];
    }
    const bool same = equal == DECODES + 1 && largest <= 1e-4 * scale;
    printf("%d of %d tokens equal, logits %s within rounding\n", equal, DECODES + 1,
           largest <= 1e-4 * scale ? "equal" : "not equal");
    return same;
}

int main(int argc, char **argv)
{
    static struct model model;
    struct ggml ggml;
    struct request request;
    if (argc != 2) {
        fprintf(stderr, "usage: from_ggml FOLDER\n");
        return EXIT_FAILURE;
    }
    if (!ggml_load(&ggml, argv[1])) {
        return EXIT_FAILURE;
    }
    make_model(&model);
    make_request(&request);
    const bool same = compare(&ggml, &model, &request);
    must(pkv_cache_destroy(request.cache, false));
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
