/* SPDX-License-Identifier: MIT
 *
 * pagedkv/attn.h: grouped-query attention (GQA, arXiv:2305.13245) over a KV cache that the caller
 * owns. One call appends a ragged batch's new keys and values to the cache and attends to all keys
 * that each query sees. The caller brings memory, block tables and lengths; a managed cache
 * (cache.h) brings them itself and is built on the same operator.
 *
 *     pkv_workspace_create(0, PKV_ISA_BEST, NULL, &workspace)
 *     args = {.size = sizeof args, .form = PKV_CACHE_PAGED, .past = view, ...}
 *     pkv_gqa(workspace, &args)                       one layer, all at once
 *
 *     pkv_plan_create(workspace, &plan)               or, for a model of many layers:
 *     pkv_gqa_plan(workspace, &args, plan)            once per step: validate, split the work
 *     for each layer: pkv_gqa_run(workspace, &args_of_layer, plan)
 *
 * The mathematics. A row is one sequence's part of the batch: q_len new tokens, and kv_len keys
 * once they are appended. Its query i is at position f = kv_len - q_len + i. Query head h reads KV
 * head h / (num_heads / kv_heads). Over the keys j that the query sees,
 *
 *     x_j   = q_scale * dot(q, K_j)                      f32, over k_width channels
 *     p_j   = exp(x_j - lse)      lse = ln(sum exp(x_j))
 *     out   = sum p_j * V_j                              v_width channels, rounded once to dtype
 *
 * which keys are 0 .. f (causal); with a sliding window W those with f - W < j <= f, W keys
 * including the query's own; and with a kept prefix P beside the window also those with j < P. A
 * query of a bidirectional range (an image) sees the later keys of that range too. New keys and
 * values are rounded to the cache's dtype first and attended as they are stored. A key that no
 * query sees is never read, nor is any cell at or beyond a row's length. docs/operator.md is the
 * full specification.
 *
 * Bits. A row's result depends on that row's own inputs alone: not on other rows, the number of
 * threads, how its tokens were divided into calls, the block ids, or the cache form. Instruction
 * sets differ from each other within the tolerance of docs/numerics.md.
 *
 * Threads. One thread at a time uses a workspace and its plans; a call itself runs on that thread
 * and up to num_threads - 1 others, those of an OpenMP parallel region or of hooks.parallel_for. A
 * task needs a stack of 64 KiB. A call whose sizes come to less than 20 us of work stays on its
 * thread, a larger one has tasks for a thread more with every 10 us. Without a hook a call stays on
 * its thread, too, inside a parallel region of the caller's; in a forked child where the forking
 * thread had called before; where the system refuses num_threads threads, of which the log is told
 * once a calling thread; in a build without OpenMP; and for a time after a region whose threads
 * came so late that the caller alone would have been faster (docs/embedding.md). Different
 * workspaces are independent, also over one cache, as long as none writes what another one uses. */
#ifndef PAGEDKV_ATTN_H
#define PAGEDKV_ATTN_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- workspaces ---------------------------------------------------------------------------- */

typedef struct pkv_workspace pkv_workspace;

/* Makes a workspace: the scratch memory, the kernels and the threads of attention calls. A server
 * needs one for each thread that issues calls, not one for each layer or sequence.
 *
 * num_threads is in [0, 1024], and 0 takes as many as this process can run at once: the least of
 * the processors that the calling thread may run on, the whole processors of the control groups'
 * CPU quotas, and OpenMP's default where the process has OpenMP. isa chooses kernels,
 * PKV_ISA_BEST the highest that works here. hooks may be NULL. Scratch grows while calls are
 * planned and never shrinks, so a step that resembles the one before takes no memory.
 *
 * Returns PKV_OK and the workspace in *workspace, which the caller destroys; PKV_INVALID_ARGUMENT;
 * PKV_UNSUPPORTED for an isa that this CPU or build lacks; PKV_NO_MEMORY. O(num_threads). */
PKV_API PKV_NODISCARD enum pkv_status pkv_workspace_create(int num_threads, enum pkv_isa isa,
                                                           const struct pkv_hooks *hooks,
                                                           pkv_workspace **workspace);

