/* SPDX-License-Identifier: MIT
 *
 * context_parallel: several processes attend to one sequence that is too long for one of them. Each
 * has a contiguous share of its pages and attends from the same queries to its own keys; one
 * reduction of MPI merges what they get, and the head sink is applied once, behind it.
 *
 *     mpirun -np 4 context_parallel
 *
 * For each shape the last chunk of a prompt and some decode steps are computed so, and compared
 * with one process that has all pages: within the tolerances of the golden vectors
 * (docs/numerics.md). Besides, each reduction is repeated with the processes late by different
 * times: its bits must be the same, and the same in every process. Exit status 0 when all shapes
 * pass. */
#include "part.h"
#include "reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Spans of the operator's sums, see docs/numerics.md. */
enum { SPAN = 512 };
enum { NUM_HEADS = 16, WIDTH = 64 };

struct process {
    int rank, count;
    pkv_workspace *workspace;
};

/* What became of one shape, in rank 0. */
struct verdict {
    double error;    /* the largest difference to the single process */
    double share;    /* of what is tolerated */
    bool is_bitwise; /* no bit differs from the single process */
    bool ascends;    /* nor from its parts, merged one after the other */
    bool repeats;    /* late processes change no bit */
    bool agrees;     /* all processes have the same bits */
};

/* The last num_queries of `length` tokens, in one process. */
struct step {
    const struct process *process;
    const struct shape *shape;
    int32_t length, num_queries;
    size_t bytes; /* of a state */
    void *q, *partial, *merged, *other;
};

