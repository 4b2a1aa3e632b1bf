/* SPDX-License-Identifier: MIT
 *
 * states.c: the operator's sisters that work on finished rows: the norm of heads, merging partial
 * results, and the sink. Each widens a piece of a row, works in f32 and rounds once. */
#include <math.h>
#include <string.h>

#include "attn/run.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

#define INVALID(...) refuse(PKV_INVALID_ARGUMENT, __VA_ARGS__)

/* Floats that are widened at a time. */
#define PIECE 64

static bool overlaps(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a;
    const uintptr_t y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}

/* ---- norm --------------------------------------------------------------------------------------
 */

static enum pkv_status check_norm(enum pkv_dtype dtype, int32_t num_tokens, int32_t hidden,
                                  enum pkv_dtype gain_dtype, int32_t width, float eps)
{
    if (!dtype_is_float(dtype) || !dtype_is_float(gain_dtype)) {
        return INVALID("dtype = %d, gain_dtype = %d: one is not a float type", (int)dtype,
                       (int)gain_dtype);
    }
    if (num_tokens < 0) {
        return INVALID("num_tokens = %d, negative", num_tokens);
    }
    if (width < 1 || hidden < width || hidden % width != 0) {
        return INVALID("hidden = %d is no multiple of width = %d", hidden, width);
    }
    if (!isfinite(eps) || eps <= 0) {
        return INVALID("eps = %g, not positive and finite", (double)eps);
    }
    return PKV_OK;
}

/* Bytes from the first element of strided rows to the last; false on overflow. */
static bool reach(int32_t num_tokens, size_t stride, size_t packed, size_t element, size_t *bytes)
{
    return checked_mul((size_t)num_tokens - 1, stride, bytes) &&
           checked_add(*bytes, packed, bytes) && checked_mul(*bytes, element, bytes);
}

enum pkv_status pkv_qk_rms_norm(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                                int32_t hidden, const void *x, size_t x_stride, const void *gain,
                                enum pkv_dtype gain_dtype, int32_t width, float eps, void *y,
                                size_t y_stride)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    const enum pkv_status status = check_norm(dtype, num_tokens, hidden, gain_dtype, width, eps);
    if (status != PKV_OK || num_tokens == 0) {
        return status;
    }
    const size_t packed = (size_t)hidden;
    x_stride = x_stride != 0 ? x_stride : packed;
    y_stride = y_stride != 0 ? y_stride : packed;
    if (x == NULL || gain == NULL || y == NULL) {
        return INVALID("%s is NULL", x == NULL ? "x" : gain == NULL ? "gain" : "y");
    }
    if (x_stride < packed || y_stride < packed) {
        return INVALID("x_stride = %zu, y_stride = %zu: one is below hidden = %d", x_stride,
                       y_stride, hidden);
    }
    const size_t element = pkv_dtype_bytes(dtype);
    size_t x_bytes = 0;
    size_t y_bytes = 0;
    if (!reach(num_tokens, x_stride, packed, element, &x_bytes) ||
        !reach(num_tokens, y_stride, packed, element, &y_bytes)) {
        return INVALID("x_stride = %zu, y_stride = %zu: the bytes overflow", x_stride, y_stride);
    }
    if (overlaps(x, x_bytes, y, y_bytes) && (x != y || x_stride != y_stride)) {
        return INVALID("y overlaps x without being it");
    }
    if (overlaps(gain, (size_t)width * pkv_dtype_bytes(gain_dtype), y, y_bytes)) {
        return INVALID("y overlaps gain");
    }
    if (!buffer_grow(&workspace->hooks, &workspace->shim, (size_t)width * sizeof(float))) {
        return refuse(PKV_NO_MEMORY, "no memory for a head of width %d", width);
    }
    float *head = workspace->shim.memory;
    for (int32_t t = 0; t < num_tokens; t++) {
        for (int32_t c = 0; c < hidden; c += width) {
            const size_t from = ((size_t)t * x_stride + (size_t)c) * element;
            const size_t to = ((size_t)t * y_stride + (size_t)c) * element;
            workspace->kernels->widen(dtype, (const char *)x + from, (size_t)width, head);
            norm_head(workspace->kernels, head, (size_t)width, gain, gain_dtype, eps);
            workspace->kernels->narrow(dtype, head, (size_t)width, (char *)y + to);
        }
    }
    return PKV_OK;
}

/* ---- merging -----------------------------------------------------------------------------------
 */

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
    if (overlaps(state->out, out_bytes, state->lse, lse_bytes)) {
        return INVALID("%s: its out and lse overlap", name);
    }
    return PKV_OK;
}

/* result is the state itself, array by array, or lies apart from it. */
static enum pkv_status check_apart(const struct pkv_state *result, const struct pkv_state *state,
                                   size_t out_bytes, size_t lse_bytes, const char *name)
{
    const bool out_is_bad =
        result->out != state->out && overlaps(result->out, out_bytes, state->out, out_bytes);
    const bool lse_is_bad =
        result->lse != state->lse && overlaps(result->lse, lse_bytes, state->lse, lse_bytes);
    if (out_is_bad || lse_is_bad || overlaps(result->out, out_bytes, state->lse, lse_bytes) ||
        overlaps(result->lse, lse_bytes, state->out, out_bytes)) {
        return INVALID("result overlaps %s without being it", name);
    }
    return PKV_OK;
}

/* out = a * wa + b * wb over one head. Weights of 0 leave their side unread, so that the empty
 * state may hold anything. */
static void weigh_two(const struct kernels *kernels, enum pkv_dtype dtype, const char *a, float wa,
                      const char *b, float wb, size_t width, char *out)
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
    weigh_two(kernels, dtype, (const char *)a->out + at, ea / (ea + eb), (const char *)b->out + at,
              eb / (ea + eb), width, (char *)result->out + at);
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
    if (status == PKV_OK && (overlaps(head_sink, sink_bytes, state->out, out_bytes) ||
                             overlaps(head_sink, sink_bytes, state->lse, heads * sizeof(float)))) {
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
        weigh_two(workspace->kernels, dtype, out, keep / sum, out, 0.0f, (size_t)width, out);
        state->lse[i] = max + logf(sum);
    }
    return status;
}