/* Frees a workspace. Plans made with it must have been destroyed before. NULL is accepted. */
PKV_API void pkv_workspace_destroy(pkv_workspace *workspace);

/* The instruction set whose kernels a workspace uses.
 *
 * Returns the set that was chosen, never PKV_ISA_BEST; PKV_ISA_SCALAR for NULL. O(1). */
PKV_API enum pkv_isa pkv_workspace_isa(const pkv_workspace *workspace);

/* The number of threads that a workspace runs calls on, the one that the task calls number as
 * workers.
 *
 * Returns a number in [1, 1024]; 0 for NULL. O(1). */
PKV_API int pkv_workspace_num_threads(const pkv_workspace *workspace);

/* ---- arguments ----------------------------------------------------------------------------- */

/* Where keys and values live. The caller names the form; it is never guessed from shapes. */
enum pkv_cache_form {
    /* No cache: k and v of the call are all keys there are. Rows by cu_seqlens_k, NULL =
     * cu_seqlens_q. */
    PKV_CACHE_NONE = 0,
    /* past [batch][kv_heads][max_seq][width], appended in place; row b is batch row b. */
    PKV_CACHE_DENSE = 1,
    /* past [batch][kv_heads][S][width] is read; present [batch][kv_heads][S + q_len][width] is
     * written whole and attended. kv_lens NULL, q_len the same in every row, S = 0 legal. Without
     * new tokens nothing is written. */
    PKV_CACHE_DENSE_COPY = 2,
    /* past [max_seqs][kv_heads][max_seq][width], appended in place; row b is slot slot_ids[b],
     * NULL: slot b. */
    PKV_CACHE_CONTINUOUS = 3,
    /* past [num_blocks][kv_heads][block_size][width], appended in place; key j of row b is in cell
     * j % block_size of block block_table[b][j / block_size]. */
    PKV_CACHE_PAGED = 4
};

/* Which channels rotary embedding turns as a pair, of R = 2 * rope_width: t and t + rope_width
 * (NeoX, Llama) or 2t and 2t + 1 (GPT-J). */
enum pkv_rotary_mode { PKV_ROTARY_HALF_SPLIT = 0, PKV_ROTARY_INTERLEAVED = 1 };

/* Whether heads are normed after or before they are rotated. */
enum pkv_norm_order { PKV_NORM_AFTER_ROPE = 0, PKV_NORM_BEFORE_ROPE = 1 };

/* What a model fixes for each layer. All zero is plain attention with the scale 1 / sqrt(k_width)
 * over float caches. Arrays are read during the call; a managed cache copies them at create. */
struct pkv_attn_constants {
    /* [1], the factor of the dot product: finite, 0 and negative values are legal. NULL = 1 /
     * sqrt(k_width). */
    const float *q_scale;
    /* x becomes softcap * tanh(x / softcap), before a mask is added; finite, 0 = off. */
    float softcap;
    /* A sink of 0 for every head; excludes head_sink. */
    bool smooth_softmax;
    /* [num_heads], one logit of each query head that takes a share of the softmax and has no value.
     * Not scaled, capped or masked. Finite or -inf, which is none. Not the kept prefix. */
    const float *head_sink;
    int32_t head_sink_count;

    /* Rotary embedding (Su et al., arXiv:2104.09864): cos/sin tables [rope_positions][rope_width]
     * of rope_dtype (f32, f16 or bf16); NULL = not rotated. Channels [rotary_offset, rotary_offset
     * + 2 * rope_width) of each query and new key turn by the table row of their position:
     *
     *     a' = a * cos - b * sin      b' = b * cos + a * sin
     */
    const void *rope_cos, *rope_sin;
    enum pkv_dtype rope_dtype;
    int64_t rope_positions;
    /* Pairs that turn: half the number of rotated channels. */
    int32_t rope_width;
    int32_t rotary_offset;
    enum pkv_rotary_mode rotary_mode;

