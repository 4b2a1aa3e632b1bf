/* SPDX-License-Identifier: MIT
 *
 * spoil.h: functions that spoil one thing of a sound call, for tables of refusals. A file defines
 * SPOILED, their parameter, and then one function a line:
 *
 *   SPOIL(width_zero, c->args.k_width = 0) */
#ifndef PKV_TEST_SPOIL_H
#define PKV_TEST_SPOIL_H

#define SPOIL(name, statement)                                                                     \
    static void name(SPOILED)                                                                      \
    {                                                                                              \
        statement;                                                                                 \
    }

#endif
