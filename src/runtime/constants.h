/* SPDX-License-Identifier: MIT
 *
 * constants.h: a cache's own copy of what the constants of its layers point to. */
#ifndef PKV_RUNTIME_CONSTANTS_H
#define PKV_RUNTIME_CONSTANTS_H

#include "base/carve.h"
#include "pagedkv/cache.h"

/* Copies the constants of layer i of a checked config into copies[i], their arrays into memory from
 * the carver. copies NULL: counts. Layers before i were copied. Cos/sin tables, the only large
 * arrays, are copied once for all layers that name the same. */
void constants_copy(const struct pkv_cache_config *config, int32_t i, struct carver *carver,
                    struct pkv_layer_config *copies);

/* Positions that every layer with rope has a row for; INT64_MAX without such a layer. */
int64_t constants_rope_positions(const struct pkv_cache_config *config);

#endif
