/* SPDX-License-Identifier: MIT
 *
 * onnx.c: protocol buffers by hand. A message is a row of fields, each a number and a wire type
 * (0: a varint, 2: bytes with their length before them) followed by the value; the numbers are
 * those of onnx.proto. */
#include "onnx.h"

#include <string.h>

#include "measure.h"

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };
enum { ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3 };

const char *const onnx_inputs[] = {
    "query",   "key",    "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
    "k_scale", "v_scale"};
const char *const onnx_outputs[] = {"output", "present_key", "present_value"};

struct message {
    unsigned char bytes[ONNX_MAX_BYTES];
    size_t length;
};

static void put_byte(struct message *m, unsigned char byte)
{
    if (m->length == sizeof m->bytes) {
        measure_fail("the ONNX model is larger than %d bytes", ONNX_MAX_BYTES);
    }
    m->bytes[m->length++] = byte;
}

static void put_varint(struct message *m, uint64_t value)
{
    while (value >= 128) {
        put_byte(m, (unsigned char)(value | 128));
        value >>= 7;
    }
    put_byte(m, (unsigned char)value);
}

static void put_number(struct message *m, int field, int64_t value)
{
    put_varint(m, (uint64_t)field << 3 | WIRE_VARINT);
    put_varint(m, (uint64_t)value);
}

static void put_bytes(struct message *m, int field, const void *bytes, size_t length)
{
    put_varint(m, (uint64_t)field << 3 | WIRE_BYTES);
    put_varint(m, length);
    for (size_t i = 0; i < length; i++) {
        put_byte(m, ((const unsigned char *)bytes)[i]);
    }
}

static void put_text(struct message *m, int field, const char *text)
{
    put_bytes(m, field, text, strlen(text));
}

static void put_message(struct message *m, int field, const struct message *inner)
{
    put_bytes(m, field, inner->bytes, inner->length);
}

static void put_int_attribute(struct message *node, const char *name, int64_t value)
{
    struct message attribute = {.length = 0};
    put_text(&attribute, 1, name);
    put_number(&attribute, 3, value);
    put_number(&attribute, 20, ATTRIBUTE_INT);
    put_message(node, 5, &attribute);
}

static void put_text_attribute(struct message *node, const char *name, const char *value)
{
    struct message attribute = {.length = 0};
    put_text(&attribute, 1, name);
    put_text(&attribute, 4, value);
    put_number(&attribute, 20, ATTRIBUTE_STRING);
    put_message(node, 5, &attribute);
}

/* A tensor of that type and any shape. */
static void put_value(struct message *graph, int field, const char *name, int type)
{
    struct message tensor = {.length = 0}, any = {.length = 0}, value = {.length = 0};
    put_number(&tensor, 1, type);
    put_message(&any, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &any);
    put_message(graph, field, &value);
}

static void put_node(struct message *graph, const struct layer *layer)
{
    enum { FIRST_SCALE = 12 }; /* position of k_scale; those between are absent */
    struct message node = {.length = 0};
    const bool quantised = layer->spec.cache == PKV_INT8;
    for (int i = 0; i < ONNX_NUM_INPUTS; i++) {
        put_text(&node, 1, onnx_inputs[i]);
    }
    for (int i = ONNX_NUM_INPUTS; quantised && i < FIRST_SCALE; i++) {
        put_text(&node, 1, "");
    }
    for (int i = 0; quantised && i < ONNX_NUM_SCALES; i++) {
        put_text(&node, 1, onnx_inputs[ONNX_NUM_INPUTS + i]);
    }
    for (int i = 0; i < ONNX_NUM_OUTPUTS; i++) {
        put_text(&node, 2, onnx_outputs[i]);
    }
    put_text(&node, 4, "GroupQueryAttention");
    put_int_attribute(&node, "num_heads", layer->spec.heads);
    put_int_attribute(&node, "kv_num_heads", layer->spec.kv_heads);
    if (quantised) {
        put_text_attribute(&node, "k_quant_type", "PER_TENSOR");
        put_text_attribute(&node, "v_quant_type", "PER_TENSOR");
        put_int_attribute(&node, "kv_cache_bit_width", 8);
    }
    put_text(&node, 7, "com.microsoft");
    put_message(graph, 1, &node);
}

int onnx_type(enum pkv_dtype dtype)
{
    return dtype == PKV_F32 ? ONNX_FLOAT : dtype == PKV_F16 ? ONNX_FLOAT16 : ONNX_INT8;
}

static void put_opset(struct message *model, const char *domain, int64_t version)
{
    struct message opset = {.length = 0};
    put_text(&opset, 1, domain);
    put_number(&opset, 2, version);
    put_message(model, 8, &opset);
}

size_t onnx_model(const struct layer *layer, unsigned char *bytes)
{
    enum { IR_VERSION = 8, OPSET = 17 };
    struct message graph = {.length = 0}, model = {.length = 0};
    const int type = onnx_type(layer->dtype), cache = onnx_type(layer->spec.cache);
    const int types[] = {type,       type,       type,       cache,     cache,
                         ONNX_INT32, ONNX_INT32, ONNX_FLOAT, ONNX_FLOAT};
    const int inputs = ONNX_NUM_INPUTS + (layer->spec.cache == PKV_INT8 ? ONNX_NUM_SCALES : 0);
    put_node(&graph, layer);
    put_text(&graph, 2, "attention");
    for (int i = 0; i < inputs; i++) {
        put_value(&graph, 11, onnx_inputs[i], types[i]);
    }
    for (int i = 0; i < ONNX_NUM_OUTPUTS; i++) {
        put_value(&graph, 12, onnx_outputs[i], i == 0 ? type : cache);
    }
    put_number(&model, 1, IR_VERSION);
    put_message(&model, 7, &graph);
    put_opset(&model, "", OPSET);
    put_opset(&model, "com.microsoft", 1);
    memcpy(bytes, model.bytes, model.length);
    return model.length;
}
