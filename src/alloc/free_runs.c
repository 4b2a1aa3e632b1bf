/* SPDX-License-Identifier: MIT
 *
 * A run knows its length at both of its ends, so an id that becomes free finds the runs beside it
 * without a search. Which run an inner id belongs to is the one question that needs one. */
#include "alloc/free_runs.h"

static int32_t class_of(int32_t length)
{
    const int32_t class = PKV_HIGHEST_BIT((unsigned)length);
    return class < FREE_RUNS_NUM_CLASSES ? class : FREE_RUNS_LAST_CLASS;
}

static size_t words_of(int32_t num_ids)
{
    return FREE_RUNS_NUM_CLASSES * id_set_num_words(num_ids);
}

size_t free_runs_bytes(int32_t num_ids)
{
    return hooks_array_bytes((size_t)num_ids, sizeof(int32_t)) +
           hooks_array_bytes(words_of(num_ids), sizeof(uint64_t));
}

static void enlist(struct free_runs *runs, int32_t first, int32_t length)
{
    const int32_t class = class_of(length);
    id_set_add(&runs->starts[class], first);
    runs->classes |= 1u << class;
}

static void unlist(struct free_runs *runs, int32_t first, int32_t length)
{
    const int32_t class = class_of(length);
    id_set_remove(&runs->starts[class], first);
    if (id_set_is_empty(&runs->starts[class])) {
        runs->classes &= ~(1u << class);
    }
}

static void find_longest(struct free_runs *runs)
{
    runs->longest = (struct id_run){-1, 0};
    runs->longest_class = -1;
    if (runs->classes != 0) {
        runs->longest_class = PKV_HIGHEST_BIT(runs->classes);
        runs->longest.first = id_set_first(&runs->starts[runs->longest_class]);
        runs->longest.count = runs->lengths[runs->longest.first];
    }
}

bool free_runs_create(struct free_runs *runs, int32_t num_ids, const struct pkv_hooks *hooks)
{
    const size_t num_words = id_set_num_words(num_ids);
    *runs = (struct free_runs){.num_ids = num_ids, .num_free = num_ids};
    runs->lengths = hooks_alloc_array(hooks, (size_t)num_ids, sizeof runs->lengths[0]);
    if (runs->lengths == NULL) {
        return false;
    }
    runs->words = hooks_alloc_array(hooks, words_of(num_ids), sizeof runs->words[0]);
    if (runs->words == NULL) {
        return false;
    }
    for (size_t class = 0; class < FREE_RUNS_NUM_CLASSES; class ++) {
        id_set_init(&runs->starts[class], num_ids, runs->words + class * num_words);
    }
    for (int32_t id = 0; id < num_ids; id++) {
        runs->lengths[id] = 1;
    }
    free_runs_set_length(runs, 0, num_ids);
    enlist(runs, 0, num_ids);
    find_longest(runs);
    return true;
}

void free_runs_destroy(struct free_runs *runs, const struct pkv_hooks *hooks)
{
    hooks_free_array(hooks, runs->words, words_of(runs->num_ids), sizeof runs->words[0]);
    hooks_free_array(hooks, runs->lengths, (size_t)runs->num_ids, sizeof runs->lengths[0]);
}

/* The first id of the run of a free one. The one before it may be free: then a search. */
static int32_t first_of(const struct free_runs *runs, int32_t id)
{
    int32_t first = id;
    if (id > 0 && runs->lengths[id - 1] != 0) {
        first = -1;
        for (int32_t class = 0; class < FREE_RUNS_NUM_CLASSES; class ++) {
            const int32_t last = id_set_last_to(&runs->starts[class], id);
            first = last > first ? last : first;
        }
    }
    return first;
}

struct id_run free_runs_from(const struct free_runs *runs, int32_t id)
{
    const int32_t first = first_of(runs, id);
    return (struct id_run){id, first + runs->lengths[first] - id};
}

/* A run that was listed has another begin and length, 0 when there was none. */
static void relist(struct free_runs *runs, struct id_run from, struct id_run to)
{
    if (from.count > 0 && class_of(from.count) == class_of(to.count)) {
        id_set_move(&runs->starts[class_of(to.count)], from.first, to.first);
        return;
    }
    if (from.count > 0) {
        unlist(runs, from.first, from.count);
    }
    enlist(runs, to.first, to.count);
}

