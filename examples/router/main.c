/* SPDX-License-Identifier: MIT
 *
 * router: several servers, and a router in front of them that sends each request to the one whose
 * cache has most of its prompt. It knows that from events (index.h) and computes keys once a
 * request; the caches are not asked. The same workload is run by other policies too.
 *
 *     router [SEED]
 *
 * Besides the table it checks that each prediction is what pkv_cache_probe answers, of all
 * caches at each request, also where events are lost; that the router has the hits of one that
 * probes; and that all answers are right. Exit status 0 when all checks pass. */
#include "index.h"
#include "replica.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

const char program_name[] = "router";

enum { NUM_REPLICAS = 4, NUM_BLOCKS = 192, NUM_EVENTS = 4096, FEW_EVENTS = 12 };
enum { MAX_KEYS = MAX_TOKENS };

enum policy {
    ROUND_ROBIN,
    ANY,
    LEAST_LOAD,
    BY_EVENTS,
    BY_FEW_EVENTS,
    LEAST_WORK,
    BY_PROBES,
    NUM_POLICIES
};

static const char *const policy_names[NUM_POLICIES] = {"one after the other",
                                                       "any",
                                                       "least load",
                                                       "most of the prompt, by events",
                                                       "the same, events are lost",
                                                       "least load and prompt left",
                                                       "most of the prompt, by probes"};

struct run {
    enum policy policy;
    const struct workload *workload;
    struct pkv_cache_config config;
    struct pkv_group_config groups[NUM_LAYERS];
    struct pkv_layer_config layers[NUM_LAYERS];
    struct replica replicas[NUM_REPLICAS];
    struct index indexes[NUM_REPLICAS];
    struct outcome *outcomes; /* [workload->count] */
    uint64_t random;
    int32_t num_sent;
    int64_t num_predictions, num_exact;
};

struct result {
    double hit_rate;   /* of all prompt tokens */
    int64_t num_hits;  /* tokens */
    double mean_wait;  /* steps from arrival to the first token */
    int32_t late_wait; /* 99 of 100 wait no longer */
    int32_t num_steps; /* until all have ended */
    int32_t num_wrong; /* tokens of answers */
    int64_t num_predictions, num_exact;
    uint64_t num_lost;
    int32_t num_losses;
    bool is_sound;
};

/* --- choosing */

/* What a request would find in each cache. */
struct candidate {
    int32_t num_predicted, num_probed; /* tokens of its prompt; 0 where nobody predicts */
    int32_t load;
};

static bool hears_events(enum policy policy)
{
    return policy == BY_EVENTS || policy == BY_FEW_EVENTS || policy == LEAST_WORK;
}

static void predict(struct run *run, const struct pkv_prompt *prompt,
                    struct candidate candidates[NUM_REPLICAS])
{
    struct pkv_block_key keys[MAX_KEYS];
    int32_t num_keys = 0;
    must(pkv_prefix_keys(&run->config, NULL, prompt, MAX_KEYS, keys, &num_keys));
    for (int32_t r = 0; r < NUM_REPLICAS; r++) {
        index_hear(&run->indexes[r], run->replicas[r].cache);
        candidates[r].num_predicted = index_hit(&run->indexes[r], NULL, prompt, keys, num_keys);
        run->num_predictions++;
        run->num_exact += candidates[r].num_predicted == candidates[r].num_probed;
    }
}

static void look(struct run *run, const struct request *request,
                 struct candidate candidates[NUM_REPLICAS])
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = request->tokens, .num_tokens = request->num_prompt};
    for (int32_t r = 0; r < NUM_REPLICAS; r++) {
        struct pkv_probe probe = {.size = sizeof probe};
        must(pkv_cache_probe(run->replicas[r].cache, NULL, &prompt, request->num_answer,
                             request->num_prompt, &probe, NULL));
        candidates[r] = (struct candidate){.num_probed = probe.num_cached};
        candidates[r].load = replica_load(&run->replicas[r]);
    }
    if (hears_events(run->policy)) {
        predict(run, &prompt, candidates);
    }
}

/* Less is better; of equal ones the least load decides, then the number. */
static int64_t cost_of(enum policy policy, const struct candidate *candidate)
{
    switch (policy) {
    case BY_EVENTS:
    case BY_FEW_EVENTS: return -candidate->num_predicted;
    case BY_PROBES: return -candidate->num_probed;
    case LEAST_WORK: return candidate->load - candidate->num_predicted;
    default: return 0;
    }
}

