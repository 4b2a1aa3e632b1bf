/* SPDX-License-Identifier: MIT
 *
 * pagedkv/attn.h: grouped-query attention over a cache that the caller owns. Query head h reads KV
 * head h / (num_heads / kv_heads). A row (one sequence of the batch) has q_len new tokens and
 * kv_len keys after they are appended; its query i stands at position f = kv_len - q_len + i and
 * sees keys 0..f:
 *
 *     x_j   = q_scale * dot(q, K_j)                      f32, over k_width channels
 *     p_j   = exp(x_j - lse),   lse = ln(sum exp(x_j))   over the keys that are seen
 *     out   = sum p_j * V_j                              v_width channels, rounded once to dtype
 *
 * with a window W: key j is seen when f - W < j <= f (W keys, the query's own among them), and with
 * a kept prefix P also when j < P. New keys and values are rounded to the cache's dtype first and
 * attended as stored. A key that is not seen is never read, nor is any cell beyond a row's length.
 *
 * The bits of a row's result depend on that row's own inputs alone: not on the rows beside it, the
 * thread count, how its tokens were cut into calls, the block ids, or the cache form; across
 * instruction sets only a tolerance holds (docs/operator.md). */
#ifndef PAGEDKV_ATTN_H
#define PAGEDKV_ATTN_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets, each with its own kernels. BEST is the highest that this CPU and build have. */
enum pkv_isa {
    PKV_ISA_BEST = 0,
    PKV_ISA_SCALAR = 1,
    PKV_ISA_AVX2 = 2,      /* AVX2, FMA and F16C */
    PKV_ISA_AVX512 = 3,    /* AVX-512 F, BW, DQ, VL */
    PKV_ISA_AVX512BF16 = 4 /* the same and BF16 dot products */
};

/* "scalar", "avx2", ...; "unknown isa" for anything else. Static storage. */
PKV_API const char *pkv_isa_name(enum pkv_isa isa);

typedef struct pkv_workspace pkv_workspace;
typedef struct pkv_plan pkv_plan;

/* Scratch for calls: partial results, duplicate stamps, converted queries. It grows while planning
 * (then PKV_NO_MEMORY is possible), never while running. num_threads in [0, 1024], 0 = OpenMP's
 * default at this moment. hooks may be NULL; they are copied. PKV_INVALID_ARGUMENT; PKV_UNSUPPORTED
 * for an isa that this CPU or build lacks; PKV_NO_MEMORY. One thread at a time uses a workspace;
 * the call itself may run on several. */
PKV_API PKV_NODISCARD enum pkv_status pkv_workspace_create(int num_threads, enum pkv_isa isa,
                                                           const struct pkv_hooks *hooks,
                                                           pkv_workspace **workspace);
/* Frees it; plans made with it must be gone. NULL is accepted. */
PKV_API void pkv_workspace_destroy(pkv_workspace *workspace);

/* The level that was chosen, never BEST; and the number of threads. Of NULL: scalar, and 0. */
PKV_API enum pkv_isa pkv_workspace_isa(const pkv_workspace *workspace);
PKV_API int pkv_workspace_num_threads(const pkv_workspace *workspace);

/* Where keys and values live. Never guessed.
 *
 *   NONE        nowhere: k and v of the call are all there is
 *   DENSE       past [batch][kv_heads][max_seq][width], appended in place; row b is batch row b
 *   DENSE_COPY  past [batch][kv_heads][S][width] is read, present [..][S + q_len][width] is written
 *               whole and attended; kv_lens NULL; q_len the same in every row; S = 0 is legal.
 *               Without tokens nothing is written
 *   CONTINUOUS  past [max_seqs][kv_heads][max_seq][width]; row b is cache row slot_ids[b] (NULL: b)
 *   PAGED       past [num_blocks][kv_heads][block_size][width]; cell j of row b is cell
 *               j % block_size of block_table[b][j / block_size] */
enum pkv_cache_form {
    PKV_CACHE_NONE = 0,
    PKV_CACHE_DENSE = 1,
    PKV_CACHE_DENSE_COPY = 2,
    PKV_CACHE_CONTINUOUS = 3,
    PKV_CACHE_PAGED = 4
};

enum pkv_rotary_mode { PKV_ROTARY_HALF_SPLIT = 0, PKV_ROTARY_INTERLEAVED = 1 };
enum pkv_norm_order { PKV_NORM_AFTER_ROPE = 0, PKV_NORM_BEFORE_ROPE = 1 };

/* What a model fixes per layer. All zero = plain attention with scale 1/sqrt(k_width). Pointers are
 * read during a raw call; a managed cache copies what they point to at create. */
