/* SPDX-License-Identifier: MIT
 *
 * bandwidth.h: the limit that decode attention runs into. */
#ifndef SERVER_BANDWIDTH_H
#define SERVER_BANDWIDTH_H

/* Bytes that the processors can read from memory in a second, all of them at once: the best of a
 * few passes over arrays that no cache holds. Takes about a tenth of a second; 0 when memory is
 * short. */
double bandwidth_measure(void);

#endif
