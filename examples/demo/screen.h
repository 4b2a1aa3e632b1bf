/* SPDX-License-Identifier: MIT
 *
 * screen.h: what a person sees while the requests run: their texts as they grow, the blocks of the
 * pool, and a line of numbers. On a terminal, frames of at most 24 lines of 80 columns, one over
 * the other; elsewhere a line now and then, and the blocks once. */
#ifndef DEMO_SCREEN_H
#define DEMO_SCREEN_H

#include "page_map.h"
#include "server.h"

struct screen {
    const struct request_list *requests;
    const struct model *model;
    int32_t num_shared; /* bytes of text that all requests begin with */
    int32_t delay;      /* milliseconds that a frame stands on a terminal */
    bool moves;         /* stdout is a terminal */
    double start;
    struct page_map pool;
};

/* An after_step_fn; its context is the screen. */
bool screen_step(void *context, pkv_cache *cache, const struct serve_stats *serve, bool *stop);

/* A text in lines of 78 columns, from a token on; each line after two blanks. With max_lines > 0
 * only the last ones, and just as many lines, empty ones at the end. Bytes that a terminal would
 * obey are shown as ?. */
void screen_print_text(const struct screen *screen, const struct request *request, int32_t first,
                       int32_t max_lines);

#endif
