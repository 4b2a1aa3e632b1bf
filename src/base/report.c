/* SPDX-License-Identifier: MIT
 *
 * One line an invariant that is broken, through the log hook. Nothing is formatted for those that
 * hold, so a checker may expect something of every block. */
#include "base/report.h"

#include <stdarg.h>
#include <stdio.h>

bool report_broken(struct report *report, const char *format, ...)
{
    char text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    report->num_broken++;
    hooks_log(report->hooks, PKV_LOG_ERROR, "%s: %s", report->subject, text);
    return false;
}
