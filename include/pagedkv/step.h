/* SPDX-License-Identifier: MIT
 *
 * pagedkv/step.h: steps of a managed cache (cache.h): one forward pass over a batch of sequences.
 *
 *     batch = {.size = sizeof batch, .seqs = seqs, .num_rows = n, .num_required_rows = n,
 *              .token_ids = tokens}
 *     pkv_step_begin(cache, &batch, &step, &shortage)
 *     for each layer
 *         compute q, k and v of the layer
 *         pkv_step_attend(cache, step, layer, &io)
 *     pkv_step_commit(cache, step, NULL)
 *
 * pkv_step_begin reserves a cell for every new token in every layer group and plans the attention
 * once for all layers; it writes no keys and values. pkv_step_attend appends a layer's keys and
 * values and attends. pkv_step_commit makes the new tokens part of their sequences; pkv_step_abort
 * drops them. One step of a cache is open at a time.
 *
 * A row is one sequence's part of a step, in the order of the batch; its tokens are packed one row
 * after the other. Prefill, chunked prefill, decode and the verification of drafts are rows of
 * different lengths, and mix in one step. A row's outputs have the same bits whatever the other
 * rows are (attn.h).
 *
 * Ownership. The step belongs to the cache; the handle is stale once it is committed or aborted.
 * Block tables, lengths and copies are constant while it is open.
 *
 * Threads. The calls on one open step come from one thread at a time, except that the tasks of a
 * layer run on several (pkv_step_run_task). Meanwhile any thread may create, admit, probe and
 * destroy sequences. The mutex is never held while attending. */
#ifndef PAGEDKV_STEP_H
#define PAGEDKV_STEP_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/cache.h"
#include "pagedkv/pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open step. A zeroed handle is stale in every cache. */
typedef struct pkv_step {
    uint64_t id;
} pkv_step;

/* The rows of a step. Row i appends q_lens[i] tokens to sequence seqs[i]. The arrays are read
 * during the call. */
struct pkv_batch {
    size_t size;
    /* [num_rows], each sequence at most once. */
    const pkv_seq *seqs;
    /* [num_rows], >= 0; NULL = one token each. */
    const int32_t *q_lens;
    /* In [0, config.max_step_rows]. */
    int32_t num_rows;
    /* In [0, num_rows]: the first so many rows join all or none. The rows after them join in order
     * until the first that finds no blocks. */
    int32_t num_required_rows;
    /* [sum of q_lens], at most config.max_step_tokens: the tokens whose keys and values this step
     * writes. The prefix cache records them; they are required without it too. */
    const int32_t *token_ids;
    /* [sum of q_lens], as in struct pkv_prompt; NULL = all 0. */
    const uint64_t *token_extra;
    /* [sum of q_lens], the position by which rope rotates each token; NULL = its position in the
     * sequence. It does not change what a query sees. Refused where no layer has rope. */
    const int64_t *position_ids;
    /* The caller's clock in nanoseconds; pins whose time is up by it end. 0 = not told. */
    uint64_t now_ns;
    /* Bidirectional ranges (attn.h), in positions of each row's sequence: row i has those from
     * cu_bidirectional[i] on, up to cu_bidirectional[i + 1]. A step cuts none: an image's tokens
     * come in one step, at most max_step_tokens of them. Those that end before the step change
     * nothing, so a prompt's list can be given up to where the step ends. token_extra as in struct
     * pkv_prompt. cu_bidirectional [num_rows + 1] begins with 0 and never falls; NULL = none. */
    const struct pkv_token_range *bidirectional;
    const int32_t *cu_bidirectional;
    /* Trees of drafts (attn.h): [sum of q_lens], for each token the number of its parent among the
     * row's new tokens, below its own, or -1: a root, whose parent is the sequence's last committed
     * token. NULL, and -1, 0, 1, .. in a row: chains. A row that is a tree has at most
     * PKV_MAX_TREE_TOKENS tokens and no bidirectional range among them. A token's position is its
     * depth behind the committed tokens, so windows and rope follow the path; cells are taken as
     * for any q_len tokens, and max_seq_len counts them. The step ends with pkv_step_commit_path.
     */
    const int32_t *parents;
};