    /* RMS norm (Zhang and Sennrich, arXiv:1910.07467) of each head of queries and of new keys: norm
     * weights [k_width] of f32, f16 or bf16 (q_norm_gain is the contract's name for the norm
     * weight, see contract.h). Either may be NULL: not normed. In the order after rope, cos/sin
     * tables are needed too.
     *
     *     y[c] = x[c] / sqrt(mean of x^2 + qk_norm_eps) * weight[c]
     */
    const void *q_norm_gain, *k_norm_gain;
    enum pkv_dtype q_norm_gain_dtype, k_norm_gain_dtype;
    int32_t q_norm_gain_count, k_norm_gain_count;
    /* Finite and above 0 with a norm weight; 0 without one. */
    float qk_norm_eps;
    enum pkv_norm_order norm_order;

    /* Scales of int8 and e4m3 caches, and absent for float ones: 1 element, or [kv_heads][k_width]
     * (v: v_width). Above 0, and such that the largest code times the scale is finite; of one
     * number, its product with q_scale is below 10^36. The same for as long as cells written
     * with them are read. */
    const float *k_scale, *v_scale;
    int32_t k_scale_count, v_scale_count;
    uint64_t reserved[8];
};

/* Tokens [begin, end) of a row, by their positions in it: 0 is the row's first key. */
struct pkv_token_range {
    int32_t begin, end;
};

/* The arguments of one attention call, of one layer. Strides are in elements between tokens, 0 =
 * packed, so that q, k and v may be parts of one fused QKV row; channels are adjacent. A pointer
 * left NULL, and a count left 0, are absent. */
struct pkv_gqa_args {
    size_t size;

    enum pkv_cache_form form;
    /* Of q, k, v and out: f32, f16 or bf16. The cache's dtypes are those of its view. */
    enum pkv_dtype dtype;
    /* A multiple of kv_heads: as many query heads read each KV head. */
    int32_t num_heads;
    int32_t kv_heads;
    /* Channels of a query and key head, and of a value head; v_width 0 = k_width. */
    int32_t k_width;
    int32_t v_width;
    /* Latent caches (MLA): a value is the first v_width channels of the stored key; v, past.v and
     * v_scale are absent. */
    bool v_in_k;

    /* Rows, and new tokens of all rows together. */
    int32_t batch;
    int32_t num_tokens;
    /* [batch + 1]: row b has the tokens [cu_seqlens_q[b], cu_seqlens_q[b + 1]). 0 first, never
     * falling, num_tokens last; a row without tokens is legal. NULL = one token a row. */
    const int32_t *cu_seqlens_q;
    /* [batch + 1], the same for rows of k and v. Form NONE alone. */
    const int32_t *cu_seqlens_k;
    /* [batch], keys of each row after the append. Not for the forms NONE and DENSE_COPY. */
    const int32_t *kv_lens;
    /* [batch][max_blocks], form PAGED alone: -1 = nothing mapped, which is legal for blocks that
     * the row neither writes nor needs. A block may be in several rows unless this call writes it.
     */
    const int32_t *block_table;
    int32_t max_blocks;
    /* [batch], form CONTINUOUS alone: distinct numbers in [0, past.num_blocks). NULL = row b has
     * slot b. */
    const int32_t *slot_ids;

    /* [num_tokens][num_heads * k_width], [num_tokens][kv_heads * k_width] and [num_tokens][kv_heads
     * * v_width]. k and v NULL: nothing is appended. */
    const void *q, *k, *v;
    /* [num_tokens][num_heads * v_width]. out and lse overlap no input, no cache and not each other.
     */
    void *out;
    /* [num_tokens][num_heads], packed, natural logarithm; NULL = not wanted. */
    float *lse;
    size_t q_stride, k_stride, v_stride, out_stride;

    /* The cache as it is before the call; absent for NONE. */
    struct pkv_kv_view past;
    /* DENSE_COPY: the extended cache. The other forms append in place: k NULL, or equal to past. */
    struct pkv_kv_view present;

    /* W >= 1 keys; 0 = no window. */
    int64_t sliding_window;
    /* P >= 0, [kept_prefix_count], which is 1 or batch: the first P keys are seen beside the
     * window, at their own positions. NULL = 0. Without a window it changes nothing. */
    const int64_t *kept_prefix;
    int32_t kept_prefix_count;
    /* Every query sees all keys of its row. Excludes a window and a kept prefix. */
    bool not_causal;

