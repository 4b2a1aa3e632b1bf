/* SPDX-License-Identifier: MIT
 *
 * reduce.h: attention states are merged by MPI: a derived datatype for a state, and a user-defined
 * operation on it, which is pkv_merge_states.
 *
 * The operation is declared as not commutative, so that states are merged in the order of ranks,
 * whichever arrives first: adjacent ones, in a tree that MPI chooses by the number of processes.
 * One element of the datatype is the state of all queries, which no algorithm of MPI can divide.
 * Rounding is not associative: another number of processes gives other bits. */
#ifndef CONTEXT_PARALLEL_REDUCE_H
#define CONTEXT_PARALLEL_REDUCE_H

#include "part.h"

#include <mpi.h>

struct reduce {
    const struct shape *shape;
    pkv_workspace *workspace;
    int32_t num_queries;
    MPI_Datatype type;
    MPI_Op op;
};

/* For the states of so many queries. It refers to shape and workspace. */
void reduce_create(const struct shape *shape, pkv_workspace *workspace, int32_t num_queries,
                   struct reduce *reduce);
void reduce_free(struct reduce *reduce);

/* Every process brings the state over its keys and gets the one over all keys. The two do not
 * overlap. One thread of a process at a time. */
void reduce_states(const struct reduce *reduce, const void *state, void *result);

#endif
