/* SPDX-License-Identifier: MIT
 *
 * How the work of a step is cut, from plans made without a cache: what each task covers is held
 * against a walk over every span. */
#include "attn/split.h"

#include <limits.h>

#include "attn/gqa_plan.h"
#include "attn/visible.h"
#include "attn/workspace.h"
#include "support/test.h"

enum { MAX_ROWS = 4 };

struct cut_case {
    pkv_workspace *workspace;
    pkv_plan *plan;
    struct gqa_row rows[MAX_ROWS];
    struct gqa_shape shape;
};

static void open_case(struct cut_case *c, int32_t num_threads, int32_t kv_heads, int32_t group)
{
    *c = (struct cut_case){.shape = {.max_heads = kv_heads * group,
                                     .kv_heads = kv_heads,
                                     .k_width = 16,
                                     .v_width = 16,
                                     .block_size = 16}};
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(num_threads, PKV_ISA_BEST, NULL, &c->workspace));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(c->workspace, &c->plan));
}

static void close_case(struct cut_case *c)
{
    pkv_plan_destroy(c->plan);
    pkv_workspace_destroy(c->workspace);
}

/* Rows without tables share nothing. */
static void split(struct cut_case *c, int32_t num_rows)
{
    struct gqa_row *rows = gqa_plan_rows(c->workspace, c->plan, num_rows);
    for (int32_t i = 0; i < num_rows; i++) {
        rows[i] = c->rows[i];
    }
    c->plan->shape = c->shape;
    c->plan->thread_ns = 1;
    ASSERT_STATUS(PKV_OK, split_plan(c->plan));
}

/* The visible keys of a span, counted one by one. */
static int32_t keys_of_span(const struct visible *seen, int32_t span)
{
    int32_t count = 0, at = 0;
    for (int64_t key = (int64_t)span * SPAN_KEYS; key < ((int64_t)span + 1) * SPAN_KEYS; key++) {
        const int64_t block = key / seen->block_keys;
        while (at < seen->num_blocks && seen->blocks[at] < block) {
            at++;
        }
        const bool is_listed = at < seen->num_blocks && seen->blocks[at] == block;
        count += key < seen->end && (is_listed || key >= seen->first);
    }
    return count;
}

/* The task covers the spans from `span` on up to the first with which it costs the limit, or all of
 * them where it keeps its result. Returns the span after it. */
static int32_t check_task(const struct cut_case *c, const struct plan_task *task, int32_t span,
                          int32_t *partial)
{
    const struct visible seen =
        visible_to(&c->rows[task->row], &c->shape, task->head, task->q0, task->q1);
    const int32_t num_spans = visible_num_spans(&seen);
    const int64_t query_rows =
        (int64_t)(task->q1 - task->q0) * (c->shape.max_heads / c->shape.kv_heads) * task->num_heads;
    const int64_t limit = task->partial < 0 ? INT64_MAX : c->plan->cost_limit;
    int64_t cost = 0;
    while (span < num_spans && keys_of_span(&seen, span) == 0) {
        span++;
    }
    CU_ASSERT_EQUAL(task->span0, span);
    if (task->partial >= 0) {
        CU_ASSERT_EQUAL(task->partial, *partial);
    }
    for (; span < num_spans && cost < limit; span++) {
        const int32_t keys = keys_of_span(&seen, span);
        cost += keys * query_rows;
        *partial += task->partial >= 0 && keys > 0;
    }
    CU_ASSERT_EQUAL(task->cost, cost);
    CU_ASSERT_EQUAL(visible_span(&seen, task->span1), visible_span(&seen, span));
    return span;
}

/* Tasks of one chunk of queries and of heads that see the same keys follow each other, each once
 * for every range of heads. Heads with lists of their own number their results from one on. */
