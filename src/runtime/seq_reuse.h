/* SPDX-License-Identifier: MIT
 *
 * seq_reuse.h: what a sequence has published to the prefix index, or adopted from it, and as whom.
 * All zero without the prefix cache. */
#ifndef PKV_RUNTIME_SEQ_REUSE_H
#define PKV_RUNTIME_SEQ_REUSE_H

#include "prefix/prefix_scope.h"

/* Did it, as it was admitted, go on from the end of what another sequence had held? */
enum seq_growth {
    SEQ_GROWS_NOT,
    SEQ_GROWS,     /* it did, and of that end something was lost */
    SEQ_GROWS_HIT, /* it did, and adopted all of that */
};

/* The leading num_published blocks of the sequence have nodes: `newest`, which it holds (the root
 * for none), and its ancestors.
 *
 *   num_published <= num_tried <= what was full and max_rewind behind at the last commit */
struct seq_reuse {
    int32_t num_tried;
    bool no_publish;
    bool was_admitted;  /* with a prompt */
    bool was_preempted; /* cut to nothing since */
    int32_t num_published;
    struct prefix_ref newest;
    uint64_t epoch; /* of its creation: it publishes only where nothing was flushed since */
    int32_t priority;
    uint64_t retention_ns; /* of the priority; 0 = for ever */
    enum seq_growth growth;
    int32_t num_cached;        /* tokens that its last admission adopted */
    struct prefix_scope scope; /* its namespaces */
};

#endif