/* Opens a step: reserves cells for the new tokens of a batch in every group, and plans its
 * attention. A batch without rows or tokens is a legal, empty step.
 *
 * Rows are decided in order, see num_required_rows. *shortage is filled on PKV_OK, PKV_NO_BLOCKS
 * and PKV_NEVER_FITS, and on PKV_INVALID_ARGUMENT, PKV_STALE_HANDLE and PKV_NOT_RESIDENT with the
 * row that is wrong, -1 when the batch is as a whole; on PKV_OK its row is how many rows joined
 * and, if that is not all, the rest says what the next one lacked. It may be NULL when every row
 * is required.
 *
 * Returns PKV_OK and the step in *step; PKV_NO_BLOCKS or PKV_NEVER_FITS when a required row finds
 * no blocks or passes a quota; PKV_STALE_HANDLE, and the last error names the row;
 * PKV_INVALID_ARGUMENT for a sequence listed twice, a row past max_seq_len or its max_tokens, a
 * position outside the cos/sin tables, a bidirectional range that is cut or unsound (the last error
 * names the row and the range), parents that are no tree or above its bound, with
 * config.check_tokens a token that is not the prompt's (the last error names the row and the
 * position), or more rows or tokens than the configuration allows; PKV_NOT_RESIDENT for a sequence
 * that is swapped out (swap.h); PKV_BUSY while a step is open, another call copies a sequence, or
 * the cache is closed; PKV_NO_MEMORY while scratch still grows. On a refusal nothing has changed,
 * except that with PKV_NO_BLOCKS, PKV_NEVER_FITS and PKV_NO_MEMORY pins whose time is up by
 * batch->now_ns have ended. Any thread; O(rows + tokens + blocks taken). */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_begin(pkv_cache *cache,
                                                     const struct pkv_batch *batch, pkv_step *step,
                                                     struct pkv_shortage *shortage);

/* Tells what pkv_step_begin would answer now, and fills *shortage as it would, without opening a
 * step. The one effect is that pins whose time is up by batch->now_ns end.
 *
 * Returns the statuses of pkv_step_begin except PKV_NO_MEMORY, since nothing is planned. Any
 * thread; O(rows + tokens). */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_fits(pkv_cache *cache, const struct pkv_batch *batch,
                                                    struct pkv_shortage *shortage);

/* The activations of one layer: the tokens of all rows that joined, packed in the order of the
 * batch, of config.dtype. Strides are in elements between tokens, 0 = packed, so that q, k and v
 * may be parts of one fused QKV row. */
struct pkv_layer_io {
    size_t size;
    /* [tokens][num_heads * k_width]. */
    const void *q;
    /* [tokens][kv_heads * k_width]; NULL for a layer with shares_kv. */
    const void *k;
    /* [tokens][kv_heads * v_width]; NULL for a layer with shares_kv, and with v_in_k. */
    const void *v;
    /* [tokens][num_heads * v_width]; out and lse overlap no input, no page and not each other. */
    void *out;
    /* [tokens][num_heads], packed, natural logarithm; NULL = not wanted. */
    float *lse;
    size_t q_stride, k_stride, v_stride, out_stride;
    /* Selected blocks (sparse attention), as in struct pkv_gqa_args, for the rows that joined: a
     * query sees the keys of its row's listed blocks and the newest selected_newest, and reads no
     * others. Blocks are counted from the sequence's first key, block s is the keys [s *
     * selection_size, (s + 1) * selection_size), whatever pages hold them. num_selected_lists is
     * the number of rows, or rows * kv_heads: a list for each KV head, those of row 0 first.
     * selection_size 0 = the group's block_size, in paged groups alone. cu_selected
     * [num_selected_lists + 1]; NULL = all is seen, and then the others are 0 too. Read during the
     * call. Refused in groups with a sliding window, and beside a row that is a tree of drafts. */
    const int32_t *selected;
    const int32_t *cu_selected;
    int32_t num_selected_lists;
    int32_t selection_size;
    int64_t selected_newest;
};

/* Appends one layer's keys and values to its pages, and attends. Layers may come in any order, each
 * once; a layer with shares_kv comes after its kv_layer.
 *
 * layer is in [0, num_layers).
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for a second append of one layer, a sharing layer before its
 * owner, a missing or superfluous pointer, outputs that overlap something, or lists of selected
 * blocks that struct pkv_layer_io excludes; PKV_UNSUPPORTED for such lists beside a tree of drafts;
 * PKV_STALE_HANDLE. On a refusal the layer is as if it had not been called. With lists, which are
 * planned for this layer alone, it may return PKV_NO_MEMORY while scratch still grows; without them
 * it takes no memory. The step's thread; the work of pkv_gqa_run for this layer, and with lists
 * that of pkv_gqa_plan. */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_attend(pkv_cache *cache, pkv_step step,
                                                      int32_t layer, const struct pkv_layer_io *io);

