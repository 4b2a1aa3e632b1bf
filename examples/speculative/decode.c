/* SPDX-License-Identifier: MIT
 *
 * decode.c: plain and speculative greedy decoding of one request.
 *
 *   tokens   t0 .. t[n-1]                        n-1 of them in the target's cache
 *   drafts   d1 .. dk                            the draft's cache ends with d[k-1]
 *   verify   t[n-1] d1 .. dk                     one step of the target, k+1 choices c0 .. ck
 *   accept   the first a drafts with d[i+1] = c[i]
 *   keep     t[n-1] d1 .. da in the target       num_keep = a + 1
 *   rewind   the draft to t[n-1] d1 .. da        at most k tokens
 *   new      d1 .. da and c[a]
 *
 * Each c is the target's own choice after tokens that it chose itself: that makes the result equal
 * to plain decoding, however good or bad the drafts are. */
#include "decode.h"

bool decode_plain(struct decoder *target, struct request *request)
{
    if (!decoder_start(target, request->tokens, request->num_prompt)) {
        return false;
    }
    while (!request->ended) {
        int32_t token = 0;
        if (!decoder_catch_up(target, request->tokens, request->num_tokens - 1) ||
            !decoder_compute(target, request->tokens + target->length, 1) ||
            !decoder_choose(target, 0, &token) || !decoder_keep(target, 1)) {
            return false;
        }
        request_take(target->model, request, token);
    }
    return decoder_end(target);
}

/* drafts[0..count): the first step may bring what the draft lacks: after a round in which all were
 * accepted, that is the last accepted one beside the target's own. */
static bool propose(struct decoder *draft, const struct request *request, int32_t count,
                    int32_t *drafts)
{
    const int32_t *next = request->tokens + draft->length;
    int32_t num_new = request->num_tokens - draft->length;
    for (int32_t i = 0; i < count; i++) {
        if (!decoder_compute(draft, next, num_new) ||
            !decoder_choose(draft, num_new - 1, &drafts[i]) || !decoder_keep(draft, num_new)) {
            return false;
        }
        next = &drafts[i];
        num_new = 1;
    }
    return true;
}

/* *num_accepted drafts are the target's choices, and *choice is what it chooses after them. The
 * step is closed with those kept. */
static bool verify(struct decoder *target, const struct request *request, const int32_t *drafts,
                   int32_t count, int32_t *num_accepted, int32_t *choice)
{
    int32_t tokens[MAX_DRAFTS + 1];
    tokens[0] = request->tokens[request->num_tokens - 1];
    for (int32_t i = 0; i < count; i++) {
        tokens[i + 1] = drafts[i];
    }
    if (!decoder_compute(target, tokens, count + 1)) {
        return false;
    }
    int32_t accepted = 0;
    for (;;) {
        if (!decoder_choose(target, accepted, choice)) {
            return false;
        }
        if (accepted == count || drafts[accepted] != *choice) {
            break;
        }
        accepted++;
    }
    *num_accepted = accepted;
    return decoder_keep(target, accepted + 1);
}

static bool run_round(struct decoder *target, struct decoder *draft, int32_t num_drafts,
                      struct request *request, struct speculation *counts)
{
    int32_t drafts[MAX_DRAFTS];
    int32_t accepted = 0;
    int32_t choice = 0;
    /* The target adds a token itself, and the last one of a request is never written. */
    const int32_t room = request->max_tokens - request->num_tokens - 1;
    const int32_t count = num_drafts < room ? num_drafts : room;
    if (!propose(draft, request, count, drafts) ||
        !verify(target, request, drafts, count, &accepted, &choice)) {
        return false;
    }
    for (int32_t i = 0; i < accepted && !request->ended; i++) {
        request_take(target->model, request, drafts[i]);
    }
    if (!request->ended) {
        request_take(target->model, request, choice);
    }
    counts->num_rounds++;
    counts->num_drafted += count;
    counts->num_accepted += accepted;
    return decoder_rewind(draft, target->length);
}

bool decode_speculative(struct decoder *target, struct decoder *draft, int32_t num_drafts,
                        struct request *request, struct speculation *counts)
{
    const int32_t before_last = request->num_tokens - 1;
    if (!decoder_start(target, request->tokens, request->num_prompt) ||
        !decoder_start(draft, request->tokens, request->num_prompt) ||
        !decoder_catch_up(target, request->tokens, before_last) ||
        !decoder_catch_up(draft, request->tokens, before_last)) {
        return false;
    }
    while (!request->ended) {
        if (!run_round(target, draft, num_drafts, request, counts)) {
            return false;
        }
    }
    return decoder_end(target) && decoder_end(draft);
}
