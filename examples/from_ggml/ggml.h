/* SPDX-License-Identifier: MIT
 *
 * ggml.h: the calls of ggml that the example needs, loaded from a folder of its shared libraries.
 * Tensors, contexts and graphs are opaque. */
#ifndef FROM_GGML_GGML_H
#define FROM_GGML_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGML_F32 = 0, GGML_F16 = 1 };

struct ggml_init_params {
    size_t bytes;
    void *memory;
    bool no_alloc;
};

/* Computes a node: dst from a, b and c; thread ith of nth calls it. */
typedef void ggml_custom3(void *dst, const void *a, const void *b, const void *c, int ith, int nth,
                          void *data);

struct ggml {
    void *backend;
    void *(*init)(struct ggml_init_params params);
    void (*free)(void *context);
    void *(*new_tensor_2d)(void *context, int type, int64_t n0, int64_t n1);
    void *(*mul_mat)(void *context, void *a, void *b);
    void *(*add)(void *context, void *a, void *b);
    void *(*reshape_2d)(void *context, void *a, int64_t n0, int64_t n1);
    void *(*reshape_3d)(void *context, void *a, int64_t n0, int64_t n1, int64_t n2);
    void *(*permute)(void *context, void *a, int axis0, int axis1, int axis2, int axis3);
    void *(*flash_attn_ext)(void *context, void *q, void *k, void *v, void *mask, float scale,
                            float max_bias, float softcap);
    void *(*map_custom3)(void *context, void *a, void *b, void *c, ggml_custom3 *compute,
                         int num_tasks, void *data);
    void *(*get_data)(const void *tensor);
    void *(*new_graph)(void *context);
    void (*build_forward_expand)(void *graph, void *tensor);
    void *(*alloc_ctx_tensors)(void *context, void *backend);
    void (*buffer_free)(void *buffer);
    void (*tensor_set)(void *tensor, const void *data, size_t offset, size_t bytes);
    void (*tensor_get)(const void *tensor, void *data, size_t offset, size_t bytes);
    int (*graph_compute)(void *backend, void *graph);
};

/* Loads ggml and its CPU backend, of whose builds the one that scores highest on this machine.
 * False, with a line on stderr, when the folder does not hold them. */
bool ggml_load(struct ggml *ggml, const char *folder);

#endif