/* Begins one layer of a step, to be run in tasks on threads of the caller's own instead of
 * pkv_step_attend. Phases are those of attn.h:
 *
 *     pkv_step_layer_begin(cache, step, layer, &io)
 *     for each phase
 *         for each i in [0, pkv_step_num_tasks(cache, step, phase))       on any threads
 *             pkv_step_run_task(cache, step, phase, i, worker)
 *         all threads wait for each other
 *
 * The layer counts as attended, with the bits of pkv_step_attend, when every task has run. Until
 * then another layer, commit and abort are refused. What io points to must stay until then; io
 * itself need not.
 *
 * Returns the statuses of pkv_step_attend; PKV_INVALID_ARGUMENT also while tasks of another layer
 * are left. It takes memory only where pkv_step_attend would. The step's thread; only the checks
 * and a plan for lists of selected blocks cost time. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_layer_begin(pkv_cache *cache, pkv_step step, int32_t layer, const struct pkv_layer_io *io);

/* The number of tasks in one phase of the layer that pkv_step_layer_begin began.
 *
 * Returns a number >= 0; 0 for a stale step, and when no layer has tasks left. Any of the threads
 * that run the layer, before the last task of the layer has ended; O(1). */
PKV_API int32_t pkv_step_num_tasks(pkv_cache *cache, pkv_step step, enum pkv_phase phase);

/* Runs one task of one phase of the layer that pkv_step_layer_begin began. Each task must run
 * exactly once.
 *
 * task is in [0, pkv_step_num_tasks). worker, in [0, num_threads of the configuration), names the
 * scratch: no two tasks may run with the same worker at the same time.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for a number out of range; PKV_STALE_HANDLE. Several threads
 * may run tasks of one phase at once, each with a worker of its own. It takes no memory. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_run_task(pkv_cache *cache, pkv_step step, enum pkv_phase phase, int32_t task, int worker);

/* Ends a step and keeps its tokens: lengths advance, window groups release blocks that no later
 * query can see, and with the prefix cache every block that is now full (and max_rewind tokens
 * behind the end) is indexed. Where an equal block was indexed before, the sequence's table names
 * that one from now on and its own is released.
 *
 * num_keep [rows that joined]: of row i the first num_keep[i] tokens are kept, in [0, q_len]; the
 * rest is dropped, such as rejected drafts. A bidirectional range is kept or dropped whole. NULL =
 * all. Of a tree of drafts only tokens that are a chain, each the parent of the next, are kept so.
 * With state groups num_keep[i] is 0 or at least q_len - max_rewind: fewer tokens have no state.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT, with the step still open, for a num_keep out of range,
 * tokens of a tree that are no chain, a layer with pages that was not attended, or tasks that
 * are left; PKV_STALE_HANDLE. It takes no memory. The step's thread; O(rows * groups + blocks
 * touched). */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_commit(pkv_cache *cache, pkv_step step,
                                                      const int32_t *num_keep);

/* Ends a step and keeps one path of each row's tree of drafts: the keys and values of its tokens
 * are moved together, in all layers, so that the sequences are as if a step had appended these
 * tokens alone. Then as pkv_step_commit.
 *
 * num_keep [rows that joined]: of row i the path has num_keep[i] tokens, in [0, q_len]. path
 * [sum of num_keep], row after row: their numbers among the row's new tokens, each the child of
 * the one before and the first a root; so a row that is a chain keeps 0, 1, 2, .. . path may be
 * NULL when nothing is kept. Both arrays are read during the call and must not change meanwhile.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT, with the step still open and nothing moved, for a
 * num_keep out of range, a path that is none (the last error names the entry), a layer with
 * pages that was not attended, or tasks that are left; PKV_STALE_HANDLE. It takes no memory. The
 * step's thread; the mutex is not held while cells are moved. O(bytes of the cells kept), and
 * what pkv_step_commit costs. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_step_commit_path(pkv_cache *cache, pkv_step step, const int32_t *num_keep, const int32_t *path);

/* Ends a step as if it had never begun: lengths and tables are as before, reserved blocks are
 * released.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT, with the step still open, while tasks of a layer are left;
 * PKV_STALE_HANDLE. It takes no memory. The step's thread; O(rows + blocks taken). */
PKV_API enum pkv_status pkv_step_abort(pkv_cache *cache, pkv_step step);

/* One group's part of an open step in plain integers: for another attention kernel, a worker
 * process, or a debugger. The arrays belong to the cache and are constant while the step is open.
 * Row i has the tokens [cu_seqlens_q[i], cu_seqlens_q[i + 1]), q_len of them, and kv_lens[i] keys
 * once they are appended, which starts at position kv_lens[i] - q_len. */
