/* SPDX-License-Identifier: MIT
 *
 * front.h: starts a process for prefill and one for decode and has requests pass through both: a
 * request goes to prefill, and when that answers, to decode. While one decodes, the next is in
 * prefill. When prefill is gone, requests go to decode alone. */
#ifndef DISAGGREGATED_FRONT_H
#define DISAGGREGATED_FRONT_H

#include "worker.h"

/* What goes wrong; -1 = nothing. */
struct failure {
    bool no_prefill;  /* there never is such a process */
    int32_t dies_in;  /* it kills itself in the middle of this request */
    int32_t after_ms; /* the front kills it so many milliseconds after the start */
};

/* Runs all requests to their end; messages [count] are the prompts, and then what decode has
 * answered. Waits for both processes. False after a complaint: a process ended that should not. */
bool front_run(const struct place *place, const struct failure *failure, struct message *messages,
               int32_t count);

#endif
