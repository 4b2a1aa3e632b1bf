/* SPDX-License-Identifier: MIT
 *
 * engine.h: a server's loop over a hybrid: requests wait and are admitted in order, prompts are
 * computed in chunks beside the decoding of others, drafts are verified and the wrong ones dropped,
 * second answers are forked, and the youngest is preempted when a step finds no room. A seed
 * decides what happens beside: steps that are aborted, rows that are rewound for no reason, clients
 * that leave in the middle of a step.
 *
 * Each token must be the right one, and each state that a row begins with must have the bits that
 * it has in a computation of the whole text. */
#ifndef HYBRID_ENGINE_H
#define HYBRID_ENGINE_H

#include "run.h"
#include "setup.h"
#include "workload.h"

struct engine_counts {
    struct run_counts runs;
    int64_t num_steps, num_aborted, num_tokens;
    int64_t num_drafts, num_accepted, num_trees;
    int64_t num_states;    /* compared */
    int64_t num_apart;     /* rows that begin with a state that they may not write */
    int64_t num_copies;    /* of pages */
    int32_t max_snapshots; /* that were cached at once */
    float widest;          /* difference of a lead from the naive one */
};

/* Serves all requests from a cache of its own, and adds to *counts. False after a complaint. */
bool engine_serve(const struct hybrid *hybrid, struct setup *setup, const struct workload *workload,
                  uint64_t seed, struct engine_counts *counts);

#endif
