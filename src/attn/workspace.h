/* SPDX-License-Identifier: MIT
 *
 * workspace.h: scratch and plans in memory. Everything grows while planning and only then; a run
 * finds what its plan asked for:
 *
 *   partials.bytes >= partial_floats * 4      of every plan made with the workspace
 *   scratch.bytes  >= num_threads * scratch_floats * 4
 */
#ifndef PKV_ATTN_WORKSPACE_H
#define PKV_ATTN_WORKSPACE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "alloc/block_table.h"
#include "attn/gqa.h"
#include "attn/kernels.h"
#include "base/hooks.h"

#define MAX_THREADS 1024

/* Memory that grows and is never shrunk. */
struct buffer {
    void *memory;
    size_t bytes;
};

/* A worker's share of a phase's tasks, [next, end); others may take from it once theirs is empty.
 */
struct worker {
    _Alignas(HOOKS_CACHE_LINE) atomic_int next;
    int32_t end;
};

/* Row `row` appends to the block in the call of this epoch. */
struct block_writer {
    uint32_t epoch;
    int32_t row;
};

struct pkv_workspace {
    struct pkv_hooks hooks;
    const struct kernels *kernels;
    int num_threads;
    pid_t owner;           /* the process that created it, whose threads OpenMP's runtime has */
    size_t scratch_floats; /* of one worker, the largest that any plan asked for */
    struct buffer partials;
    struct buffer scratch;
    struct buffer keys;   /* of a cache-less call with rope or norm, [tokens][kv_heads][k_width] */
    struct buffer shim;   /* lengths and prefixes that pkv_gqa_contract derives */
    struct buffer stamps; /* uint32_t per block or slot: met in the row under check */
    uint32_t stamps_epoch;
    struct buffer writers; /* struct block_writer per block: who appends to it in this call */
    uint32_t writers_epoch;
    struct worker *workers; /* [num_threads] */
    pkv_plan *plan;         /* of the calls that plan and run at once */

    /* the layer under way; what it points to is kept beside it */
    const pkv_plan *started; /* NULL: none */
    struct gqa_layer layer;
    struct gqa_mask mask;
    struct pkv_kv_view copy_from;
    struct pkv_attn_constants constants;
};

/* A task: queries [q0, q1) of one row against the spans [span0, span1) of its keys, for num_heads
 * KV heads from `head` on. With members: the one query of each of them against a span that they
 * share. */
struct unit {
    int32_t row;
    int32_t q0, q1;
    int32_t head, num_heads;
    int32_t span0, span1;
    int32_t partial; /* the first of its partial results, one per visible span; -1: it holds all */
    int32_t first_member;
    int32_t num_members; /* 0: it is the row's own */
    int64_t cost;
};

/* The partial results of one block of queries, in ascending order of spans: what shared units left
 * (first_source, -1 = nothing), then its own. */
struct fold {
    int32_t row;
    int32_t q0, q1;
    int32_t first_source;
    int32_t partial;
    int32_t num_partials;
};

/* Partial results of shared units for one of their members, one per span. */
struct source {
    int32_t next; /* in the row's list, -1 = last */
    int32_t partial;
    int32_t num_partials;
    int32_t member; /* which of num_members the row is there */
    int32_t num_members;
};

/* A row's sources, and how many of its first spans they cover. */
struct share {
    int32_t first_source;
    int32_t last_source;
    int32_t num_spans;
};

/* The largest of what a run's constants and mask must reach: planned, and looked at again by each
 * run, whose planes and mask may be others. */
struct call_extent {
    int32_t q_len;
    int32_t kv_len;
    int64_t position;  /* -1: none */
    bool has_negative; /* a row's first position is below 0 */
    bool is_uneven;    /* a row has another number of keys than of queries */
};

/* What a run must find as it was planned. */
struct plan_call {
    enum pkv_cache_form form;
    enum pkv_dtype dtype;
    int32_t num_heads;
    int32_t num_tokens;
    struct pkv_kv_view cache; /* geometry and dtypes; pointers unused */
    struct call_extent extent;
    bool has_k;
    bool all_new; /* gqa_shape */
    bool has_mask;
    int32_t sliding_window;
    bool not_causal;
    bool v_in_k;
    struct pkv_kv_view past; /* DENSE_COPY: what is copied from */
};

/* Rows, and the work on them in three phases: appends (rows whose append must be done before any of
 * their units runs), units, folds. num_* count what is in force in the buffers. */
struct pkv_plan {
    pkv_workspace *workspace;
    bool ready; /* split, and not refused since */
    struct gqa_shape shape;
    int32_t num_rows, num_appends, num_units, num_folds;
    int32_t num_partials;
    int32_t block_queries; /* queries of a unit at most */
    int64_t cost;          /* of all units */
    int64_t num_read_keys; /* see gqa_plan_read_keys */
    int64_t cost_limit;    /* what one unit should not pass by much */
    size_t partial_floats; /* of one (partial, KV head) */
    struct buffer rows, appends, units, folds;
    int32_t num_sources, num_members, num_kin;
    struct buffer shares, sources;    /* of rows that share spans with others */
    struct buffer members;            /* int32_t, the rows of shared units */
    struct buffer order, kin, chains; /* while looking for them */
    struct buffer first_units;        /* int32_t [num_threads + 1]: whose units are whose */
    struct plan_call call;
};

/* Where the row's new keys begin: keys [first_new, kv_len) are stored by the run. */
static inline int32_t first_new_key(const struct gqa_shape *shape, const struct gqa_row *row)
{
    return shape->all_new ? 0 : row->kv_len - row->q_len;
}

/* The token of the packed k and v that holds new key `key`. */
static inline int32_t token_of_key(const struct gqa_shape *shape, const struct gqa_row *row,
                                   int32_t key)
{
    return shape->all_new ? row->block + key : row->q_begin + key - (row->kv_len - row->q_len);
}

/* True for a row whose append is a phase of its own: several units read its new keys, or it copies.
 */
static inline bool appends_first(const struct pkv_plan *plan, const struct gqa_row *row)
{
    return row->q_len > plan->block_queries || row->copy_cells > 0;
}

/* At least bytes bytes, by half more than before; the content is kept. false: as it was. */
bool buffer_grow(const struct pkv_hooks *hooks, struct buffer *buffer, size_t bytes);
void buffer_free(const struct pkv_hooks *hooks, struct buffer *buffer);

#endif
