/* SPDX-License-Identifier: MIT
 *
 * widen.h: numbers of 16 bits as floats. Exact, so every machine has the same bits. */
#ifndef SUPPORT_WIDEN_H
#define SUPPORT_WIDEN_H

#include <stdint.h>

void widen_f16(const uint16_t *in, int32_t count, float *out);
void widen_bf16(const uint16_t *in, int32_t count, float *out);

#endif