void free_runs_join(struct free_runs *runs, int32_t id)
{
    const int32_t before = id > 0 ? runs->lengths[id - 1] : 0;
    const int32_t after = id + 1 < runs->num_ids ? runs->lengths[id + 1] : 0;
    const struct id_run run = {id - before, before + 1 + after};
    const int32_t class = class_of(run.count);
    runs->lengths[id] = run.count;
    free_runs_set_length(runs, run.first, run.count);
    runs->num_free++;
    if (before > 0 && after > 0) {
        unlist(runs, id + 1, after);
    }
    relist(runs, before > 0 ? (struct id_run){run.first, before} : (struct id_run){id + 1, after},
           run);
    /* One that was the longest is longer, or begins lower, than all others now. */
    if (class > runs->longest_class ||
        (class == runs->longest_class && run.first <= runs->longest.first) ||
        (after > 0 && runs->longest.first == id + 1)) {
        runs->longest = run;
        runs->longest_class = class;
    }
}

/* What is left of a run on one side of what was taken. */
static void put_rest(struct free_runs *runs, int32_t first, int32_t length)
{
    if (length > 0) {
        free_runs_set_length(runs, first, length);
        enlist(runs, first, length);
    }
}

static void split(struct free_runs *runs, struct id_run run, struct id_run taken)
{
    const int32_t end = taken.first + taken.count;
    unlist(runs, run.first, run.count);
    put_rest(runs, run.first, taken.first - run.first);
    put_rest(runs, end, run.first + run.count - end);
    if (runs->longest.first == run.first) {
        find_longest(runs);
    }
}

void free_runs_take(struct free_runs *runs, struct id_run taken)
{
    const int32_t first = first_of(runs, taken.first);
    const struct id_run run = {first, runs->lengths[first]};
    const struct id_run rest = {first + taken.count, run.count - taken.count};
    for (int32_t i = 0; i < taken.count; i++) {
        runs->lengths[taken.first + i] = 0;
    }
    runs->num_free -= taken.count;
    if (taken.first != first || rest.count == 0 || class_of(rest.count) != class_of(run.count)) {
        split(runs, run, taken);
        return;
    }
    free_runs_set_length(runs, rest.first, rest.count);
    id_set_move(&runs->starts[class_of(run.count)], first, rest.first);
    if (runs->longest.first == first) {
        runs->longest = rest; /* the others of its class begin behind it still */
    }
}

/* The run that begins at a free id; its end. */
static int32_t check_run(const struct free_runs *runs, int32_t first, struct report *report)
{
    int32_t end = first;
    while (end < runs->num_ids && runs->lengths[end] != 0) {
        end++;
    }
    const int32_t length = end - first;
    report_expect(report, runs->lengths[first] == length && runs->lengths[end - 1] == length,
                  "a run of %d free ids with another length (block %d)", length, first);
    report_expect(report, id_set_has(&runs->starts[class_of(length)], first),
                  "a run of free ids in no class, or another (block %d)", first);
    return end;
}

void free_runs_check(const struct free_runs *runs, struct report *report)
{
    const int32_t num_broken = report->num_broken;
    int32_t num_free = 0;
    int32_t num_runs = 0;
    int32_t num_starts = 0;
    for (int32_t id = 0; id < runs->num_ids; id++) {
        if (runs->lengths[id] != 0) {
            const int32_t end = check_run(runs, id, report);
            num_free += end - id;
            num_runs++;
            id = end;
        }
    }
    for (int32_t class = 0; class < FREE_RUNS_NUM_CLASSES; class ++) {
        const struct id_set *starts = &runs->starts[class];
        num_starts += id_set_count(starts, runs->num_ids);
        report_expect(report, id_set_is_sound(starts, runs->num_ids),
                      "runs of class %d: a level of bits is wrong", class);
        report_expect(report, (runs->classes >> class & 1) == !id_set_is_empty(starts),
                      "runs of class %d: any, or none?", class);
    }
    report_expect(report, num_starts == num_runs, "%d runs of free ids, listed are %d", num_runs,
                  num_starts);
    struct free_runs found = *runs;
    if (report->num_broken == num_broken) {
        find_longest(&found);
    }
    report_expect(report,
                  found.longest.first == runs->longest.first &&
                      found.longest.count == runs->longest.count &&
                      found.longest_class == runs->longest_class,
                  "the longest run of free ids (block %d)", runs->longest.first);
    report_expect(report, num_free == runs->num_free, "%d ids in runs, counted are %d", num_free,
                  runs->num_free);
}
