#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_symbols.sh SHARED STATIC OBJECTS: what the compiled library shows and needs; OBJECTS is an
# archive of the objects that both are made of.
#
#   - it exports pkv_* alone, exactly what the public headers declare, each with a version; the
#     static library has no other global name either
#   - it does not need jemalloc, prints nothing, never exits, and reads no environment
#   - it has no variable that can change, thread-local ones aside
#   - no object but the kernels of an instruction set holds wide vector instructions
set -eu

for tool in nm readelf objdump; do
    command -v $tool >/dev/null || {
        echo "skipped: symbols, no $tool on this machine"
        exit 0
    }
done
shared=$1
static=$2
objects=$3
bad=0
report() {
    [ -z "$2" ] || {
        printf '%s: %s\n' "$1" "$(echo "$2" | tr '\n' ' ')"
        bad=1
    }
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The version's own symbol is absolute.
nm -D --defined-only "$shared" | awk '$2 != "A" { print $NF }' >"$work/versioned"
report 'without a version' "$(grep -v '@@PAGEDKV_' "$work/versioned" || true)"
sed 's/@@.*//' "$work/versioned" | sort >"$work/exported"
grep -hv '^#define' include/pagedkv/*.h | tr '\n' ' ' | grep -o 'PKV_API [^;(]*(' |
    sed -n 's/.*[ *]\(pkv_[a-z0-9_]*\)($/\1/p' | sort >"$work/declared"
report 'exported, in no public header' "$(comm -23 "$work/exported" "$work/declared")"
report 'declared, not exported' "$(comm -13 "$work/exported" "$work/declared")"

nm -g --defined-only "$static" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort >"$work/static"
report 'global in the static library, not public' "$(comm -23 "$work/static" "$work/declared")"
report 'missing from the static library' "$(comm -13 "$work/static" "$work/declared")"

report 'needs jemalloc' "$(readelf -d "$shared" | grep NEEDED | grep jemalloc || true)"
report 'calls' "$(nm -u "$objects" 2>/dev/null | awk '{ print $NF }' | sort -u |
    grep -xE 'v?f?printf|puts|putchar|fputs|perror|stderr|stdout|_?exit|abort|(secure_)?getenv' ||
    true)"
report 'mutable globals' "$(objdump -t "$objects" |
    awk '/ \.(data|bss)[^\t]*\t/ && !/rel\.ro/ && !/\t0+ / { print $NF }')"
report 'wide vectors outside their kernels' "$(objdump -d "$objects" |
    awk '/file format/ { object = $1; sub(/:$/, "", object) }
         object ~ /^kernels_/ && object != "kernels_scalar.o" { next }
         /%[yz]mm/ { print object }' | sort -u)"

[ $bad = 0 ] && echo "symbols: $(wc -l <"$work/exported") exported, all declared"
exit $bad
