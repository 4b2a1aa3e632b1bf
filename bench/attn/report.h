/* SPDX-License-Identifier: MIT
 *
 * report.h: what a case's turns come to, as a line of a table and of a CSV file. */
#ifndef BENCH_ATTN_REPORT_H
#define BENCH_ATTN_REPORT_H

#include <stdio.h>

#include "cases.h"
#include "measure.h"
#include "ranker.h"

/* Turn i of all arrays is the same moment. */
struct turns {
    struct samples time;   /* seconds of a run */
    struct samples plan;   /* seconds of a plan */
    struct samples read;   /* bytes a second of a read of the case's pages */
    struct samples fma;    /* operations a second */
    struct samples limit;  /* share of the limit that the run reached, 0 .. 1 */
    struct samples walk;   /* bytes a second of a read in the tables' order */
    struct samples share;  /* of the limit with that rate in place of the stream's */
    struct samples rank;   /* seconds of a rank of the rows' blocks; none without a selection */
    struct samples bounds; /* seconds of the bounds of all those blocks */
};

/* The highest ceilings that the whole program has seen, any memory for the first. */
struct ceilings {
    double read, fma;
};

/* The limit of one turn: max(bytes / read, flops / fma) seconds. */
double report_limit(const struct layer_spec *spec, double read, double fma);

void report_head(const struct group *group);
void report_case(const struct attn_case *c, const struct turns *turns, const struct turns *first,
                 const struct ceilings *highest);

/* The line below a case with a selection: what it costs to choose it. */
void report_rank(const struct ranker *ranker, const struct turns *turns);

void report_csv_head(FILE *csv);
void report_csv_case(FILE *csv, const struct group *group, const struct attn_case *c, int threads,
                     const char *isa, const struct turns *turns, const struct ceilings *highest);

#endif