struct pkv_attn_constants {
    const float *q_scale; /* one factor for the dot product; NULL = 1/sqrt(k_width). 0 and negative
                             are legal */
    float softcap;        /* x -> softcap * tanh(x / softcap); 0 = off */
    bool smooth_softmax;  /* a head sink of 0 for every head; not beside head_sink */
    const float *head_sink; /* [num_heads], a logit in the denominator that has no value row */
    int32_t head_sink_count;

    const void *rope_cos, *rope_sin; /* [rope_positions][rope_width], f32, f16 or bf16 */
    enum pkv_dtype rope_dtype;
    int64_t rope_positions;
    int32_t rope_width; /* half the number of rotated channels */
    int32_t rotary_offset;
    enum pkv_rotary_mode rotary_mode;

    const void *q_norm_gain, *k_norm_gain; /* [k_width] */
    enum pkv_dtype q_norm_gain_dtype, k_norm_gain_dtype;
    int32_t q_norm_gain_count, k_norm_gain_count;
    float qk_norm_eps; /* present exactly when a gain is */
    enum pkv_norm_order norm_order;

    const float *k_scale, *v_scale; /* of int8 and e4m3 caches: one, or [kv_heads][width] */
    int32_t k_scale_count, v_scale_count;
};

/* One call. Strides are in elements, 0 = packed, channels adjacent.
 *
 *   q    [num_tokens][num_heads * k_width]      out  [num_tokens][num_heads * v_width]
 *   k    [num_tokens][kv_heads * k_width]       v    [num_tokens][kv_heads * v_width]
 *   lse  [num_tokens][num_heads] f32, natural logarithm, or NULL
 *
 * Rows are delimited by cu_seqlens_q [batch + 1] (0 first, never falling, num_tokens last; a row
 * without tokens is legal); NULL = one token a row. kv_lens [batch] are totals after the append.
 * For NONE, rows of k and v follow cu_seqlens_k [batch + 1] (NULL = cu_seqlens_q). out and lse
 * overlap no input and no cache. */
struct pkv_gqa_args {
    size_t size;

    enum pkv_cache_form form;
    enum pkv_dtype dtype; /* of q, k, v and out: f32, f16 or bf16 */
    int32_t num_heads;
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width; /* 0 = k_width */
    bool v_in_k;     /* V is the first v_width channels of the stored K row; v absent */

    int32_t batch;
    int32_t num_tokens;
    const int32_t *cu_seqlens_q;
    const int32_t *cu_seqlens_k;
    const int32_t *kv_lens;
    const int32_t *block_table; /* [batch][max_blocks], PAGED only; -1 = nothing mapped */
    int32_t max_blocks;
    const int32_t *slot_ids; /* [batch], CONTINUOUS only */

    const void *q, *k, *v;
    void *out;
    float *lse;
    size_t q_stride, k_stride, v_stride, out_stride;

    struct pkv_kv_view past;
    struct pkv_kv_view present; /* DENSE_COPY: the extended cache; else k NULL, or equal to past */

    int64_t sliding_window;     /* W >= 1; 0 = none */
    const int64_t *kept_prefix; /* P, one or [batch]; NULL = 0 */
    int32_t kept_prefix_count;
    bool not_causal;

    const int64_t
        *position_ids;         /* [num_tokens], rope's row of each new token; NULL = its position */
    const void *attn_mask;     /* [mask_batch][mask_heads][mask_queries][mask_keys] */
    enum pkv_dtype mask_dtype; /* f32 or dtype: added; PKV_INT8: bytes, 1 = attend */
    int32_t mask_batch, mask_heads, mask_queries, mask_keys;

    struct pkv_attn_constants constants;
};

/* Appends k and v to the cache, then attends: pkv_gqa_plan + pkv_gqa_run. With k and v NULL it
 * attends to what the cache holds (pkv_attention_over_cache).
 *
 * PKV_INVALID_ARGUMENT for whatever the arguments above exclude: first of all a length, table entry
 * or slot that would lead outside the memory described, a block named twice in a row, a block
 * written by this call that another row names, a needed entry of -1. PKV_NO_MEMORY while
 * planning. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa(pkv_workspace *workspace,
                                              const struct pkv_gqa_args *args);

/* The append alone: q, out and lse absent. */
PKV_API PKV_NODISCARD enum pkv_status pkv_append(pkv_workspace *workspace,
                                                 const struct pkv_gqa_args *args);

/* The attend alone: k, v and present absent. The queries are the row's last q_len positions; a
 * causal row with kv_len < q_len refuses. The cache is not written. */
PKV_API PKV_NODISCARD enum pkv_status pkv_attention_over_cache(pkv_workspace *workspace,
                                                               const struct pkv_gqa_args *args);

/* A plan is what pkv_gqa does before it touches a channel: everything validated, the work split.
 * Made once per step and run once per layer. It borrows the workspace, which must outlive it.
 * PKV_NO_MEMORY. */
