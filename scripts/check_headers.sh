#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_headers.sh: each public header compiles alone, as C17 and as C++17, pedantically, with every
# compiler that is here. Of the non-blank lines of all of them at least 60 % are prose, that is,
# wholly comment. Every public call has a page in docs/man (scripts/man.sh --check says whether the
# pages are up to date), and every metric is in the header's table. What programs of 0.1.0 were
# compiled with means the same (scripts/check_abi.sh).
set -eu

warnings='-Wall -Wextra -Wpedantic -Wconversion -Wundef -Wshadow -Werror'
bad=0
count=0
try() {
    count=$((count + 1))
    "$@" || {
        echo "failed: $*"
        bad=1
    }
}
for compiler in gcc clang g++ clang++; do
    command -v $compiler >/dev/null || echo "skipped: headers by $compiler, not on this machine"
done
for header in include/pagedkv.h include/pagedkv/*.h; do
    for cc in gcc clang; do
        command -v $cc >/dev/null || continue
        # shellcheck disable=SC2086
        try $cc -std=c17 $warnings -Wstrict-prototypes -Iinclude -fsyntax-only -x c \
            -include "$header" /dev/null
    done
    for cxx in g++ clang++; do
        command -v $cxx >/dev/null || continue
        # shellcheck disable=SC2086
        try $cxx -std=c++17 $warnings -Iinclude -fsyntax-only -x c++ -include "$header" /dev/null
    done
done

# Prose, by header with --shares, and over all.
shares=$(awk '
    /^ *$/ { next }
    { lines[FILENAME]++; all++ }
    inside || /^ *\/\*/ {
        # A comment with code behind it is code.
        if (!inside && /\*\/ *[^ ]/) next
        prose[FILENAME]++
        all_prose++
        inside = !/\*\//
    }
    END {
        for (f in lines) printf "%s: %d %% prose\n", f, 100 * prose[f] / lines[f]
        printf "all: %d %% prose\n", 100 * all_prose / all
    }' include/pagedkv/*.h)
[ "${1:-}" != --shares ] || echo "$shares" | sort
share=$(echo "$shares" | sed -n 's/^all: \([0-9]*\) .*/\1/p')
[ "$share" -ge 60 ] || {
    echo "include/pagedkv: $share % of the lines are prose, below 60 (--shares: by header)"
    bad=1
}

calls=$(sed -n '/^PKV_API/,/;/p' include/pagedkv/*.h | grep -o '\<pkv_[a-z0-9_]*(' | tr -d '(')
num_calls=0
for call in $calls; do
    num_calls=$((num_calls + 1))
    [ -e "docs/man/$call.3" ] || {
        echo "$call: no page in docs/man; run scripts/man.sh"
        bad=1
    }
done
# The table above pkv_metrics_write has every metric.
metrics=$(sed -n 's/^ *{"\([a-z_]*\)", \(counter\|gauge\),.*/\1/p' src/runtime/metrics.c)
for name in ${metrics:-none}; do
    grep -q " \*  .*\<$name\>" include/pagedkv/metrics.h || {
        echo "include/pagedkv/metrics.h: pagedkv_$name is not in its table"
        bad=1
    }
done
scripts/check_abi.sh || bad=1
[ $bad = 0 ] && echo "headers: $count compilations, $share % prose, $num_calls calls with a page"
exit $bad