    /* [num_tokens], the table row by which rope turns each new token, in [0, rope_positions). It
     * does not change what a query sees. NULL = the token's position in its row. */
    const int64_t *position_ids;
    /* [mask_batch][mask_heads][mask_queries][mask_keys], packed; batch and heads may be 1, queries
     * and keys must reach the longest row. f32 or dtype is added to the score, and -inf hides a
     * key; PKV_INT8 stands for bytes, 0 hides. It narrows what causality and window admit. */
    const void *attn_mask;
    enum pkv_dtype mask_dtype;
    int32_t mask_batch, mask_heads, mask_queries, mask_keys;

    struct pkv_attn_constants constants;

    /* Bidirectional ranges: tokens of a row that all see each other, as those of an image do. A
     * query in the range [begin, end) sees the keys up to end - 1, and no further back than any
     * other query: the window counts from its own position. Row b has the ranges
     * [cu_bidirectional[b], cu_bidirectional[b + 1]), ascending, disjoint and not empty, each in
     * [0, kv_len). A call cuts none: what begins before the row's first new token ends before it
     * too, and changes nothing. A mask narrows them; not_causal excludes them. cu_bidirectional is
     * [batch + 1], 0 first, never falling; NULL = no ranges. */
    const struct pkv_token_range *bidirectional;
    const int32_t *cu_bidirectional;

    /* Selected blocks (sparse attention): of the keys that causality admits, a query sees those of
     * the listed blocks and the newest selected_newest, its own included, and reads no others.
     * Block s is the keys [s * selection_size, (s + 1) * selection_size) of the row, its last block
     * may be cut by kv_len. A list ascends without repeats, each entry in [0, ceil(kv_len /
     * selection_size)), and may be empty: a query without a visible key has out 0 and lse -inf.
     * A list holds for all queries of its row. num_selected_lists is batch, a list a row, or batch
     * * kv_heads, a list for each KV head, those of row 0 first: list i is
     * selected[cu_selected[i]] .. selected[cu_selected[i + 1] - 1]. cu_selected is
     * [num_selected_lists + 1], 0 first, never falling; NULL = all is seen, and then the others are
     * 0 too. A mask narrows it; sliding_window beside it refuses. */
    const int32_t *selected;
    const int32_t *cu_selected;
    int32_t num_selected_lists;
    /* Keys of a block, >= 1; 0 = past.block_size, in the form PAGED alone. */
    int32_t selection_size;
    /* W >= 0 keys that are seen without being selected: a query at f sees those with f - W < j.
     * Above 0 it excludes not_causal. */
    int64_t selected_newest;

    /* Trees of drafts (speculative decoding): [num_tokens], for each new token the number of its
     * parent among the row's new tokens, below its own, or -1: a root, whose parent is the row's
     * last key before the call. NULL = a chain, each token's parent is the one before it. A token's
     * depth is 0 for a root, its parent's + 1 for others, and its position is f = kv_len - q_len +
     * depth, by which rope turns it unless position_ids does. Its key goes into the cell of its
     * number as ever. A query sees the keys before the call as any query at f does, and of the new
     * ones its own and those of its ancestors, whose positions the window and the kept prefix
     * judge; siblings and their descendants are never read. All new tokens of a paged row count as
     * needed. A mask narrows this, its columns being cells.
     *
     * A row whose parents form the chain is the row without parents, bit by bit, and of any length;
     * of other rows at most PKV_MAX_TREE_TOKENS are new. A query of a tree sums in the order of
     * cells: where its path lies in other cells than a plain call would give it, the bits may
     * differ, within the tolerance of docs/numerics.md. not_causal excludes parents, and so does a
     * bidirectional range of new tokens in the same row; selected blocks beside a row that is a
     * tree refuse with PKV_UNSUPPORTED. */
    const int32_t *parents;
};

/* Max new tokens of a row that are a tree and no chain. */
#define PKV_MAX_TREE_TOKENS 1024

/* ---- whole calls --------------------------------------------------------------------------- */

