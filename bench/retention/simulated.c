/* SPDX-License-Identifier: MIT
 *
 * One request at a time, so a block is held by it or free. Blocks are taken and released in the
 * order of the library: all of a prompt at admission, in the window group as many as it needs at
 * once, and each block that leaves the window makes room for one at the end. Its own order is
 * simulated too, which shows how near the simulation comes: here a node never dies, so its
 * retention point outlives its blocks.
 *
 * A use is what a cache without bounds would make of a block: in the full group every request that
 * begins with it, in the window group one whose hit ends within a window behind it. */
#include "simulated.h"

#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { FULL, WINDOW, NUM_GROUPS };

enum state { ABSENT, HELD, FREE };

enum standing { PASSING, SETTLED, SHARED };

struct cell {
    enum state state;
    bool is_out; /* of a window, and not retained */
    enum standing standing;
    int64_t time; /* of its clock, when it became free */
    int64_t used; /* when it became free last, and not out of a window; 0 = never */
};

/* What a group has learned, as in prefix/prefix_order.h. */
struct order {
    int64_t clock;
    int32_t capacity;
    int32_t lateness;
};

enum { MAX_LATENESS = 12 };

/* Did a request go on from the end of another, and had all of that? */
enum growth { GROWS_NOT, GROWS, GROWS_HIT };

struct node {
    struct cell cells[NUM_GROUPS];
    int32_t distance;
    int32_t num_continued; /* children that it ever had */
    bool is_known;         /* was published */
};

struct simulation {
    const struct trace *trace;
    enum policy policy;
    int64_t window;
    int32_t window_cells; /* blocks that the keys before the newest of a window lie in */
    int32_t num_unused[NUM_GROUPS];
    struct node *nodes;
    int32_t num_blocks[NUM_GROUPS];
    struct order orders[NUM_GROUPS];
    int64_t out_clock;
    int32_t at; /* the request */
};

/* Blocks [first, end) of a request are mapped; those from num_published on have no content. */
struct table {
    int32_t first;
    int32_t end;
    int32_t num_published;
};

/* --- the order of eviction */

/* The first block that a request at `length` needs in the window group. */
static int32_t first_needed(const struct simulation *sim, int64_t length)
{
    return length < sim->window ? 0 : (int32_t)((length - sim->window + 1) / TRACE_BLOCK);
}

