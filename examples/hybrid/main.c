/* SPDX-License-Identifier: MIT
 *
 * hybrid: a model of recurrent and attention layers (hybrid.h) served from a managed cache with
 * state groups, by a loop in which everything happens that a server meets: prefix hits, forks,
 * drafts and trees of drafts, rewinds, preemption, aborted steps, clients that leave.
 *
 *   hybrid     the model and its recurrence       whole     its states after each token of a text
 *   naive      the same in double, as a yardstick workload  requests and right answers
 *   setup      a cache drawn at random            layers    a forward pass over an open step
 *   run, row   a sequence, and its part of a step engine    the loop
 *
 * Requests come in rounds, each with a model, a cache and requests of its own. Every token must be
 * that of the naive computation, and every state that a row begins with must have the bits of a
 * computation of the whole text.
 *
 * Exit status 0, or 1 after a line on stderr and one that says how to run it again. */
#include "dice.h"
#include "engine.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char program_name[] = "hybrid";

enum { REQUESTS_OF_ROUND = 25, MAX_NUMBER = 1000000000 };

static const char usage[] = "hybrid: a model of recurrent and attention layers on a managed cache\n"
                            "\n"
                            "  --requests N   requests in all, 25 a round (300)\n"
                            "  --seed S       decides everything (1)\n"
                            "  --round R      the round with this number alone, 0 = all (0)\n";

struct options {
    int32_t num_requests, seed, round;
    bool help;
};

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.num_requests = 300, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int32_t *number = NULL;
        int32_t low = 0;
        if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
            continue;
        }
        if (strcmp(argv[i], "--requests") == 0) {
            number = &o->num_requests;
            low = 1;
        } else if (strcmp(argv[i], "--seed") == 0) {
            number = &o->seed;
        } else if (strcmp(argv[i], "--round") == 0) {
            number = &o->round;
        }
        if (number == NULL) {
            return complain("unknown argument %s", argv[i]);
        }
        if (!parse_number(argv[i], value, low, MAX_NUMBER, number)) {
            return false;
        }
        i++;
    }
    return true;
}

static void print_title(void)
{
    printf("%5s %5s %3s %6s %2s | %5s %6s %5s %5s %5s %5s %5s %4s %7s %6s %5s %5s %6s\n", "round",
           "block", "W", "states", "m", "steps", "tokens", "hit %", "snaps", "apart", "preem",
           "forks", "lost", "rewinds", "drafts", "right", "trees", "copies");
}

/* hit %: of the tokens that were to be computed at admissions; snaps: the most snapshots cached at
 * once; apart: rows whose state was shared, and so written elsewhere. */
static void print_round(int32_t round, const struct setup *s, const struct engine_counts *c)
{
    const struct run_counts *r = &c->runs;
    const double hit = 100.0 * (double)r->hit_tokens / (double)r->num_prompt_tokens;
    printf("%5d %2d/%-2d %3d %6d %2d | %5d %6d %5.1f %5d %5d %5d %5d %4d %7d %6d %5d %5d %6d\n",
           round, s->groups[GROUP_FULL].block_size, s->groups[GROUP_WINDOW].block_size, s->window,
           s->groups[GROUP_STATE].num_blocks, s->max_rewind, (int)c->num_steps, (int)c->num_tokens,
           hit, c->max_snapshots, (int)c->num_apart, (int)r->num_preempted, (int)r->num_forks,
           (int)r->num_lost, (int)r->num_rewinds, (int)c->num_drafts, (int)c->num_accepted,
           (int)c->num_trees, (int)c->num_copies);
}

struct totals {
    int64_t num_requests, num_tokens, num_states;
    float smallest_lead, widest;
};

static bool run_round(const struct options *o, int32_t round, int32_t num_requests,
                      struct totals *totals)
{
    const uint64_t seed = dice_mix((uint64_t)o->seed, (uint64_t)round);
    struct setup setup;
    struct hybrid hybrid = {0};
    struct workload workload = {0};
    struct engine_counts counts = {0};
    setup_draw(dice_mix(seed, 1), MAX_TEXT, round % 2 == 0, &setup);
    const struct workload_limits limits = {.max_rewind = setup.max_rewind,
                                           .has_trees = setup.has_trees};
    const bool ok = hybrid_create(dice_mix(seed, 2), setup.window, setup.kept_prefix, &hybrid) &&
                    workload_create(&hybrid, dice_mix(seed, 3), num_requests, &limits, &workload) &&
                    engine_serve(&hybrid, &setup, &workload, dice_mix(seed, 4), &counts);
    print_round(round, &setup, &counts);
    totals->num_requests += num_requests;
    totals->num_tokens += counts.num_tokens;
    totals->num_states += counts.num_states;
    if (ok && (totals->smallest_lead == 0 || workload.smallest_lead < totals->smallest_lead)) {
        totals->smallest_lead = workload.smallest_lead;
    }
    totals->widest = counts.widest > totals->widest ? counts.widest : totals->widest;
    workload_free(&workload);
    hybrid_free(&hybrid);
    return ok;
}

static bool run_all(const struct options *o)
{
    struct totals totals = {0};
    print_title();
    for (int32_t round = 1, left = o->num_requests; left > 0; round++) {
        const int32_t count = left < REQUESTS_OF_ROUND ? left : REQUESTS_OF_ROUND;
        left -= count;
        if ((o->round == 0 || o->round == round) && !run_round(o, round, count, &totals)) {
            fflush(stdout);
            return complain("again: hybrid --seed %d --requests %d --round %d", o->seed,
                            o->num_requests, round);
        }
    }
    if (totals.num_requests == 0) {
        return complain("--round: there is none of this number");
    }
    printf("hybrid: %d requests, seed %d: all tokens as naively computed, %lld states bit by bit; "
           "smallest lead %.4f, leads differ by %.1e\n",
           (int)totals.num_requests, o->seed, (long long)totals.num_states,
           (double)totals.smallest_lead, (double)totals.widest);
    return true;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ok = parse(argc, argv, &options);
    if (ok && options.help) {
        fputs(usage, stdout);
    } else if (ok) {
        ok = run_all(&options);
    }
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