static int32_t choose(struct run *run, const struct candidate candidates[NUM_REPLICAS])
{
    int32_t best = 0;
    if (run->policy == ROUND_ROBIN) {
        return run->num_sent % NUM_REPLICAS;
    }
    if (run->policy == ANY) {
        return any_number(&run->random, 0, NUM_REPLICAS - 1);
    }
    for (int32_t r = 1; r < NUM_REPLICAS; r++) {
        const int64_t less =
            cost_of(run->policy, &candidates[best]) - cost_of(run->policy, &candidates[r]);
        if (less > 0 || (less == 0 && candidates[r].load < candidates[best].load)) {
            best = r;
        }
    }
    return best;
}

static void send(struct run *run, int32_t r, int32_t now)
{
    const struct request *request = &run->workload->requests[r];
    struct candidate candidates[NUM_REPLICAS];
    look(run, request, candidates);
    const int32_t chosen = choose(run, candidates);
    run->outcomes[r].arrived = now;
    run->num_sent++;
    replica_take(&run->replicas[chosen], request,
                 run->policy == BY_PROBES ? candidates[chosen].num_probed
                                          : candidates[chosen].num_predicted,
                 &run->outcomes[r]);
}

/* --- one run of the workload */

/* The step at which a request arrives; -1 = the turn before it has not ended. */
static int32_t arrival_of(const struct run *run, int32_t r)
{
    const struct request *request = &run->workload->requests[r];
    if (request->previous < 0) {
        return request->delay;
    }
    const int32_t ended = run->outcomes[request->previous].ended;
    return ended < 0 ? -1 : ended + request->delay;
}

static void send_arrived(struct run *run, int32_t now)
{
    for (int32_t r = 0; r < run->workload->count; r++) {
        const int32_t arrival = run->outcomes[r].arrived < 0 ? arrival_of(run, r) : -1;
        if (arrival >= 0 && arrival <= now) {
            send(run, r, now);
        }
    }
}

static bool is_done(const struct run *run)
{
    int32_t num_jobs = 0;
    for (int32_t r = 0; r < NUM_REPLICAS; r++) {
        num_jobs += run->replicas[r].num_jobs;
    }
    return run->num_sent == run->workload->count && num_jobs == 0;
}

static bool run_create(enum policy policy, const struct workload *workload, struct run *run)
{
    const int32_t num_events = policy == BY_FEW_EVENTS ? FEW_EVENTS : NUM_EVENTS;
    *run = (struct run){.policy = policy, .workload = workload, .random = 88172645463325252u};
    run->config = replica_config(NUM_BLOCKS, num_events, run->groups, run->layers);
    run->outcomes = calloc((size_t)workload->count, sizeof *run->outcomes);
    bool ok = run->outcomes != NULL;
    for (int32_t r = 0; r < workload->count && ok; r++) {
        run->outcomes[r] = (struct outcome){.arrived = -1, .first_token = -1, .ended = -1};
    }
    for (int32_t r = 0; r < NUM_REPLICAS && ok; r++) {
        ok = replica_create(&run->config, workload->count, &run->replicas[r]) &&
             index_create(&run->config, &run->indexes[r]);
    }
    return ok || complain("out of memory");
}

