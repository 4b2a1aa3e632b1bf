/* SPDX-License-Identifier: MIT
 *
 * report.h: a program's one way of saying no, its clock, and files read whole. A function that can
 * fail returns bool and has complained when it returns false; main turns that into exit 1. */
#ifndef SUPPORT_REPORT_H
#define SUPPORT_REPORT_H

#include "pagedkv/base.h"

/* Each program defines it. */
extern const char program_name[];

/* Prints "program_name: ..." and a newline on stderr. Always false, so that a refusal is one line:
 * return complain(...). */
bool complain(const char *format, ...) PKV_PRINTF(1, 2);

/* Wall clock in seconds, for differences only. */
double now_seconds(void);

/* A whole number in [low, high] that fills the text; complains, naming `what`, otherwise. */
bool parse_number(const char *what, const char *text, int32_t low, int32_t high, int32_t *number);

/* The file's bytes with a 0 after the last, to be freed by the caller. More than `limit` bytes are
 * refused, so that a device or a wrong path cannot fill the memory. */
bool read_file(const char *path, size_t limit, unsigned char **bytes, size_t *num_bytes);

/* One little-endian word. */
uint32_t load_u32(const unsigned char *bytes);
int32_t load_i32(const unsigned char *bytes);
float load_f32(const unsigned char *bytes);

#endif
