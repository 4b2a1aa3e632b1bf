/* SPDX-License-Identifier: MIT
 *
 * tensor.c: types, sizes and shapes of tensors. */
#include "attn/tensor.h"

#include "base/error.h"

bool tensor_is_float(const struct pkv_tensor *t)
{
    return t->type == PKV_TENSOR_F32 || t->type == PKV_TENSOR_F16 || t->type == PKV_TENSOR_BF16;
}

bool tensor_is_integer(const struct pkv_tensor *t)
{
    return t->type == PKV_TENSOR_INT32 || t->type == PKV_TENSOR_INT64;
}

int64_t tensor_count(const struct pkv_tensor *t)
{
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        count *= t->dims[i];
    }
    return count;
}

enum pkv_status tensor_check(const struct pkv_tensor *t, const char *name)
{
    if (t == NULL) {
        return PKV_OK;
    }
    if (t->rank < 0 || t->rank > 4) {
        return INVALID("%s: rank %d, outside [0, 4]", name, t->rank);
    }
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0 || t->dims[i] > INT32_MAX) {
            return INVALID("%s: dimension %d is %lld", name, i, (long long)t->dims[i]);
        }
        if (t->dims[i] > 0 && count > INT64_MAX / t->dims[i]) {
            return INVALID("%s: its size overflows", name);
        }
        count *= t->dims[i];
    }
    if (t->data == NULL && count > 0) {
        return INVALID("%s: no data", name);
    }
    return PKV_OK;
}

enum pkv_status tensor_check_vector(const struct pkv_tensor *t, enum pkv_tensor_type type,
                                    int64_t length, const char *name)
{
    if (t != NULL && (t->type != type || t->rank != 1 || (length >= 0 && t->dims[0] != length))) {
        return INVALID("%s: type %d, rank %d, length %lld: wants a vector of %lld", name,
                       (int)t->type, t->rank, t->rank > 0 ? (long long)t->dims[0] : 1LL,
                       (long long)length);
    }
    return PKV_OK;
}
