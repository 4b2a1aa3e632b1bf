/* SPDX-License-Identifier: MIT
 *
 * gqa_layer.c: keeping a layer beyond the call that brought it. Tensors, masks and the arrays of
 * the constants stay the caller's; the structs that describe them are copied. */
#include "attn/gqa_layer.h"

void gqa_layer_copy(struct gqa_layer_copy *copy, const struct gqa_layer *layer)
{
    copy->layer = *layer;
    copy->constants = *layer->constants;
    copy->layer.constants = &copy->constants;
    if (layer->mask != NULL) {
        copy->mask = *layer->mask;
        copy->layer.mask = &copy->mask;
    }
    if (layer->copy_from != NULL) {
        copy->copy_from = *layer->copy_from;
        copy->layer.copy_from = &copy->copy_from;
    }
}