static void check_tasks(const struct cut_case *c)
{
    const struct plan_task *tasks = c->plan->tasks.memory;
    const int32_t alike = gqa_shape_heads_alike(&c->shape);
    int32_t base = 0, num_partials = 0;
    for (int32_t i = 0; i < c->plan->num_tasks;) {
        const struct plan_task first = tasks[i];
        int32_t span = 0;
        base = first.head == 0 ? num_partials : base;
        int32_t partial = base;
        for (; i < c->plan->num_tasks && tasks[i].row == first.row && tasks[i].q0 == first.q0 &&
               tasks[i].head == first.head;) {
            const int32_t begins_at = span;
            const int32_t partial_at = partial;
            const int32_t end = first.head + alike;
            for (int32_t head = first.head; head < end; head += first.num_heads, i++) {
                CU_ASSERT_EQUAL(tasks[i].head, head);
                partial = partial_at;
                span = check_task(c, &tasks[i], begins_at, &partial);
            }
        }
        const struct visible seen =
            visible_to(&c->rows[first.row], &c->shape, first.head, first.q0, first.q1);
        num_partials = partial > num_partials ? partial : num_partials;
        CU_ASSERT_EQUAL(visible_span(&seen, span) >= visible_num_spans(&seen), true);
    }
    CU_ASSERT_EQUAL(c->plan->num_partials, num_partials);
}

static void tasks_are_those_of_a_walk_over_every_span(void)
{
    struct test_random random = {test_seed()};
    for (int32_t round = 0; round < 300; round++) {
        struct cut_case c;
        open_case(&c, random_between(&random, 1, 5), random_between(&random, 1, 4),
                  random_between(&random, 1, 8));
        const bool slides = random_between(&random, 0, 2) == 0;
        const int32_t num_rows = random_between(&random, 1, MAX_ROWS);
        c.shape.sliding_window = slides ? random_between(&random, 1, 9000) : 0;
        for (int32_t i = 0; i < num_rows; i++) {
            const int32_t q_len =
                random_between(&random, 1, 4) == 1 ? random_between(&random, 1, 300) : 1;
            const int32_t kv_len = q_len + random_between(&random, 0, 20000);
            c.rows[i] = (struct gqa_row){.q_len = q_len, .kv_len = kv_len, .copy_src = -1};
            c.rows[i].kept_prefix = slides ? random_between(&random, 0, kv_len / 2) : 0;
        }
        split(&c, num_rows);
        check_tasks(&c);
        close_case(&c);
    }
}

enum { MAX_HEADS = 4, MAX_BLOCKS = 2000 };

/* Ascending lists of random blocks for each head of a row; some are empty. */
static void draw_lists(struct test_random *random, const struct gqa_shape *shape, int32_t kv_len,
                       int32_t *cu, int32_t *blocks)
{
    const int32_t num_blocks = (kv_len + shape->selection_size - 1) / shape->selection_size;
    cu[0] = 0;
    for (int32_t h = 0; h < MAX_HEADS; h++) {
        const int32_t one_of = random_between(random, 1, 60);
        cu[h + 1] = cu[h];
        for (int32_t i = 0; i < num_blocks && one_of > 1 && cu[h + 1] < MAX_BLOCKS * (h + 1); i++) {
            if (random_between(random, 1, one_of) == 1) {
                blocks[cu[h + 1]++] = i;
            }
        }
    }
}

/* Selected blocks: only spans with a visible key are dealt, counted and numbered. */
static void tasks_of_selected_blocks_are_those_of_a_walk_over_every_span(void)
{
    static int32_t blocks[MAX_ROWS][MAX_HEADS * MAX_BLOCKS];
    static int32_t cu[MAX_ROWS][MAX_HEADS + 1];
    struct test_random random = {test_seed()};
    for (int32_t round = 0; round < 300; round++) {
        struct cut_case c;
        open_case(&c, random_between(&random, 1, 5), random_between(&random, 1, MAX_HEADS),
                  random_between(&random, 1, 8));
        const int32_t num_rows = random_between(&random, 1, MAX_ROWS);
        c.shape.selection_size = 1 << random_between(&random, 0, 10);
        c.shape.selected_newest = random_between(&random, 0, 1) * random_between(&random, 1, 900);
        c.shape.selects_by_head = random_between(&random, 0, 1) == 1;
        for (int32_t i = 0; i < num_rows; i++) {
            const int32_t q_len =
                random_between(&random, 1, 4) == 1 ? random_between(&random, 1, 300) : 1;
            const int32_t kv_len = q_len + random_between(&random, 0, 20000);
            draw_lists(&random, &c.shape, kv_len, cu[i], blocks[i]);
            c.rows[i] = (struct gqa_row){
                .q_len = q_len, .kv_len = kv_len, .selected = blocks[i], .cu_selected = cu[i]};
        }
        split(&c, num_rows);
        check_tasks(&c);
        close_case(&c);
    }
}

