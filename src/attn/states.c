/* SPDX-License-Identifier: MIT
 *
 * states.c: the calls beside the operator that work on finished results: merging two of them, and
 * adding a sink. Each widens a piece of a head, works in f32 and rounds once. */
#include <math.h>
#include <string.h>

#include "attn/overlap.h"
#include "attn/workspace.h"
#include "base/dtype.h"
#include "base/error.h"

/* Floats that are widened at a time. */
#define PIECE 64

static enum pkv_status check_states(const pkv_workspace *workspace, enum pkv_dtype dtype,
                                    int32_t num_tokens, int32_t num_heads, int32_t width)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    if (!dtype_is_float(dtype)) {
        return INVALID("dtype = %d, not a float type", (int)dtype);
    }
    if (num_tokens < 0 || num_heads < 1 || width < 1) {
        return INVALID("num_tokens = %d, num_heads = %d, width = %d: one is out of range",
                       num_tokens, num_heads, width);
    }
    return PKV_OK;
}

static enum pkv_status check_state(const struct pkv_state *state, size_t out_bytes,
                                   size_t lse_bytes, const char *name)
{
    if (state == NULL || state->out == NULL || state->lse == NULL) {
        return INVALID("%s or its out or lse is NULL", name);
    }
    if (overlap_bytes(state->out, out_bytes, state->lse, lse_bytes)) {
        return INVALID("%s: its out and lse overlap", name);
    }
    return PKV_OK;
}

/* result is the state itself, array by array, or lies apart from it. */
static enum pkv_status check_apart(const struct pkv_state *result, const struct pkv_state *state,
                                   size_t out_bytes, size_t lse_bytes, const char *name)
{
    const bool out_is_bad =
        result->out != state->out && overlap_bytes(result->out, out_bytes, state->out, out_bytes);
    const bool lse_is_bad =
        result->lse != state->lse && overlap_bytes(result->lse, lse_bytes, state->lse, lse_bytes);
    if (out_is_bad || lse_is_bad || overlap_bytes(result->out, out_bytes, state->lse, lse_bytes) ||
        overlap_bytes(result->lse, lse_bytes, state->out, out_bytes)) {
        return INVALID("result overlaps %s without being it", name);
    }
    return PKV_OK;
}

/* out = a * wa + b * wb over one head. Weights of 0 leave their side unread, so that the empty
 * state may hold anything. */
static void weighted_sum(const struct kernels *kernels, enum pkv_dtype dtype, const char *a,
                         float wa, const char *b, float wb, size_t width, char *out)
{
    const size_t element = pkv_dtype_bytes(dtype);
    for (size_t c = 0; c < width; c += PIECE) {
        const size_t count = width - c < PIECE ? width - c : PIECE;
        float x[PIECE] = {0};
        float y[PIECE] = {0};
        if (wa != 0.0f) {
            kernels->widen(dtype, a + c * element, count, x);
        }
        if (wb != 0.0f) {
            kernels->widen(dtype, b + c * element, count, y);
        }
        for (size_t i = 0; i < count; i++) {
            x[i] = x[i] * wa + y[i] * wb;
        }
        kernels->narrow(dtype, x, count, out + c * element);
    }
}

/* Merging with the empty state: the other's bits, or zeros when that is empty as well. */
static void copy_head(enum pkv_dtype dtype, size_t width, size_t at, const struct pkv_state *from,
                      size_t index, const struct pkv_state *result)
{
    const size_t bytes = width * pkv_dtype_bytes(dtype);
    if (from->lse[index] == -INFINITY) {
        memset((char *)result->out + at, 0, bytes);
    } else {
        memmove((char *)result->out + at, (const char *)from->out + at, bytes);
    }
    result->lse[index] = from->lse[index];
}