static bool uses(const struct simulation *sim, const struct request *request, int32_t group,
                 int32_t node)
{
    const int32_t from =
        group == FULL ? 0 : first_needed(sim, (int64_t)request->num_shared * TRACE_BLOCK);
    for (int32_t i = from; i < request->num_shared; i++) {
        if (request->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

static int64_t next_use(const struct simulation *sim, int32_t group, int32_t node)
{
    for (int32_t i = sim->at + 1; i < sim->trace->num_requests; i++) {
        if (uses(sim, &sim->trace->requests[i], group, node)) {
            return i;
        }
    }
    return INT32_MAX;
}

/* So much later a cell counts as freed. */
static int64_t hold_of(const struct simulation *sim, int32_t group, const struct cell *cell)
{
    const int64_t num_blocks = sim->num_blocks[group];
    const int64_t hold = sim->orders[group].lateness >= 0 ? 2 * num_blocks : num_blocks / 2;
    const int64_t holds[] = {0, hold, 2 * num_blocks};
    return holds[cell->standing];
}

/* The larger of two is evicted first. */
static int64_t rank(const struct simulation *sim, int32_t group, int32_t node)
{
    const struct cell *cell = &sim->nodes[node].cells[group];
    const struct order *order = &sim->orders[group];
    const int64_t age = (cell->is_out ? sim->out_clock : order->clock) - cell->time;
    const int64_t out = cell->is_out ? (int64_t)1 << 40 : 0;
    switch (sim->policy) {
    case POLICY_LRU: return age;
    case POLICY_MRU: return -age;
    case POLICY_BELADY: return next_use(sim, group, node) * (1 << 24) + age;
    case POLICY_WINDOWS: return out + age;
    default:
        return cell->is_out ? out + age : 4 * (age - hold_of(sim, group, cell)) - cell->standing;
    }
}

static void evict(struct simulation *sim, int32_t group)
{
    int32_t victim = -1;
    int64_t best = 0;
    int32_t num_cached = 0;
    for (int32_t i = 0; i < sim->trace->num_nodes; i++) {
        if (sim->nodes[i].cells[group].state != FREE) {
            continue;
        }
        num_cached += !sim->nodes[i].cells[group].is_out;
        const int64_t value = rank(sim, group, i);
        if (victim < 0 || value > best) {
            victim = i;
            best = value;
        }
    }
    if (victim < 0) {
        measure_fail("the pool of group %d is too small\n", (int)group);
    }
    sim->nodes[victim].cells[group].state = ABSENT;
    if (!sim->nodes[victim].cells[group].is_out) {
        sim->orders[group].capacity = num_cached;
    }
}

static void take(struct simulation *sim, int32_t group)
{
    if (sim->num_unused[group] > 0) {
        sim->num_unused[group]--;
    } else {
        evict(sim, group);
    }
}

/* --- retention points */

/* Releases a block into the queue of those out of a window, or into the other. */
static void set_free(struct simulation *sim, int32_t group, struct cell *cell, bool is_out)
{
    const bool has_queue = sim->policy == POLICY_LIBRARY || sim->policy == POLICY_WINDOWS;
    cell->state = FREE;
    cell->is_out = is_out && has_queue;
    cell->time = cell->is_out ? sim->out_clock++ : sim->orders[group].clock++;
    cell->used = cell->is_out ? cell->used : cell->time;
}

static bool is_covered(const struct simulation *sim, int32_t node)
{
    return sim->policy == POLICY_LIBRARY && sim->nodes[node].distance < sim->window_cells;
}

static void retain(struct simulation *sim, int32_t node)
{
    for (int32_t distance = 0; node >= 0 && distance < sim->window_cells; distance++) {
        struct node *at = &sim->nodes[node];
        struct cell *cell = &at->cells[WINDOW];
        if (distance >= at->distance) {
            return;
        }
        at->distance = distance;
        if (is_covered(sim, node) && cell->state == FREE && cell->is_out) {
            set_free(sim, WINDOW, cell, false);
        }
        node = sim->trace->parents[node];
    }
}

/* The node gets a new child. */
static void go_on(struct simulation *sim, int32_t node)
{
    if (sim->nodes[node].num_continued++ > 0) {
        retain(sim, node);
        return;
    }
    for (int32_t distance = 0; node >= 0; node = sim->trace->parents[node], distance++) {
        struct node *at = &sim->nodes[node];
        if (at->distance != distance || at->num_continued > 1) {
            return;
        }
        at->distance = INT32_MAX;
    }
}

/* --- what settles */

static void vote(struct simulation *sim, const struct node *node)
{
    for (int32_t group = 0; group < NUM_GROUPS; group++) {
        struct order *order = &sim->orders[group];
        const int64_t used = node->cells[group].used;
        const bool is_end = group == FULL || node->distance <= 0 || node->num_continued == 0;
        if (used == 0 || !is_end) {
            continue;
        }
        order->lateness += order->clock - used > order->capacity ? 1 : -2;
        order->lateness = order->lateness > MAX_LATENESS ? MAX_LATENESS : order->lateness;
        order->lateness = order->lateness < -MAX_LATENESS ? -MAX_LATENESS : order->lateness;
    }
}

static bool has_room(const struct simulation *sim, int32_t group, int32_t count)
{
    const struct order *order = &sim->orders[group];
    bool is_overdue = false;
    for (int32_t i = 0; i < sim->trace->num_nodes; i++) {
        const struct cell *cell = &sim->nodes[i].cells[group];
        if (cell->state == FREE && cell->standing != PASSING && !cell->is_out) {
            is_overdue |=
                cell->standing == SETTLED && cell->time + hold_of(sim, group, cell) < order->clock;
            count++;
        }
    }
    return is_overdue || count <= order->capacity;
}

static void raise(struct simulation *sim, int32_t node, int32_t group, enum standing standing)
{
    struct cell *cell = &sim->nodes[node].cells[group];
    cell->standing = cell->standing < standing ? standing : cell->standing;
}

/* A request ends whose blocks of the group are [first, its last). */
static void settle(struct simulation *sim, const struct request *request, int32_t group,
                   int32_t first, enum growth growth)
{
    const bool may = growth == GROWS || sim->orders[group].lateness >= 0;
    if (growth == GROWS_HIT || (may && has_room(sim, group, request->num_blocks - first))) {
        for (int32_t i = first; i < request->num_blocks; i++) {
            raise(sim, request->nodes[i], group, SETTLED);
        }
    }
}

/* --- a request */

static void release(struct simulation *sim, const struct request *request,
                    const struct table *table, int32_t group, int32_t i, bool is_out)
{
    if (i >= table->num_published) {
        sim->num_unused[group]++;
        return;
    }
    struct cell *cell = &sim->nodes[request->nodes[i]].cells[group];
    set_free(sim, group, cell, is_out && !is_covered(sim, request->nodes[i]));
}

static bool has(const struct simulation *sim, const struct request *request, int32_t group,
                int32_t count)
{
    const int32_t first = group == FULL ? 0 : first_needed(sim, (int64_t)count * TRACE_BLOCK);
    for (int32_t i = first; i < count; i++) {
        if (sim->nodes[request->nodes[i]].cells[group].state == ABSENT) {
            return false;
        }
    }
    return true;
}

/* Blocks of the hit; *furthest: where some group could have gone on. */
static int32_t match(const struct simulation *sim, const struct request *request, int32_t *furthest)
{
    const int32_t max_count = (request->num_prompt - 1) / TRACE_BLOCK;
    int32_t hit = 0;
    *furthest = 0;
    for (int32_t count = 1; count <= max_count; count++) {
        if (!sim->nodes[request->nodes[count - 1]].is_known) {
            break;
        }
        const bool in_full = has(sim, request, FULL, count);
        const bool in_window = has(sim, request, WINDOW, count);
        hit = in_full && in_window ? count : hit;
        *furthest = in_full || in_window ? count : *furthest;
    }
    return hit;
}

static void publish(struct simulation *sim, const struct request *request, struct table *tables,
                    int32_t length)
{
    for (int32_t i = tables[FULL].num_published; i < length / TRACE_BLOCK; i++) {
        struct node *node = &sim->nodes[request->nodes[i]];
        const int32_t parent = sim->trace->parents[request->nodes[i]];
        if (!node->is_known) {
            node->is_known = true;
            if (parent >= 0) {
                go_on(sim, parent);
            }
        }
        for (int32_t group = 0; group < NUM_GROUPS; group++) {
            if (node->cells[group].state == FREE) {
                sim->num_unused[group]++; /* an equal block: its own is released */
            }
            if (node->cells[group].state == ABSENT) {
                node->cells[group].standing = PASSING;
            }
            node->cells[group].state = HELD;
            tables[group].num_published = i + 1;
        }
    }
}

static void leave_window(struct simulation *sim, const struct request *request, struct table *table,
                         int32_t length, int32_t all)
{
    for (; table->first < first_needed(sim, length); table->first++) {
        release(sim, request, table, WINDOW, table->first, true);
        if (table->end < all) {
            take(sim, WINDOW);
            table->end++;
        }
    }
}

static void admit(struct simulation *sim, const struct request *request, struct table *tables,
                  int32_t hit, enum growth growth)
{
    const int32_t all = (request->length + TRACE_BLOCK - 1) / TRACE_BLOCK;
    const int32_t at_once =
        (int32_t)((sim->window + TRACE_CHUNK + TRACE_BLOCK - 1) / TRACE_BLOCK) + 1;
    for (int32_t group = 0; group < NUM_GROUPS; group++) {
        struct table *table = &tables[group];
        table->first = group == FULL ? 0 : first_needed(sim, (int64_t)hit * TRACE_BLOCK);
        table->end = group == FULL || table->first + at_once > all ? all : table->first + at_once;
        table->num_published = hit;
        for (int32_t i = table->first; i < hit; i++) {
            sim->nodes[request->nodes[i]].cells[group].state = HELD;
            raise(sim, request->nodes[i], group, growth == GROWS_HIT ? SETTLED : SHARED);
        }
    }
    for (int32_t group = 0; group < NUM_GROUPS; group++) {
        for (int32_t i = hit; i < tables[group].end; i++) {
            take(sim, group);
        }
    }
}

/* Is the last of so many nodes one that nothing went on from? */
static bool is_end(const struct simulation *sim, const struct request *request, int32_t count)
{
    return count > 0 && sim->nodes[request->nodes[count - 1]].num_continued == 0;
}

static enum growth meet(struct simulation *sim, const struct request *request, int32_t hit)
{
    int32_t known = 0;
    while (known < (request->num_prompt - 1) / TRACE_BLOCK &&
           sim->nodes[request->nodes[known]].is_known) {
        known++;
    }
    if (known > 0) {
        vote(sim, &sim->nodes[request->nodes[known - 1]]);
    }
    return is_end(sim, request, hit) ? GROWS_HIT : is_end(sim, request, known) ? GROWS : GROWS_NOT;
}

static void finish(struct simulation *sim, const struct request *request,
                   const struct table *tables, enum growth growth)
{
    for (int32_t group = 0; group < NUM_GROUPS; group++) {
        settle(sim, request, group, tables[group].first, growth);
    }
    retain(sim, request->nodes[request->num_blocks - 1]);
    for (int32_t group = 0; group < NUM_GROUPS; group++) {
        for (int32_t i = tables[group].end - 1; i >= tables[group].first; i--) {
            release(sim, request, &tables[group], group, i, false);
        }
    }
}

static int32_t serve(struct simulation *sim, const struct request *request)
{
    struct table tables[NUM_GROUPS];
    int32_t furthest;
    const int32_t hit = match(sim, request, &furthest);
    const int32_t all = (request->length + TRACE_BLOCK - 1) / TRACE_BLOCK;
    const enum growth growth = meet(sim, request, hit);
    if (furthest > hit) {
        retain(sim, request->nodes[furthest - 1]);
    }
    admit(sim, request, tables, hit, growth);
    for (int32_t length = hit * TRACE_BLOCK; length < request->length;) {
        const int32_t left = request->num_prompt - length;
        length += left > TRACE_CHUNK ? TRACE_CHUNK : left > 0 ? left : 1;
        publish(sim, request, tables, length);
        leave_window(sim, request, &tables[WINDOW], length, all);
    }
    finish(sim, request, tables, growth);
    return hit * TRACE_BLOCK;
}

int64_t simulated_tokens(const struct trace *trace, enum policy policy, int64_t window,
                         int32_t full_blocks, int32_t window_blocks)
{
    struct simulation sim = {.trace = trace, .policy = policy, .window = window};
    int64_t sum = 0;
    sim.window_cells = (int32_t)((window - 1 + TRACE_BLOCK - 1) / TRACE_BLOCK);
    sim.orders[FULL] = (struct order){.clock = 1, .capacity = full_blocks};
    sim.orders[WINDOW] = (struct order){.clock = 1, .capacity = window_blocks};
    sim.num_unused[FULL] = sim.num_blocks[FULL] = full_blocks;
    sim.num_unused[WINDOW] = sim.num_blocks[WINDOW] = window_blocks;
    sim.nodes = measure_calloc((size_t)trace->num_nodes, sizeof *sim.nodes);
    for (int32_t i = 0; i < trace->num_nodes; i++) {
        sim.nodes[i].distance = INT32_MAX;
    }
    for (sim.at = 0; sim.at < trace->num_requests; sim.at++) {
        sum += serve(&sim, &trace->requests[sim.at]);
    }
    free(sim.nodes);
    return sum;
}
