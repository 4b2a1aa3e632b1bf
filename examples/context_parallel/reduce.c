/* SPDX-License-Identifier: MIT
 *
 * reduce.c: the datatype and the operation. */
#include "reduce.h"

/* MPI passes an operation its operands and their datatype alone: the rest is here while a
 * reduction runs. */
static const struct reduce *current;

/* Merges states of lower ranks into those of higher ranks. */
static void merge(void *lower, void *higher, int *count, MPI_Datatype *type)
{
    const struct reduce *r = current;
    const size_t bytes = state_bytes(r->shape, r->num_queries);
    (void)type;
    for (int i = 0; i < *count; i++) {
        const size_t at = (size_t)i * bytes;
        const struct pkv_state a = state_in(r->shape, r->num_queries, (char *)lower + at);
        const struct pkv_state b = state_in(r->shape, r->num_queries, (char *)higher + at);
        must(pkv_merge_states(r->workspace, r->shape->dtype, r->num_queries, r->shape->num_heads,
                              r->shape->width, &a, &b, &b));
    }
}

void reduce_create(const struct shape *shape, pkv_workspace *workspace, int32_t num_queries,
                   struct reduce *reduce)
{
    const int heads = num_queries * shape->num_heads;
    const int lengths[2] = {heads, heads * shape->width};
    const MPI_Aint places[2] = {0, (MPI_Aint)((size_t)heads * sizeof(float))};
    MPI_Datatype types[2] = {MPI_FLOAT, shape->dtype == PKV_F32 ? MPI_FLOAT : MPI_UINT16_T};
    *reduce = (struct reduce){.shape = shape, .workspace = workspace, .num_queries = num_queries};
    MPI_Type_create_struct(2, lengths, places, types, &reduce->type);
    MPI_Type_commit(&reduce->type);
    MPI_Op_create(merge, 0, &reduce->op);
}

void reduce_free(struct reduce *reduce)
{
    MPI_Op_free(&reduce->op);
    MPI_Type_free(&reduce->type);
}

void reduce_states(const struct reduce *reduce, const void *state, void *result)
{
    current = reduce;
    MPI_Allreduce(state, result, 1, reduce->type, reduce->op, MPI_COMM_WORLD);
    current = NULL;
}