/* Appends new keys and values to the cache and attends, for one layer: pkv_gqa_plan and pkv_gqa_run
 * in one. With k and v NULL it attends to what the cache holds.
 *
 * All arguments are checked before anything is read or written, the block tables entry by entry: a
 * length, entry or slot that would lead outside the memory described, a block listed twice in one
 * row, a block that this call writes and another row lists, a needed entry that is -1.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for whatever struct pkv_gqa_args excludes, with no byte of
 * cache and outputs changed; PKV_NO_MEMORY while scratch still grows.
 *
 * O(queries * keys seen * num_heads * width), plus O(batch * max_blocks) checks. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa(pkv_workspace *workspace,
                                              const struct pkv_gqa_args *args);

/* Appends new keys and values to the cache and attends to nothing: q, out and lse are absent. Rope,
 * norm and rounding are those of pkv_gqa, so the cells get the same bits.
 *
 * Returns the statuses of pkv_gqa. O(num_tokens * kv_heads * width), plus the checks. */
PKV_API PKV_NODISCARD enum pkv_status pkv_append(pkv_workspace *workspace,
                                                 const struct pkv_gqa_args *args);

/* Attends to what the cache holds and writes nothing to it: k, v and present are absent. The
 * queries are the last q_len positions of each row, so a causal row with kv_len < q_len refuses.
 *
 * Returns the statuses of pkv_gqa, and costs the same. */
PKV_API PKV_NODISCARD enum pkv_status pkv_attention_over_cache(pkv_workspace *workspace,
                                                               const struct pkv_gqa_args *args);

/* ---- plans: what all layers of a step share ------------------------------------------------- */

typedef struct pkv_plan pkv_plan;

/* Makes an empty plan. It refers to the workspace, which must outlive it, and can be filled again
 * for every step.
 *
 * Returns PKV_OK and the plan in *plan, which the caller destroys; PKV_NO_MEMORY. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_plan_create(pkv_workspace *workspace, pkv_plan **plan);

/* Frees a plan. NULL is accepted. */
PKV_API void pkv_plan_destroy(pkv_plan *plan);

/* Validates a call and divides its work into tasks, without touching a channel of q, k, v or the
 * cache. Layers of one geometry share a plan: it is made once per step and run once per layer. Rows
 * that begin with the same blocks are found here, and attended together so that their shared prefix
 * is read once.
 *
 * What the plan held before is gone, also after a refusal. The plan refers to block_table and does
 * not copy it: the table must stay unchanged until the last run.
 *
 * Returns the statuses of pkv_gqa. O(batch + table entries); rows whose block tables begin alike
 * are compared with each other. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa_plan(pkv_workspace *workspace,
                                                   const struct pkv_gqa_args *args, pkv_plan *plan);

/* Runs one layer by a plan: the same bits as pkv_gqa.
 *
 * args are complete arguments, of which a layer may change pointers of q, k, v, out, lse, past and
 * present, their strides, the constants, position_ids and the mask's content. Form, dtypes,
 * geometry, window, causality, and the presence of k, of a mask and of selected blocks are those of
 * the plan; lengths, tables, slots, kept prefixes, bidirectional ranges and lists of selected
 * blocks are taken from the plan, so layers that select for themselves are planned for themselves.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for an empty plan, one of another workspace, or arguments
 * that are not as planned. It takes no memory. Cost as pkv_gqa, without the walk over the block
 * tables. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_run(pkv_workspace *workspace, const struct pkv_gqa_args *args, const pkv_plan *plan);

/* ---- tasks: for servers with threads of their own ------------------------------------------- */

/* A layer's work is a list of tasks in three phases: append new cells, attend, merge the partial
 * results of rows that were divided. Tasks of one phase are independent and none waits for another;
 * a phase may begin when every task of the one before it has ended. A phase may be empty. */
enum pkv_phase { PKV_PHASE_APPEND = 0, PKV_PHASE_ATTEND = 1, PKV_PHASE_MERGE = 2 };
#define PKV_NUM_PHASES 3

