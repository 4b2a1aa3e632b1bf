/* SPDX-License-Identifier: MIT
 *
 * status.h: what the live page shows, as JSON: the blocks of each group, requests in flight,
 * rates. */
#ifndef SERVER_STATUS_H
#define SERVER_STATUS_H

#include "engine.h"
#include "language_model.h"

/* A text that the caller frees; NULL when memory is short. stream_bandwidth is what this machine
 * reads a second at most, 0 = not known. */
char *status_json(const struct language_model *lm, struct engine *engine, double stream_bandwidth);

#endif