PKV_API PKV_NODISCARD enum pkv_status pkv_plan_create(pkv_workspace *workspace, pkv_plan **plan);
/* NULL is accepted. */
PKV_API void pkv_plan_destroy(pkv_plan *plan);

/* Validates args whole and splits the work into plan, whose earlier content is gone (also on
 * refusal). The arrays of lengths, tables and slots must stay unchanged until the last run: a plan
 * refers to the block tables and does not copy them. Statuses as pkv_gqa. Cost O(batch + table
 * entries); rows that begin alike and part at one place are compared with each other. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa_plan(pkv_workspace *workspace,
                                                   const struct pkv_gqa_args *args, pkv_plan *plan);

/* Runs one layer by a plan. Of args, what may differ from the planned call are pointers, strides
 * and the constants; dtypes, geometry and presence of k, q and present must be as planned
 * (PKV_INVALID_ARGUMENT). Takes no memory; checks cost O(1)
 * beside a walk over position_ids, kept_prefix and the constants. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_run(pkv_workspace *workspace, const struct pkv_gqa_args *args, const pkv_plan *plan);

/* A layer's work is a list of tasks in phases. Tasks of a phase are independent of each other and
 * none waits; a phase begins when the one before it has ended. Any of them may be empty. */
enum pkv_phase { PKV_PHASE_APPEND = 0, PKV_PHASE_ATTEND = 1, PKV_PHASE_MERGE = 2 };
#define PKV_NUM_PHASES 3

/* pkv_gqa_run for servers with threads of their own: the same checks and statuses, and the same
 * bits once every task has run.
 *
 *     pkv_gqa_start(workspace, &args, plan)
 *     for each phase
 *         for each i in [0, pkv_gqa_num_tasks(workspace, phase))      on any threads
 *             pkv_gqa_run_task(workspace, phase, i, worker)
 *         all threads wait for each other
 *
 * args' arrays stay until the last task; args itself may go. `worker` in [0, num_threads of the
 * workspace) names the scratch: no two tasks may run with the same one at once. pkv_gqa_run_task
 * answers PKV_INVALID_ARGUMENT for a number out of range; each task must run exactly once. Takes no
 * memory. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_start(pkv_workspace *workspace, const struct pkv_gqa_args *args, const pkv_plan *plan);
PKV_API int32_t pkv_gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase);
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker);

/* ---- sisters of the operator ------------------------------------------------------------------
 */

/* RMS norm per head, outside the operator:
 *     y[t][h][c] = x[t][h][c] / sqrt(mean over c of x[t][h]^2 + eps) * gain[c]
 * x, y [num_tokens][hidden] of dtype (f32, f16, bf16), hidden a multiple of width; gain [width] of
 * gain_dtype, read at its own precision; one rounding at the end. Strides in elements between
 * tokens, 0 = packed. eps finite and > 0. y may be x, or lie apart from it. PKV_INVALID_ARGUMENT.
 */
PKV_API PKV_NODISCARD enum pkv_status
pkv_qk_rms_norm(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens, int32_t hidden,
                const void *x, size_t x_stride, const void *gain, enum pkv_dtype gain_dtype,
                int32_t width, float eps, void *y, size_t y_stride);

/* A result of attention over some of the keys: out [num_tokens][num_heads * width] of dtype,
 * packed, and lse [num_tokens][num_heads] (natural logarithm). The empty state is (0, -inf). */
struct pkv_state {
    void *out;
    float *lse;
};

/* Attention over the union of two disjoint sets of keys, from the states over each:
 *     m = max(lse_a, lse_b),  w = exp(lse - m):
 *     out = (w_a out_a + w_b out_b) / (w_a + w_b),   lse = m + ln(w_a + w_b)
 * Merging with the empty state is the identity. Partials are computed without a sink, and every one
 * but that which holds the queries' own tokens with not_causal. result may be a or b itself, or lie
 * apart from both. PKV_INVALID_ARGUMENT. O(num_tokens * num_heads * width). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_merge_states(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                 int32_t num_heads, int32_t width, const struct pkv_state *a,
                 const struct pkv_state *b, const struct pkv_state *result);

/* Adds the sink logit of each query head to a finished state, in place and once:
 *     out *= exp(lse) / (exp(lse) + exp(sink)),   lse = ln(exp(lse) + exp(sink))
 * head_sink [num_heads], apart from the state: -inf is none; NaN and +inf refuse.
 * PKV_INVALID_ARGUMENT. */
PKV_API PKV_NODISCARD enum pkv_status pkv_apply_sink(pkv_workspace *workspace, enum pkv_dtype dtype,
                                                     int32_t num_tokens, int32_t num_heads,
                                                     int32_t width, const float *head_sink,
                                                     const struct pkv_state *state);

#ifdef __cplusplus
}
#endif

#endif
