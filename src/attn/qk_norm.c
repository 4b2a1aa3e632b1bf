/* SPDX-License-Identifier: MIT
 *
 * qk_norm.c: pkv_qk_rms_norm, the norm of the operator as a call of its own. */
#include <math.h>

#include "attn/norm.h"
#include "attn/overlap.h"
#include "attn/workspace.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

static enum pkv_status check_norm(enum pkv_dtype dtype, int32_t num_tokens, int32_t hidden,
                                  enum pkv_dtype weight_dtype, int32_t width, float eps)
{
    if (!dtype_is_float(dtype) || !dtype_is_float(weight_dtype)) {
        return INVALID("dtype = %d, weight_dtype = %d: one is not a float type", (int)dtype,
                       (int)weight_dtype);
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

/* Rows of heads that are read and written, one after the other. */
struct rows {
    enum pkv_dtype dtype;
    int32_t num_tokens;
    int32_t hidden;
    int32_t width;
    const void *x;
    size_t x_stride;
    void *y;
    size_t y_stride;
};

/* Bytes from the first element of strided rows to the last; false on overflow. */
static bool reach(const struct rows *rows, size_t stride, size_t *bytes)
{
    return checked_mul((size_t)rows->num_tokens - 1, stride, bytes) &&
           checked_add(*bytes, (size_t)rows->hidden, bytes) &&
           checked_mul(*bytes, pkv_dtype_bytes(rows->dtype), bytes);
}

/* Strides and overlaps. */
static enum pkv_status check_rows(const struct rows *rows, const void *weight, size_t weight_bytes)
{
    size_t x_bytes = 0;
    size_t y_bytes = 0;
    if (rows->x == NULL || weight == NULL || rows->y == NULL) {
        return INVALID("%s is NULL", rows->x == NULL ? "x" : weight == NULL ? "weight" : "y");
    }
    if (rows->x_stride < (size_t)rows->hidden || rows->y_stride < (size_t)rows->hidden) {
        return INVALID("x_stride = %zu, y_stride = %zu: one is below hidden = %d", rows->x_stride,
                       rows->y_stride, rows->hidden);
    }
    if (!reach(rows, rows->x_stride, &x_bytes) || !reach(rows, rows->y_stride, &y_bytes)) {
        return INVALID("x_stride = %zu, y_stride = %zu: the bytes overflow", rows->x_stride,
                       rows->y_stride);
    }
    if (overlap_bytes(rows->x, x_bytes, rows->y, y_bytes) &&
        (rows->x != rows->y || rows->x_stride != rows->y_stride)) {
        return INVALID("y overlaps x without being it");
    }
    return overlap_bytes(weight, weight_bytes, rows->y, y_bytes) ? INVALID("y overlaps weight")
                                                                 : PKV_OK;
}

/* head [width] is scratch. */
static void norm_rows(const struct kernels *kernels, const struct rows *rows, const void *weight,
                      enum pkv_dtype weight_dtype, float eps, float *head)
{
    const size_t element = pkv_dtype_bytes(rows->dtype);
    const size_t width = (size_t)rows->width;
    for (int32_t t = 0; t < rows->num_tokens; t++) {
        for (int32_t c = 0; c < rows->hidden; c += rows->width) {
            const size_t from = ((size_t)t * rows->x_stride + (size_t)c) * element;
            const size_t to = ((size_t)t * rows->y_stride + (size_t)c) * element;
            kernels->widen(rows->dtype, (const char *)rows->x + from, width, head);
            norm_head(kernels, head, width, weight, weight_dtype, eps);
            kernels->narrow(rows->dtype, head, width, (char *)rows->y + to);
        }
    }
}

enum pkv_status pkv_qk_rms_norm(pkv_workspace *workspace, enum pkv_dtype dtype, int32_t num_tokens,
                                int32_t hidden, const void *x, size_t x_stride, const void *weight,
                                enum pkv_dtype weight_dtype, int32_t width, float eps, void *y,
                                size_t y_stride)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    enum pkv_status status = check_norm(dtype, num_tokens, hidden, weight_dtype, width, eps);
    if (status != PKV_OK || num_tokens == 0) {
        return status;
    }
    const size_t packed = (size_t)hidden;
    const struct rows rows = {
        .dtype = dtype,
        .num_tokens = num_tokens,
        .hidden = hidden,
        .width = width,
        .x = x,
        .x_stride = x_stride != 0 ? x_stride : packed,
        .y = y,
        .y_stride = y_stride != 0 ? y_stride : packed,
    };
    status = check_rows(&rows, weight, (size_t)width * pkv_dtype_bytes(weight_dtype));
    if (status != PKV_OK) {
        return status;
    }
    if (!buffer_grow(&workspace->hooks, &workspace->norm_head, (size_t)width * sizeof(float))) {
        return refuse(PKV_NO_MEMORY, "no memory for a head of width %d", width);
    }
    norm_rows(workspace->kernels, &rows, weight, weight_dtype, eps, workspace->norm_head.memory);
    return PKV_OK;
}
