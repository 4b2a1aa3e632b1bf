/* SPDX-License-Identifier: MIT
 *
 * screen.c: lines of text from tokens that are bytes, and frames of them. */
#include "screen.h"

#include "report.h"

#include <stdio.h>
#include <time.h>

enum { WIDTH = 76, MAX_LINES = 64, TAIL_LINES = 2, STEPS_A_FRAME = 4, STEPS_A_LINE = 100 };

struct line {
    int32_t begin;
    int32_t end;
};

/* Where the line that begins there ends: at the last blank that fits, or full. */
static int32_t end_of_line(const struct request *request, int32_t begin)
{
    int32_t end = begin + WIDTH;
    if (end >= request->num_tokens) {
        return request->num_tokens;
    }
    while (end > begin && request->tokens[end] != ' ') {
        end--;
    }
    return end > begin ? end : begin + WIDTH;
}

/* The newest lines when there are more than MAX_LINES. */
static int32_t break_lines(const struct request *request, int32_t first,
                           struct line lines[MAX_LINES])
{
    int32_t count = 0;
    for (int32_t begin = first; begin < request->num_tokens;) {
        const int32_t end = end_of_line(request, begin);
        lines[count % MAX_LINES] = (struct line){begin, end};
        count++;
        begin = end < request->num_tokens && request->tokens[end] == ' ' ? end + 1 : end;
    }
    return count;
}

static void print_line(const struct request *request, const struct line *line)
{
    for (int32_t i = line->begin; i < line->end; i++) {
        const int32_t byte = request->tokens[i];
        putchar(byte >= ' ' && byte < 0x7f ? byte : '?');
    }
}

void screen_print_text(const struct screen *screen, const struct request *request, int32_t first,
                       int32_t max_lines)
{
    struct line lines[MAX_LINES];
    const int32_t count = break_lines(request, first, lines);
    int32_t from = count > MAX_LINES ? count - MAX_LINES : 0;
    if (max_lines > 0 && count - from > max_lines) {
        from = count - max_lines;
    }
    for (int32_t i = from; i < count || i < from + max_lines; i++) {
        fputs("  ", stdout);
        if (i < count) {
            print_line(request, &lines[i % MAX_LINES]);
        }
        page_map_end_line(&screen->pool);
    }
}

static void print_numbers(const struct screen *screen, const struct serve_stats *serve,
                          const struct pkv_stats *stats)
{
    printf("step %d: %d rows, %.0f tokens a second; %llu of %llu prompt tokens were hits",
           serve->num_steps, serve->num_rows,
           (double)serve->num_computed / (now_seconds() - screen->start + 1e-9),
           (unsigned long long)stats->hit_tokens, (unsigned long long)stats->queried_tokens);
    page_map_end_line(&screen->pool);
}

static int32_t window_of_group(const struct screen *screen, int32_t group)
{
    const struct model *m = screen->model;
    return m->layers[group < m->num_layers ? group : 0].window;
}

/* A group's layers come one after the other here, so group g is that of layer g. */
static void print_pool(const struct screen *screen)
{
    const struct page_map *pool = &screen->pool;
    for (int32_t group = 0; group < pool->num_groups; group++) {
        const int32_t window = window_of_group(screen, group);
        if (window > 0) {
            printf("blocks of the layers with a window of %d tokens", window);
        } else {
            printf("blocks of the layers that keep all tokens");
        }
        page_map_end_line(pool);
        page_map_print(pool, group, 2);
    }
    page_map_print_legend(pool);
}

static void draw_frame(struct screen *screen, const struct serve_stats *serve,
                       const struct pkv_stats *stats)
{
    const struct request_list *list = screen->requests;
    const struct request beginning = {.tokens = list->items[0].tokens,
                                      .num_tokens = 1 + screen->num_shared};
    fputs(serve->num_steps <= STEPS_A_FRAME ? "\033[2J\033[H" : "\033[H", stdout);
    screen_print_text(screen, &beginning, 1, 0);
    for (int32_t r = 0; r < list->count; r++) {
        printf("\033[1m%d\033[0m", r + 1);
        screen_print_text(screen, &list->items[r], 1 + screen->num_shared, TAIL_LINES);
    }
    print_pool(screen);
    print_numbers(screen, serve, stats);
}

static bool is_last(const struct screen *screen)
{
    for (int32_t r = 0; r < screen->requests->count; r++) {
        if (!screen->requests->items[r].ended) {
            return false;
        }
    }
    return true;
}

/* Without a terminal: the pool once, when it is fullest of running requests, and numbers. */
static void print_plain(struct screen *screen, const struct serve_stats *serve,
                        const struct pkv_stats *stats)
{
    if (serve->num_steps == STEPS_A_LINE) {
        print_pool(screen);
    }
    print_numbers(screen, serve, stats);
}

bool screen_step(void *context, pkv_cache *cache, const struct serve_stats *serve, bool *stop)
{
    struct screen *screen = context;
    struct pkv_stats stats = {.size = sizeof stats};
    const int32_t every = screen->moves ? STEPS_A_FRAME : STEPS_A_LINE;
    *stop = false;
    if (serve->num_steps % every != 0 && !is_last(screen)) {
        return true;
    }
    if (!page_map_read(&screen->pool, cache, &stats)) {
        return false;
    }
    if (screen->moves) {
        draw_frame(screen, serve, &stats);
    } else {
        print_plain(screen, serve, &stats);
    }
    if (fflush(stdout) != 0) {
        return complain("stdout cannot be written");
    }
    if (screen->moves) {
        const struct timespec pause = {screen->delay / 1000, screen->delay % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    return true;
}