/* Starts one layer by a plan, to be run in tasks on threads of the caller's own instead of
 * pkv_gqa_run:
 *
 *     pkv_gqa_start(workspace, &args, plan)
 *     for each phase
 *         for each i in [0, pkv_gqa_num_tasks(workspace, phase))      on any threads
 *             pkv_gqa_run_task(workspace, phase, i, worker)
 *         all threads wait for each other
 *
 * The arrays that args points to must stay until the last task has run; args itself need not.
 *
 * Returns the statuses of pkv_gqa_run. It takes no memory; only the checks cost time. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_start(pkv_workspace *workspace, const struct pkv_gqa_args *args, const pkv_plan *plan);

/* The number of tasks in one phase of the layer that pkv_gqa_start began.
 *
 * Returns a number >= 0; 0 when no layer was started. Any of the threads that run the layer; O(1).
 */
PKV_API int32_t pkv_gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase);

/* Runs one task of one phase of the layer that pkv_gqa_start began. Each task must run exactly
 * once; the results are complete, with the bits of pkv_gqa_run, when all of them have.
 *
 * task is in [0, pkv_gqa_num_tasks). worker, in [0, num_threads of the workspace), names the
 * scratch: no two tasks may run with the same worker at the same time.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for a number out of range. Several threads may run tasks of
 * one phase at once, each with a worker of its own. It takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker);

/* ---- beside the operator: norm, merging, sink ------------------------------------------------ */

/* RMS norm of every head of a tensor, as a call of its own:
 *
 *     y[t][h][c] = x[t][h][c] / sqrt(mean over c of x[t][h]^2 + eps) * weight[c]
 *
 * x and y [num_tokens][hidden] of dtype (f32, f16 or bf16); hidden is a multiple of width, the
 * channels of one head. weight [width] of weight_dtype is the norm weight, read at its own
 * precision. Strides are in elements between tokens, 0 = packed. eps is finite and above 0.
 * Everything is computed in f32 and rounded once. y may be x itself with the same stride, or must
 * not overlap it.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT; PKV_NO_MEMORY for one head of scratch. The workspace's
 * thread; O(num_tokens * hidden). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_qk_rms_norm(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens, int32_t hidden,
                const void *x, size_t x_stride, const void *weight, enum pkv_dtype weight_dtype,
                int32_t width, float eps, void *y, size_t y_stride);

/* An attention state: the result of attention over some of the keys. out [num_tokens][num_heads *
 * width] is packed and already divided by its softmax sum; lse [num_tokens][num_heads] is the
 * natural logarithm of that sum. The state over no keys is (0, -inf). */
struct pkv_state {
    void *out;
    float *lse;
};

/* Merges two attention states over disjoint sets of keys into the one over their union, for
 * instance over a cached context and over new tokens, or over parts of a context on several
 * machines:
 *
 *     m   = max(lse_a, lse_b)             w = exp(lse - m)
 *     out = (w_a out_a + w_b out_b) / (w_a + w_b)      lse = m + ln(w_a + w_b)
 *
 * out is of dtype (f32, f16 or bf16). A state over no keys leaves the other one's bits as they are,
 * and its own out is not read. Compute the states without a sink (pkv_apply_sink adds it once), and
 * with not_causal except for the one that holds the queries' own tokens. result may be a or b
 * itself, or must not overlap them.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT. The workspace's thread; O(num_tokens * num_heads * width).
 * Source: the rescaling of online softmax, Milakov and Gimelshein 2018 (arXiv:1805.02867). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_merge_states(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                 int32_t num_heads, int32_t width, const struct pkv_state *a,
                 const struct pkv_state *b, const struct pkv_state *result);

/* Adds the sink logit of each query head to a finished attention state, in place and once:
 *
 *     out = out * exp(lse) / (exp(lse) + exp(sink))      lse = ln(exp(lse) + exp(sink))
 *
 * head_sink [num_heads], finite or -inf, which changes nothing; it must not overlap the state.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT, for a sink of NaN or +inf too. The workspace's thread;
 * O(num_tokens * num_heads * width). */
PKV_API PKV_NODISCARD enum pkv_status pkv_apply_sink(pkv_workspace *workspace, enum pkv_dtype dtype,
                                                     int32_t num_tokens, int32_t num_heads,
                                                     int32_t width, const float *head_sink,
                                                     const struct pkv_state *state);

#ifdef __cplusplus
}
#endif

#endif
