/* SPDX-License-Identifier: MIT
 *
 * safetensors.h: the matrices of one safetensors file, where they lie.
 *
 *   8 bytes: length of the header, little-endian | header: JSON | data
 *   header: {"name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, ..,
 *            "__metadata__": {..}}, offsets counted from the first byte behind the header
 *
 * Nothing is believed before it is compared with the file: tensors lie one behind the other from
 * the first byte of the data to its last, without a gap, as the format says, so none overlaps
 * another and none passes the end. Memory is taken for the header alone, in proportion to its
 * length, which the file's bounds. */
#ifndef SERVER_SAFETENSORS_H
#define SERVER_SAFETENSORS_H

#include "model.h"

#include <cjson/cJSON.h>

struct safetensor {
    const char *name; /* lies in the header */
    struct weight weight;
    size_t begin, end; /* in the data */
    bool used;
};

struct safetensors {
    cJSON *header;
    struct safetensor *list; /* [count], by name */
    int32_t count;
};

/* The tensors of a file whose bytes stay the caller's and must outlive them. Takes f32, f16 and
 * bf16 with one or two dimensions, at offsets that their elements are aligned at; complains about
 * anything else. `name` is for complaints. */
bool safetensors_parse(const char *name, const unsigned char *bytes, size_t num_bytes,
                       struct safetensors *tensors);

/* NULL when there is no tensor of that name. */
struct safetensor *safetensors_find(const struct safetensors *tensors, const char *name);

/* A zeroed one is accepted. */
void safetensors_free(struct safetensors *tensors);

#endif
