#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_headers.sh: each public header compiles alone, as C17 and as C++17, pedantically, with every
# compiler that is here.
set -eu

# No -Wshadow for C++: a struct and a function of one name (pkv_step_view) are fine in both.
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wundef -Werror'
bad=0
count=0
try() {
    count=$((count + 1))
    "$@" || {
        echo "failed: $*"
        bad=1
    }
}
for header in include/pagedkv.h include/pagedkv/*.h; do
    for cc in gcc clang; do
        command -v $cc >/dev/null || continue
        # shellcheck disable=SC2086
        try $cc -std=c17 $warnings -Wshadow -Wstrict-prototypes -Iinclude -fsyntax-only -x c \
            -include "$header" /dev/null
    done
    for cxx in g++ clang++; do
        command -v $cxx >/dev/null || continue
        # shellcheck disable=SC2086
        try $cxx -std=c++17 $warnings -Iinclude -fsyntax-only -x c++ -include "$header" /dev/null
    done
done
[ $bad = 0 ] && echo "headers: $count compilations"
exit $bad
