/* SPDX-License-Identifier: MIT
 *
 * workspace.h: the memory and the threads that calls work with. Buffers grow while planning and
 * only then; a run finds what its plan needs:
 *
 *   partials.bytes >= num_partials * kv_heads * partial_floats * 4      of every plan made with it
 *   scratch.bytes  >= num_threads * scratch_floats * 4,   scratch_floats >= that of every plan
 *
 * One thread at a time uses a workspace; the tasks of the layer under way may run on several. */
#ifndef PKV_ATTN_WORKSPACE_H
#define PKV_ATTN_WORKSPACE_H

#include "attn/buffer.h"
#include "attn/gqa_layer.h"
#include "attn/kernels.h"
#include "attn/plan.h"
#include "attn/team.h"

struct pkv_workspace {
    struct pkv_hooks hooks;
    const struct kernels *kernels;
    struct team team;
    pkv_plan *plan;    /* of the calls that plan and run at once */
    int64_t thread_ns; /* plan.h */

    size_t scratch_floats; /* of one worker */
    struct buffer scratch;
    struct buffer partials;
    struct buffer
        new_keys; /* of a cache-less call with rope or norm: [tokens][kv_heads][k_width] */
    struct buffer contract_rows; /* lengths and kept prefixes that pkv_gqa_contract derives */
    struct buffer norm_head;     /* f32 [width], of pkv_qk_rms_norm */
    struct buffer block_scores;  /* scratch of pkv_block_rank */

    struct buffer id_stamps; /* uint32_t per block or slot: met in the list under check */
    uint32_t id_epoch;
    struct buffer writers; /* check_tables.c: which row appends to a block in this call */
    uint32_t writers_epoch;

    const pkv_plan *running; /* the plan of the layer under way; NULL: none */
    struct gqa_layer_copy layer;
};

/* The scratch of worker `worker`. */
static inline float *workspace_scratch(const pkv_workspace *workspace, int worker)
{
    return (float *)workspace->scratch.memory + (size_t)worker * workspace->scratch_floats;
}

/* Grows scratch and partials to what the plan needs. PKV_NO_MEMORY, also when sizes overflow. */
enum pkv_status workspace_reserve(pkv_workspace *workspace, const pkv_plan *plan);

#endif
