#!/usr/bin/python3
# SPDX-License-Identifier: MIT
#
# Writes unicode_ranges.h: the ranges of letters (\p{L}) and numbers (\p{N}) of the Unicode
# version that this Python has.
#
#   /usr/bin/python3 examples/server/unicode_ranges.py >examples/server/unicode_ranges.h
import sys
import unicodedata


def ranges(major):
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != major:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, major):
    print(f"static const struct unicode_range {name}[] = {{")
    line = "   "
    for low, high in ranges(major):
        item = f" {{0x{low:x}, 0x{high:x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


print(f"""/* SPDX-License-Identifier: MIT
 *
 * unicode_ranges.h: letters and numbers of Unicode {unicodedata.unidata_version}, in order. Written by
 * unicode_ranges.py; included by unicode_kind.c alone. */
#ifndef SERVER_UNICODE_RANGES_H
#define SERVER_UNICODE_RANGES_H

#include <stdint.h>

struct unicode_range {{
    uint32_t low, high;
}};

/* clang-format off */""")
table("unicode_letters", "L")
print()
table("unicode_numbers", "N")
print("/* clang-format on */\n\n#endif")