/* K10: begin and commit of one token cost the same after 1k and after 512k tokens, for a row of any
 * length is cut into as many tasks as feed the threads, and none of its spans is looked at. */
static void a_row_is_cut_for_the_threads_whatever_its_length(void)
{
    static const int32_t lengths[] = {1 << 10, 1 << 14, 1 << 19, 1 << 24, INT_MAX};
    for (int32_t num_threads = 1; num_threads <= 8; num_threads *= 2) {
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            struct cut_case c;
            open_case(&c, num_threads, 1, 4);
            c.rows[0] = (struct gqa_row){.q_len = 1, .kv_len = lengths[i], .copy_src = -1};
            split(&c, 1);
            CU_ASSERT(c.plan->num_tasks <= 16 * num_threads);
            CU_ASSERT(c.plan->num_tasks >= (lengths[i] >= 1 << 19 ? num_threads : 1));
            close_case(&c);
        }
    }
}

/* What each of the threads that are worth waking begins with. */
static void check_shares(const pkv_plan *plan, int64_t max_task)
{
    const struct plan_task *tasks = plan->tasks.memory;
    const int32_t *first = plan->first_tasks.memory;
    for (int32_t w = 0; w < plan->num_threads; w++) {
        int64_t share = 0;
        for (int32_t i = first[w]; i < first[w + 1]; i++) {
            share += tasks[i].cost;
        }
        CU_ASSERT(share >= plan->cost / plan->num_threads - max_task);
        CU_ASSERT(share <= plan->cost / plan->num_threads + max_task);
    }
}

/* K9: one long decode row beside a prefill chunk and a prompt's last token is dealt to all threads:
 * no task costs much more than the limit, so the long row ends with the others. */
static void a_long_row_beside_a_prefill_is_dealt_to_all_threads(void)
{
    for (int32_t num_threads = 2; num_threads <= 8; num_threads++) {
        struct cut_case c;
        int32_t num_of_long_row = 0;
        int64_t max_task = 0;
        open_case(&c, num_threads, 8, 4);
        c.rows[0] = (struct gqa_row){.q_len = 1, .kv_len = 65536, .copy_src = -1};
        c.rows[1] = (struct gqa_row){.q_len = 512, .kv_len = 512, .copy_src = -1};
        c.rows[2] = (struct gqa_row){.q_len = 1, .kv_len = 513, .copy_src = -1};
        split(&c, 3);
        check_tasks(&c);
        const struct plan_task *tasks = c.plan->tasks.memory;
        for (int32_t i = 0; i < c.plan->num_tasks; i++) {
            const int64_t span = (int64_t)SPAN_KEYS * (tasks[i].q1 - tasks[i].q0) * 4;
            CU_ASSERT(tasks[i].cost <= c.plan->cost_limit + span * tasks[i].num_heads);
            num_of_long_row += tasks[i].row == 0;
            max_task = tasks[i].cost > max_task ? tasks[i].cost : max_task;
        }
        CU_ASSERT(num_of_long_row >= num_threads);
        check_shares(c.plan, max_task);
        close_case(&c);
    }
}

static const struct test_case cases[] = {
    TEST(tasks_are_those_of_a_walk_over_every_span),
    TEST(tasks_of_selected_blocks_are_those_of_a_walk_over_every_span),
    TEST(a_row_is_cut_for_the_threads_whatever_its_length),
    TEST(a_long_row_beside_a_prefill_is_dealt_to_all_threads),
    TEST_END,
};
const struct test_suite suite_split = {"split", cases};
