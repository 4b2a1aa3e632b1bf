/* SPDX-License-Identifier: MIT
 *
 * error.c: the text of the last refusal, the one mutable variable of the library: each thread has
 * its own. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static PKV_THREAD_LOCAL char last_error[256];

enum pkv_status refuse(enum pkv_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

const char *pkv_last_error(void)
{
    return last_error;
}