static const struct shape shapes[] = {
    {.name = "8 query heads a KV head", .cache_dtype = PKV_F32, .length = 8192},
    {.name = "the same, bf16 cache", .cache_dtype = PKV_BF16, .length = 8192},
    {.name = "the same, int8 cache", .cache_dtype = PKV_INT8, .length = 8192},
    {.name = "the same, f16, rope and sink",
     .dtype = PKV_F16,
     .cache_dtype = PKV_F16,
     .length = 8192,
     .has_rope = true,
     .has_sink = true},
    {.name = "a partial last block", .cache_dtype = PKV_F16, .length = 5001, .has_sink = true},
    {.name = "a KV head a query head",
     .cache_dtype = PKV_F16,
     .length = 3000,
     .kv_heads = 16,
     .has_rope = true},
    {.name = "the same, bf16, int8 cache",
     .dtype = PKV_BF16,
     .cache_dtype = PKV_INT8,
     .length = 3000,
     .kv_heads = 16},
    {.name = "window of 1500", .cache_dtype = PKV_F32, .length = 4100, .window = 1500},
    {.name = "window of 700, kept prefix",
     .cache_dtype = PKV_F16,
     .length = 4100,
     .window = 700,
     .kept_prefix = 100,
     .has_rope = true,
     .has_sink = true},
    {.name = "window of 90, int8 cache", .cache_dtype = PKV_INT8, .length = 2000, .window = 90},
    {.name = "a chunk longer than a part",
     .cache_dtype = PKV_F32,
     .length = 900,
     .num_queries = 700},
    {.name = "the same, window of 300",
     .cache_dtype = PKV_F16,
     .length = 900,
     .num_queries = 700,
     .window = 300,
     .kept_prefix = 300,
     .has_rope = true},
    {.name = "fewer blocks than processes",
     .cache_dtype = PKV_F32,
     .length = 20,
     .block_size = 16,
     .has_sink = true},
    {.name = "one token", .cache_dtype = PKV_BF16, .length = 1, .num_queries = 1},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static struct shape completed(struct shape shape)
{
    shape.num_heads = NUM_HEADS;
    shape.width = WIDTH;
    shape.kv_heads = shape.kv_heads > 0 ? shape.kv_heads : 2;
    shape.block_size = shape.block_size > 0 ? shape.block_size : 64;
    shape.num_queries = shape.num_queries > 0 ? shape.num_queries : 17;
    shape.num_decodes = 3;
    return shape;
}

static const float head_sink[NUM_HEADS] = {-1, 0, 1, 2, 3, -1, 0, 1, 2, 3, -1, 0, 1, 2, 3, 4};

/* --- one step */

static struct pkv_state state_at(const struct step *step, void *bytes)
{
    return state_in(step->shape, step->num_queries, bytes);
}

static void apply_sink(const struct step *step, void *bytes)
{
    const struct pkv_state state = state_at(step, bytes);
    if (step->shape->has_sink) {
        must(pkv_apply_sink(step->process->workspace, step->shape->dtype, step->num_queries,
                            NUM_HEADS, WIDTH, head_sink, &state));
    }
}

static void attend(const struct step *step, const struct part *part, const float *sink, void *bytes)
{
    const struct pkv_state state = state_at(step, bytes);
    part_attend(part, step->length, step->num_queries, step->q, sink, &state);
}

/* The program's purpose: this is what a server does in each layer. */
static void attend_together(const struct step *step, const struct part *part,
                            const struct reduce *reduce)
{
    attend(step, part, NULL, step->partial);
    reduce_states(reduce, step->partial, step->merged);
    apply_sink(step, step->merged);
}

/* Once more, other processes first. */
static bool repeats(const struct step *step, const struct reduce *reduce)
{
    const int late = (step->process->rank * 5 + step->length) % 4;
    const struct timespec pause = {.tv_nsec = late * 700000L};
    nanosleep(&pause, NULL);
    reduce_states(reduce, step->partial, step->other);
    apply_sink(step, step->other);
    return memcmp(step->merged, step->other, step->bytes) == 0;
}

/* This process has what rank 0 has. */
static bool agrees(const struct step *step)
{
    memcpy(step->other, step->merged, step->bytes);
    MPI_Bcast(step->other, (int)step->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return memcmp(step->merged, step->other, step->bytes) == 0;
}

static bool by_all(bool answer)
{
    MPI_Allreduce(MPI_IN_PLACE, &answer, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    return answer;
}

/* --- comparing with one process that has all pages */

static float widened(const void *numbers, size_t index, enum pkv_dtype dtype)
{
    if (dtype == PKV_F32) {
        return ((const float *)numbers)[index];
    }
    const uint32_t half = ((const uint16_t *)numbers)[index];
    uint32_t bits = half << 16;
    float value;
    if (dtype == PKV_F16) {
        bits = (half & 0x7fffu) << 13;
    }
    memcpy(&value, &bits, sizeof value);
    if (dtype == PKV_F16) {
        value = ldexpf(half >> 15 != 0 ? -value : value, 127 - 15);
    }
    return value;
}

/* The tolerance of the golden vectors, absolute and relative. */
static double tolerance_of(enum pkv_dtype dtype)
{
    switch (dtype) {
    case PKV_F16: return 1e-3;
    case PKV_BF16: return 8e-3;
    default: return 2e-5;
    }
}

static void compare_numbers(const struct step *step, const void *a, const void *b, size_t count,
                            enum pkv_dtype dtype, struct verdict *verdict)
{
    const double tolerance = tolerance_of(step->shape->dtype);
    for (size_t i = 0; i < count; i++) {
        const double expected = widened(b, i, dtype);
        const double error = fabs(widened(a, i, dtype) - expected);
        const double share = error / (tolerance + tolerance * fabs(expected));
        verdict->error = error <= verdict->error ? verdict->error : error; /* NaN is kept */
        verdict->share = share <= verdict->share ? verdict->share : share;
    }
}

static void compare(const struct step *step, const struct part *whole, struct verdict *verdict)
{
    const size_t heads = (size_t)step->num_queries * NUM_HEADS;
    const struct pkv_state merged = state_at(step, step->merged);
    const struct pkv_state direct = state_at(step, step->other);
    attend(step, whole, step->shape->has_sink ? head_sink : NULL, step->other);
    compare_numbers(step, merged.lse, direct.lse, heads, PKV_F32, verdict);
    compare_numbers(step, merged.out, direct.out, heads * WIDTH, step->shape->dtype, verdict);
    verdict->is_bitwise =
        verdict->is_bitwise && memcmp(step->merged, step->other, step->bytes) == 0;
}

/* The parts as views of the whole, merged one after the other. */
static bool ascends(const struct step *step, const struct part *whole)
{
    const struct pkv_state sum = state_at(step, step->other);
    const struct pkv_state next = state_at(step, step->partial);
    for (int rank = 0; rank < step->process->count; rank++) {
        const struct part part = part_within(whole, rank, step->process->count);
        attend(step, &part, NULL, rank == 0 ? step->other : step->partial);
        if (rank > 0) {
            must(pkv_merge_states(step->process->workspace, step->shape->dtype, step->num_queries,
                                  NUM_HEADS, WIDTH, &sum, &next, &sum));
        }
    }
    apply_sink(step, step->other);
    return memcmp(step->merged, step->other, step->bytes) == 0;
}

/* --- one shape */

static void step_create(const struct process *process, const struct shape *shape, int32_t length,
                        int32_t num_queries, struct step *step)
{
    *step = (struct step){.process = process, .shape = shape, .length = length};
    step->num_queries = num_queries;
    step->bytes = state_bytes(shape, num_queries);
    step->q = must_have(calloc((size_t)num_queries * NUM_HEADS * WIDTH, sizeof(float)));
    step->partial = must_have(malloc(step->bytes));
    step->merged = must_have(malloc(step->bytes));
    step->other = must_have(malloc(step->bytes));
    make_queries(shape, length, num_queries, step->q);
}

static void step_free(struct step *step)
{
    free(step->q);
    free(step->partial);
    free(step->merged);
    free(step->other);
}

/* whole is NULL but in rank 0. */
static void run_step(const struct process *process, int32_t length, int32_t num_queries,
                     const struct part *part, const struct part *whole, struct verdict *verdict)
{
    struct step step;
    struct reduce reduce;
    step_create(process, part->shape, length, num_queries, &step);
    reduce_create(part->shape, process->workspace, num_queries, &reduce);
    attend_together(&step, part, &reduce);
    verdict->repeats = by_all(repeats(&step, &reduce)) && verdict->repeats;
    verdict->agrees = by_all(agrees(&step)) && verdict->agrees;
    if (whole != NULL) {
        compare(&step, whole, verdict);
        verdict->ascends = ascends(&step, whole) && verdict->ascends;
    }
    reduce_free(&reduce);
    step_free(&step);
}

static struct verdict run_shape(const struct process *process, const struct shape *shape)
{
    struct verdict verdict = {.is_bitwise = true, .ascends = true, .repeats = true, .agrees = true};
    struct part part, whole = {0};
    part_create(shape, process->workspace, process->rank, process->count, &part);
    if (process->rank == 0) {
        part_create(shape, process->workspace, 0, 1, &whole);
    }
    for (int32_t i = 0, length = 0; i <= shape->num_decodes; i++) {
        const int32_t end = shape->length + i;
        part_append(&part, length, end);
        if (process->rank == 0) {
            part_append(&whole, length, end);
        }
        run_step(process, end, i == 0 ? shape->num_queries : 1, &part,
                 process->rank == 0 ? &whole : NULL, &verdict);
        length = end;
    }
    part_free(&part);
    part_free(&whole);
    return verdict;
}

/* With one process nothing is merged: then only a sink that is applied behind the call makes a
 * difference. */
static bool is_right(const struct process *process, const struct shape *shape,
                     const struct verdict *verdict)
{
    return verdict->share <= 1 && verdict->repeats && verdict->agrees &&
           (process->count > 1 || shape->has_sink || verdict->is_bitwise);
}

static bool spans_are_whole(const struct process *process, const struct shape *shape)
{
    struct part part = {.shape = shape};
    bool whole = true;
    for (int rank = 0; rank < process->count; rank++) {
        part = part_within(&part, rank, process->count);
        whole = whole && part.begin % SPAN == 0;
    }
    return whole;
}

/* What the columns of the table are. */
static void explain(const struct process *process)
{
    printf("%d processes\n"
           "  spans       whether each part begins at a multiple of %d keys\n"
           "  difference  the largest from one process, and its share of what is tolerated\n"
           "  bitwise     no bit differs from one process\n"
           "  in turn     no bit differs from its parts merged one after the other\n\n"
           "%-30s %6s  %-5s  %10s  %5s  %-7s  %s\n",
           process->count, SPAN, "shape", "tokens", "spans", "difference", "share", "bitwise",
           "in turn");
}

static const char *word(bool answer)
{
    return answer ? "yes" : "no";
}

static bool report(const struct process *process, const struct shape *shape,
                   const struct verdict *verdict)
{
    const bool right = is_right(process, shape, verdict);
    printf("%-30s %6d  %-5s  %10.1e  %5.2f  %-7s  %-7s  %s%s%s\n", shape->name, (int)shape->length,
           word(spans_are_whole(process, shape)), verdict->error, verdict->share,
           word(verdict->is_bitwise), word(verdict->ascends), right ? "ok" : "FAILED",
           verdict->repeats ? "" : ", other bits when repeated",
           verdict->agrees ? "" : ", processes differ");
    return right;
}

int main(int argc, char **argv)
{
    struct process process;
    int num_failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &process.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &process.count);
    must(pkv_workspace_create(1, PKV_ISA_BEST, NULL, &process.workspace));
    if (process.rank == 0) {
        explain(&process);
    }
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        const struct shape shape = completed(shapes[i]);
        const struct verdict verdict = run_shape(&process, &shape);
        num_failed += process.rank == 0 && !report(&process, &shape, &verdict);
    }
    if (process.rank == 0) {
        printf("%d passed, %d failed\n", NUM_SHAPES - num_failed, num_failed);
    }
    MPI_Bcast(&num_failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    pkv_workspace_destroy(process.workspace);
    MPI_Finalize();
    return num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
