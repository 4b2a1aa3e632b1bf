/* SPDX-License-Identifier: MIT
 *
 * report.c: medians over turns. "best" compares the fastest run with the highest ceilings: a value
 * that is at most too low, where other processes disturb so many turns that medians mean little. */
#include "report.h"

#include "numbers.h"

double report_limit(const struct layer_spec *spec, double read, double fma)
{
    const double memory = layer_bytes(spec) / read;
    const double arithmetic = layer_flops(spec) / fma;
    return memory > arithmetic ? memory : arithmetic;
}

/* Memory that fits a cache is read faster than the stream, so the higher of both counts. */
static double best_share(const struct layer_spec *spec, const struct turns *turns,
                         const struct ceilings *highest)
{
    const double own = samples_max(&turns->read);
    const double limit =
        report_limit(spec, own > highest->read ? own : highest->read, highest->fma);
    return limit / samples_min(&turns->time);
}

/* Median of the turns' own ratios of time. */
static double ratio(const struct turns *turns, const struct turns *first)
{
    struct samples ratios = {0};
    for (int i = 0; i < turns->time.count; i++) {
        samples_add(&ratios, turns->time.values[i] / first->time.values[i]);
    }
    return samples_median(&ratios);
}

void report_head(const struct group *group)
{
    printf("\n%-44s %9s %19s %6s %7s %6s %5s %5s %5s %5s %8s %7s\n", group->name, "ms",
           "min .. max", "GB/s", "GFLOP/s", "read", "limit", "best", "walk", "of it", "x first",
           "plan us");
}

void report_case(const struct attn_case *c, const struct turns *turns, const struct turns *first,
                 const struct ceilings *highest)
{
    const double time = samples_median(&turns->time);
    printf("%-44s %9.3f %8.3f .. %7.3f %6.1f %7.1f %6.1f %4.0f%% %4.0f%% %5.1f %4.0f%% %8.3f "
           "%7.1f\n",
           c->name, 1e3 * time, 1e3 * samples_min(&turns->time), 1e3 * samples_max(&turns->time),
           1e-9 * layer_bytes(&c->spec) / time, 1e-9 * layer_flops(&c->spec) / time,
           1e-9 * samples_median(&turns->read), 100 * samples_median(&turns->limit),
           100 * best_share(&c->spec, turns, highest), 1e-9 * samples_median(&turns->walk),
           100 * samples_median(&turns->share), ratio(turns, first),
           1e6 * samples_median(&turns->plan));
    fflush(stdout);
}

void report_rank(const struct ranker *ranker, const struct turns *turns)
{
    const int32_t blocks = ranker->args.batch * ranker->args.max_blocks;
    const double time = samples_median(&turns->rank);
    const double speed = (double)ranker->bounds_bytes / time;
    printf("%-44s %9.3f %8.3f .. %7.3f %6.1f %7s %6.1f %4.0f%%    a block's bounds: %.1f us\n",
           "  rank of all blocks by their bounds", 1e3 * time, 1e3 * samples_min(&turns->rank),
           1e3 * samples_max(&turns->rank), 1e-9 * speed, "", 1e-9 * samples_median(&turns->read),
           100 * speed / samples_median(&turns->read),
           1e6 * samples_median(&turns->bounds) / blocks);
    fflush(stdout);
}

void report_csv_head(FILE *csv)
{
    fputs("group,case,model,heads,kv_heads,width,rows,q_len,keys,window,kept_prefix,shared,"
          "block_size,dtype,threads,isa,median_us,min_us,max_us,gb_s,gflop_s,read_gb_s,fma_gflop_s,"
          "limit_percent,best_percent,walk_gb_s,walk_percent,plan_us\n",
          csv);
}

void report_csv_case(FILE *csv, const struct group *group, const struct attn_case *c, int threads,
                     const char *isa, const struct turns *turns, const struct ceilings *highest)
{
    const struct layer_spec *s = &c->spec;
    const double time = samples_median(&turns->time);
    fprintf(csv, "%s,\"%s\",%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s,%d,%s,", group->name, c->name,
            c->model, s->heads, s->kv_heads, s->width, s->rows, s->q_len, s->keys, s->window,
            s->kept_prefix, s->shared, s->block_size, numbers_type_name(s->cache), threads, isa);
    fprintf(csv, "%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.1f,%.1f,%.2f,%.1f,%.2f\n", 1e6 * time,
            1e6 * samples_min(&turns->time), 1e6 * samples_max(&turns->time),
            1e-9 * layer_bytes(s) / time, 1e-9 * layer_flops(s) / time,
            1e-9 * samples_median(&turns->read), 1e-9 * samples_median(&turns->fma),
            100 * samples_median(&turns->limit), 100 * best_share(s, turns, highest),
            1e-9 * samples_median(&turns->walk), 100 * samples_median(&turns->share),
            1e6 * samples_median(&turns->plan));
    fflush(csv);
}
