/* SPDX-License-Identifier: MIT
 *
 * onnx.h: a model of one GroupQueryAttention node, written as the bytes of an ONNX file. */
#ifndef BENCH_PEERS_ONNX_H
#define BENCH_PEERS_ONNX_H

#include "layer.h"

enum { ONNX_FLOAT = 1, ONNX_INT8 = 3, ONNX_INT32 = 6, ONNX_FLOAT16 = 10 };
enum { ONNX_MAX_BYTES = 4096, ONNX_NUM_INPUTS = 7, ONNX_NUM_SCALES = 2, ONNX_NUM_OUTPUTS = 3 };

/* query, key, value, past_key, past_value, seqlens_k, total_sequence_length; then, for an int8
 * cache alone, k_scale and v_scale. Outputs: output, present_key, present_value. */
extern const char *const onnx_inputs[ONNX_NUM_INPUTS + ONNX_NUM_SCALES];
extern const char *const onnx_outputs[ONNX_NUM_OUTPUTS];

/* The element type that ONNX has for a type of ours: f32, f16 or int8. */
int onnx_type(enum pkv_dtype dtype);

/* Writes the model into bytes [ONNX_MAX_BYTES] and returns its length. */
size_t onnx_model(const struct layer *layer, unsigned char *bytes);

#endif