static int compare_waits(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void sum_outcomes(const struct run *run, struct result *result)
{
    int32_t waits[MAX_REQUESTS];
    int64_t num_tokens = 0, num_steps = 0;
    for (int32_t r = 0; r < run->workload->count; r++) {
        const struct outcome *outcome = &run->outcomes[r];
        waits[r] = outcome->first_token - outcome->arrived + 1;
        num_steps += waits[r];
        num_tokens += run->workload->requests[r].num_prompt;
        result->num_hits += outcome->num_cached;
        result->num_wrong += outcome->num_wrong;
    }
    qsort(waits, (size_t)run->workload->count, sizeof *waits, compare_waits);
    result->late_wait = waits[run->workload->count * 99 / 100];
    result->mean_wait = (double)num_steps / run->workload->count;
    result->hit_rate = (double)result->num_hits / (double)num_tokens;
}

static void run_end(struct run *run, struct result *result)
{
    result->is_sound = true;
    result->num_predictions = run->num_predictions;
    result->num_exact = run->num_exact;
    sum_outcomes(run, result);
    for (int32_t r = 0; r < NUM_REPLICAS; r++) {
        result->num_lost += run->indexes[r].num_lost;
        result->num_losses += run->indexes[r].num_losses;
        result->is_sound = replica_end(&run->replicas[r]) && result->is_sound;
        index_free(&run->indexes[r]);
    }
    free(run->outcomes);
}

static bool run_policy(enum policy policy, const struct workload *workload, struct result *result)
{
    static struct run run;
    *result = (struct result){0};
    if (!run_create(policy, workload, &run)) {
        return false;
    }
    while (!is_done(&run)) {
        send_arrived(&run, result->num_steps);
        for (int32_t r = 0; r < NUM_REPLICAS; r++) {
            replica_step(&run.replicas[r], result->num_steps);
        }
        result->num_steps++;
    }
    run_end(&run, result);
    printf("%-30s %5.1f %%  %8.1f %6d  %6d\n", policy_names[policy], 100 * result->hit_rate,
           result->mean_wait, (int)result->late_wait, (int)result->num_steps);
    return true;
}

/* --- checks */

struct checks {
    int32_t num_passed, num_failed;
};

static void check(struct checks *checks, bool is_true, const char *what)
{
    checks->num_passed += is_true;
    checks->num_failed += !is_true;
    printf("%-6s %s\n", is_true ? "ok" : "FAILED", what);
}

static void check_all(const struct result results[NUM_POLICIES], struct checks *checks)
{
    const struct result *router = &results[BY_EVENTS], *lossy = &results[BY_FEW_EVENTS];
    bool answers = true, sound = true, exact = true, more = true;
    for (int32_t p = 0; p < NUM_POLICIES; p++) {
        answers = answers && results[p].num_wrong == 0;
        sound = sound && results[p].is_sound;
        exact = exact && results[p].num_exact == results[p].num_predictions;
        more = more && (p > LEAST_LOAD || router->num_hits > results[p].num_hits);
    }
    printf("\npredictions: %lld by events, %lld of them what the probe answers\n",
           (long long)(router->num_predictions + results[LEAST_WORK].num_predictions),
           (long long)(router->num_exact + results[LEAST_WORK].num_exact));
    printf("rings of %d events: %lld predictions, %lld right; %llu events lost, %d times learned "
           "from the blocks\n",
           FEW_EVENTS, (long long)lossy->num_predictions, (long long)lossy->num_exact,
           (unsigned long long)lossy->num_lost, (int)lossy->num_losses);
    check(checks, answers, "all answers are right, under each policy");
    check(checks, sound, "all caches are sound and hold nothing at the end");
    check(checks, exact && router->num_predictions > 0, "each prediction is the probe's answer");
    check(checks, lossy->num_losses > 0 && lossy->num_hits == router->num_hits,
          "events are lost, and the hits are the same");
    check(checks, router->num_hits == results[BY_PROBES].num_hits,
          "the router has the hits of one that probes");
    check(checks, more, "the router has more hits than those that do not know the caches");
}

int main(int argc, char **argv)
{
    int32_t seed = 1;
    struct workload workload;
    struct result results[NUM_POLICIES];
    struct checks checks = {0};
    if (argc > 2) {
        complain("usage: router [SEED]");
        return EXIT_FAILURE;
    }
    if (argc == 2 && !parse_number("the seed", argv[1], 1, 1 << 20, &seed)) {
        return EXIT_FAILURE;
    }
    if (!workload_create((uint64_t)seed, &workload)) {
        complain("out of memory");
        return EXIT_FAILURE;
    }
    printf("%d caches of %d blocks a group. %d requests: turns of %d chats, %d questions, %d cold "
           "prompts\n\n%-30s %7s  %8s %6s  %6s\n",
           NUM_REPLICAS, NUM_BLOCKS, (int)workload.count, (int)workload.num_chats,
           (int)workload.num_questions, (int)workload.num_cold, "sent to", "hits", "wait", "99 %",
           "steps");
    bool ok = true;
    for (int32_t policy = 0; policy < NUM_POLICIES && ok; policy++) {
        ok = run_policy((enum policy)policy, &workload, &results[policy]);
    }
    if (ok) {
        check_all(results, &checks);
        printf("%d passed, %d failed\n", (int)checks.num_passed, (int)checks.num_failed);
    }
    workload_free(&workload);
    return ok && checks.num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