static void merge_head(const struct kernels *kernels, enum pkv_dtype dtype, size_t width,
                       size_t index, const struct pkv_state *a, const struct pkv_state *b,
                       const struct pkv_state *result)
{
    const size_t at = index * width * pkv_dtype_bytes(dtype);
    const float la = a->lse[index];
    const float lb = b->lse[index];
    if (la == -INFINITY || lb == -INFINITY) {
        const struct pkv_state *other = la == -INFINITY ? b : a;
        copy_head(dtype, width, at, other, index, result);
        return;
    }
    const float max = la > lb ? la : lb;
    const float ea = expf(la - max);
    const float eb = expf(lb - max);
    weighted_sum(kernels, dtype, (const char *)a->out + at, ea / (ea + eb),
                 (const char *)b->out + at, eb / (ea + eb), width, (char *)result->out + at);
    result->lse[index] = max + logf(ea + eb);
}

enum pkv_status pkv_merge_states(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                                 int32_t num_heads, int32_t width, const struct pkv_state *a,
                                 const struct pkv_state *b, const struct pkv_state *result)
{
    enum pkv_status status = check_states(workspace, dtype, num_tokens, num_heads, width);
    if (status != PKV_OK || num_tokens == 0) {
        return status;
    }
    const struct pkv_state *states[] = {a, b, result};
    const char *names[] = {"a", "b", "result"};
    const size_t heads = (size_t)num_tokens * (size_t)num_heads;
    const size_t out_bytes = heads * (size_t)width * pkv_dtype_bytes(dtype);
    for (size_t i = 0; status == PKV_OK && i < 3; i++) {
        status = check_state(states[i], out_bytes, heads * sizeof(float), names[i]);
    }
    for (size_t i = 0; status == PKV_OK && i < 2; i++) {
        status = check_apart(result, states[i], out_bytes, heads * sizeof(float), names[i]);
    }
    for (size_t i = 0; status == PKV_OK && i < heads; i++) {
        merge_head(workspace->kernels, dtype, (size_t)width, i, a, b, result);
    }
    return status;
}

enum pkv_status pkv_apply_sink(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                               int32_t num_heads, int32_t width, const float *head_sink,
                               const struct pkv_state *state)
{
    enum pkv_status status = check_states(workspace, dtype, num_tokens, num_heads, width);
    if (status == PKV_OK && head_sink == NULL) {
        status = INVALID("head_sink is NULL");
    }
    for (int32_t h = 0; status == PKV_OK && h < num_heads; h++) {
        if (isnan(head_sink[h]) || head_sink[h] == INFINITY) {
            status =
                INVALID("head_sink[%d] = %g: only finite values and -inf", h, (double)head_sink[h]);
        }
    }
    if (status != PKV_OK || num_tokens == 0) {
        return status;
    }
    const size_t heads = (size_t)num_tokens * (size_t)num_heads;
    const size_t out_bytes = heads * (size_t)width * pkv_dtype_bytes(dtype);
    status = check_state(state, out_bytes, heads * sizeof(float), "state");
    const size_t sink_bytes = (size_t)num_heads * sizeof(float);
    if (status == PKV_OK &&
        (overlap_bytes(head_sink, sink_bytes, state->out, out_bytes) ||
         overlap_bytes(head_sink, sink_bytes, state->lse, heads * sizeof(float)))) {
        status = INVALID("state lies over head_sink");
    }
    for (size_t i = 0; status == PKV_OK && i < heads; i++) {
        const float sink = head_sink[i % (size_t)num_heads];
        if (sink == -INFINITY) {
            continue;
        }
        const float max = state->lse[i] > sink ? state->lse[i] : sink;
        const float keep = state->lse[i] == -INFINITY ? 0.0f : expf(state->lse[i] - max);
        const float sum = keep + expf(sink - max);
        char *out = (char *)state->out + i * (size_t)width * pkv_dtype_bytes(dtype);
        weighted_sum(workspace->kernels, dtype, out, keep / sum, out, 0.0f, (size_t)width, out);
        state->lse[i] = max + logf(sum);
    }
    return status;
}