struct pkv_step_view {
    size_t size;
    /* Rows that joined, and their tokens. */
    int32_t num_rows;
    int32_t num_tokens;
    /* Paged groups: the table of row i is block_tables + (size_t)table_rows[i] * table_stride, with
     * max_blocks entries, -1 where nothing is mapped. table_stride is in entries. max_blocks is
     * that of this step: the entries of its longest table, so a small step is a small table however
     * large max_seq_len is. */
    const int32_t *block_tables;
    const int32_t *table_rows;
    size_t table_stride;
    int32_t max_blocks;
    /* Continuous groups: [num_rows], the slot of each row. NULL for paged ones. */
    const int32_t *slot_ids;
    /* [num_rows + 1] and [num_rows]. */
    const int32_t *cu_seqlens_q;
    const int32_t *kv_lens;
    /* [num_tokens]; NULL when the batch had none. */
    const int64_t *position_ids;
    /* [num_rows]. */
    const int64_t *kept_prefix;
    /* 0 = none. */
    int64_t sliding_window;
    /* [num_copies], copies on write: to be carried out on each layer's pages before its append. */
    const struct pkv_page_copy *copies;
    int32_t num_copies;
    /* The pages of the group's first layer that has some, and the bytes from one such layer's to
     * the next one's. */
    struct pkv_kv_view first_layer;
    size_t layer_stride_bytes;
    /* Row i has the bidirectional ranges from cu_bidirectional[i] on, in positions of its sequence:
     * those of this step's tokens alone. [num_rows + 1]. */
    const struct pkv_token_range *bidirectional;
    const int32_t *cu_bidirectional;
    /* [num_tokens], as in the batch; NULL when it had none. */
    const int32_t *parents;
};

/* Describes one group's part of an open step.
 *
 * group is in [0, num_groups).
 *
 * Returns PKV_OK and fills *view, whose arrays are valid until commit or abort;
 * PKV_INVALID_ARGUMENT; PKV_STALE_HANDLE. The step's thread; O(rows + table entries). */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_describe(pkv_cache *cache, pkv_step step,
                                                        int32_t group, struct pkv_step_view *view);

/* A state group's part of an open step. The recurrence of its layers is the caller's: for row i it
 * begins with state reads[i], goes over the row's tokens, and stores what it has after token t in
 * state writes[t], wherever that is not -1:
 *
 *     state s of the group's n-th layer = first_layer + n * layer_stride_bytes
 *                                                     + s * state_stride_bytes
 *
 * reads[i] is always a state: a new sequence begins with one of zeros, which must not be written.
 * The row's last token always has a write. Where that is reads[i], the state is updated in place;
 * otherwise reads[i] must stay as it is, because a snapshot, a fork or a rewind needs it. Two rows
 * never write one state, and no row writes what another one reads. A write in front of the row's
 * last token is a state that may become a snapshot, or that a rewind may go back to. */
struct pkv_state_view {
    size_t size;
    /* Rows that joined, and their tokens. */
    int32_t num_rows;
    int32_t num_tokens;
    /* [num_rows + 1]: row i has the tokens [cu_seqlens_q[i], cu_seqlens_q[i + 1]). */
    const int32_t *cu_seqlens_q;
    /* [num_rows], and [num_tokens]. */
    const int32_t *reads;
    const int32_t *writes;
    /* Aligned to 64 bytes, as are the strides. state_bytes is that of the configuration. */
    void *first_layer;
    size_t state_bytes;
    size_t state_stride_bytes;
    size_t layer_stride_bytes;
    /* [num_tokens], as in the batch, so counted within the row; NULL when it had none. Token t of a
     * tree of drafts goes on with the state that was stored after its parent, a root with that of
     * its row: token t of row i reads writes[cu_seqlens_q[i] + parents[t]], or reads[i]. */
    const int32_t *parents;
};

/* Describes a state group's part of an open step, for the caller to run its layers by.
 *
 * From this call on the step counts as one that has written its states. A sequence with max_rewind
 * 0 is updated in place: when its row is then dropped (pkv_step_abort, or num_keep 0), its state is
 * lost, and it can only be cut to 0 and admitted again (PKV_NOT_RESIDENT until then). With
 * max_rewind m the states after the last m + 1 tokens are kept apart, and a step can be dropped at
 * will.
 *
 * group is that of a state group.
 *
 * Returns PKV_OK and fills *view, whose arrays are valid until commit or abort;
 * PKV_INVALID_ARGUMENT; PKV_STALE_HANDLE. The step's thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_step_describe_states(pkv_cache *cache, pkv_step step,
                                                               int32_t group,
                                                               struct pkv_state_view *view);

#ifdef __cplusplus
}
#endif

#endif
