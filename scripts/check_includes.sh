#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_includes.sh: who may include whom, and that files of a module do so in one direction only.
# Prints every line that breaks the table and every circle, and exits 1; --circles lists the circles
# alone.
#
#   runtime -> attn, slots, prefix, pages, alloc, base      prefix -> pages, alloc, base
#   slots, pages -> alloc, base      alloc -> base
#   attn    -> base, and of alloc block_table.h alone
#   kernels (kernels_*, vec_*) -> kernels*.h, vec_*.h, cpu.h, intrinsics, a few C headers
#   one file a package: jemalloc in alloc/mem.c, xxHash in prefix/prefix_hash.c, OpenMP in
#   attn/openmp.c; no .c is included
set -eu

bad=0
say() {
    echo "$1"
    bad=1
}

# includes_of FILE: the names between quotes or brackets, one a line
includes_of() {
    sed -n 's/^ *# *include *[<"]\([^>"]*\)[>"].*/\1/p' "$1"
}

# The project header $2, as it may be seen from module $1.
may_include() {
    case "$1:$2" in
    "$1:$1"/*) return 0 ;;
    *:pagedkv/base.h | *:base/*) return 0 ;;
    attn:pagedkv/attn.h | attn:pagedkv/contract.h | attn:alloc/block_table.h) return 0 ;;
    alloc:pagedkv/alloc.h) return 0 ;;
    pages:pagedkv/pages.h | pages:pagedkv/alloc.h | pages:alloc/*) return 0 ;;
    prefix:pages/* | prefix:alloc/* | prefix:pagedkv/pages.h | prefix:pagedkv/alloc.h) return 0 ;;
    slots:pagedkv/slots.h | slots:pagedkv/alloc.h | slots:alloc/*) return 0 ;;
    runtime:pagedkv/* | runtime:attn/* | runtime:slots/* | runtime:prefix/* | \
        runtime:pages/* | runtime:alloc/*)
        return 0 ;;
    esac
    return 1
}

is_project_header() {
    case $1 in
    pagedkv.h | pagedkv/* | base/* | alloc/* | pages/* | prefix/* | slots/* | attn/* | runtime/* | \
        *.c)
        return 0 ;;
    esac
    return 1
}

kernel_may_include() {
    case $1 in
    attn/cpu.h | attn/kernels.h | attn/kernels_*.h | attn/vec_*.h) return 0 ;;
    immintrin.h | arm_neon.h | math.h | stddef.h | stdint.h | stdbool.h | string.h) return 0 ;;
    esac
    return 1
}

# Circles among the files of a module. foo.c and foo.h are one node; a node that reaches itself by
# includes within its module is in a circle with every node that it reaches and that reaches it.
list_circles() {
    grep -HE '^ *# *include *"' src/*/*.[ch] | awk -F '[:"]' '
        function node_of(path) { sub(/\.[ch]$/, "", path); return path }
        {
            from = node_of(substr($1, 5))
            to = node_of($3)
            split(from, at, "/")
            if (from == to || index(to, at[1] "/") != 1) next
            reaches[from, to] = 1
            lines[from, to] = lines[from, to] "    " $1 " includes " $3 "\n"
            if (!(from in seen)) { seen[from]; nodes[++num_nodes] = from }
        }
        END {
            # A node without an include in its module is in no circle: nodes holds all that matter.
            for (k = 1; k <= num_nodes; k++)
                for (i = 1; i <= num_nodes; i++)
                    for (j = 1; (nodes[i], nodes[k]) in reaches && j <= num_nodes; j++)
                        if ((nodes[k], nodes[j]) in reaches) reaches[nodes[i], nodes[j]] = 1
            for (i = 1; i <= num_nodes; i++) {
                if (!((nodes[i], nodes[i]) in reaches) || nodes[i] in told) continue
                circles++
                text = ""
                edges = ""
                for (j = 1; j <= num_nodes; j++) {
                    if (!together(nodes[i], nodes[j])) continue
                    told[nodes[j]]
                    files++
                    text = text " " nodes[j]
                    for (k = 1; k <= num_nodes; k++)
                        if (together(nodes[i], nodes[k]) && (nodes[j], nodes[k]) in lines)
                            edges = edges lines[nodes[j], nodes[k]]
                }
                printf "circle:%s\n%s", text, edges
            }
            printf "circles: %d, of %d files\n", circles, files
        }
        function together(a, b) { return (a, b) in reaches && (b, a) in reaches }'
}

if [ "${1:-}" = --circles ]; then
    list_circles
    exit 0
fi

for file in src/*/*.[ch]; do
    module=${file#src/}
    module=${module%%/*}
    name=${file##*/}
    for header in $(includes_of "$file"); do
        case $header in
        *.c) say "$file: includes $header" ;;
        esac
        case $name in
        kernels_*.[ch] | vec_*.h)
            kernel_may_include "$header" || say "$file: a kernel may not include $header" ;;
        *)
            ! is_project_header "$header" || may_include "$module" "$header" ||
                say "$file: $module may not include $header" ;;
        esac
        case $header in
        jemalloc*) [ "$file" = src/alloc/mem.c ] || say "$file: only alloc/mem.c uses jemalloc" ;;
        xxh*) [ "$file" = src/prefix/prefix_hash.c ] ||
            say "$file: only prefix/prefix_hash.c uses xxHash" ;;
        omp.h)
            case $file in
            src/attn/openmp.c) ;;
            *) say "$file: only attn/openmp.c uses OpenMP" ;;
            esac ;;
        esac
    done
    own=$module/${name%.c}.h
    case $name in
    *.c)
        [ ! -e "src/$own" ] || [ "$(includes_of "$file" | head -n 1)" = "$own" ] ||
            say "$file: the first include is its own header $own" ;;
    esac
done

pragmas=$(grep -ln '# *pragma omp' src/*/*.[ch] | grep -v '^src/attn/openmp\.c$' || true)
[ -z "$pragmas" ] || say "#pragma omp outside attn/openmp.c: $pragmas"
users=$(grep -lwE 'mallocx|sdallocx|mallctl' src/*/*.c | grep -v '^src/alloc/mem.c$' || true)
[ -z "$users" ] || say "jemalloc outside alloc/mem.c: $users"

# Public headers: base.h stands on the C library, every other on base.h, and the managed ones on
# each other: metrics -> prefix -> cache -> attn, step -> cache, attn, pages, contract -> attn.
for file in include/pagedkv/*.h; do
    for header in $(includes_of "$file"); do
        case ${file##*/}:$header in
        base.h:pagedkv/*) say "$file: includes $header" ;;
        *:std*.h | *:pagedkv/base.h) ;;
        contract.h:pagedkv/attn.h | cache.h:pagedkv/attn.h) ;;
        step.h:pagedkv/cache.h | step.h:pagedkv/attn.h | step.h:pagedkv/pages.h) ;;
        prefix.h:pagedkv/cache.h | metrics.h:pagedkv/cache.h | metrics.h:pagedkv/prefix.h) ;;
        *) say "$file: includes $header" ;;
        esac
    done
done
circles=$(list_circles)
case $circles in
"circles: 0,"*) ;;
*) say "$circles" ;;
esac
[ $bad = 0 ] && echo "includes: the table holds, no circles"
exit $bad
