#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_includes.sh [--circles | --table]: who may include whom, and that files of a module do so in
# one direction only. Prints every line that breaks the table below and every circle, and exits 1.
# --circles lists the circles alone, --table prints the table as docs/design.md has it.
#
# Beside the table: kernels (kernels_*, vec_*) -> kernels*.h, vec_*.h, cpu.h, intrinsics, a few C
# headers; one file a package: jemalloc in alloc/mem.c, xxHash in base/hash.c, OpenMP in
# attn/openmp.c, hiredis in tiers/redis_connection.c; no .c is included.
set -eu

# A module and what it may include: modules, or a single header. Its own files are understood, and
# so are the public headers of each (below).
table='base
alloc base
pages alloc base
prefix pages alloc base
slots alloc base
tiers pages alloc base
attn base alloc/block_table.h
runtime tiers attn slots prefix pages alloc base'

# A module and its public headers; all others are runtime's.
public='base pagedkv/base.h
alloc pagedkv/alloc.h
pages pagedkv/pages.h
slots pagedkv/slots.h
tiers pagedkv/tier.h
attn pagedkv/attn.h pagedkv/contract.h pagedkv/select.h'

# list_of NAME LINES: the words behind NAME in its line
list_of() {
    echo "$2" | awk -v name="$1" '$1 == name { $1 = ""; print }'
}

# The table in Markdown, and why it has what is no module.
print_table() {
    echo "$table" | awk '
        BEGIN { print "| module | may include |\n|---|---|" }
        {
            module = $1
            others = NF == 1 ? "nothing of ours" : $2
            for (i = 3; i <= NF; i++) others = others ", " $i
            sub(/alloc.block_table.h/, "`&`: tables are checked in one place for all callers",
                others)
            print "| " module " | " others " |"
        }
        END {
            print "| kernels_*, vec_*.h | `kernels*.h`, `vec_*.h`, `cpu.h`, intrinsics: " \
                "pointers, counts and strides in, floats out |"
        }'
}

bad=0
say() {
    echo "$1"
    bad=1
}

# includes_of FILE: the names between quotes or brackets, one a line
includes_of() {
    sed -n 's/^ *# *include *[<"]\([^>"]*\)[>"].*/\1/p' "$1"
}

# may_include MODULE HEADER
may_include() {
    case $1:$2 in
    runtime:pagedkv/*) return 0 ;;
    esac
    for other in "$1" $(list_of "$1" "$table"); do
        case " $other $(list_of "$other" "$public") " in
        *" $2 "*) return 0 ;;
        esac
        case $2 in
        "$other"/*) return 0 ;;
        esac
    done
    return 1
}

is_project_header() {
    case $1 in
    pagedkv.h | pagedkv/* | base/* | alloc/* | pages/* | prefix/* | slots/* | attn/* | \
        tiers/* | runtime/* | *.c)
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

case ${1:-} in
--circles) list_circles && exit 0 ;;
--table) print_table && exit 0 ;;
esac

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
        hiredis*) [ "$file" = src/tiers/redis_connection.c ] ||
            say "$file: only tiers/redis_connection.c uses hiredis" ;;
        xxh*) [ "$file" = src/base/hash.c ] ||
            say "$file: only base/hash.c uses xxHash" ;;
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

stated=$(sed -n '/^| module | may include |$/,/^$/p' docs/design.md | sed '/^$/d')
[ "$stated" = "$(print_table)" ] ||
    say 'docs/design.md: its table is not that of scripts/check_includes.sh --table'

# Public headers: base.h stands on the C library, every other on base.h, and the managed ones on
# each other: metrics -> prefix -> cache -> attn, tier; step -> cache, attn, pages; save, swap,
# offload -> cache; contract, select -> attn.
for file in include/pagedkv/*.h; do
    for header in $(includes_of "$file"); do
        case ${file##*/}:$header in
        base.h:pagedkv/*) say "$file: includes $header" ;;
        *:std*.h | *:pagedkv/base.h) ;;
        contract.h:pagedkv/attn.h | select.h:pagedkv/attn.h) ;;
        cache.h:pagedkv/attn.h | cache.h:pagedkv/tier.h) ;;
        swap.h:pagedkv/cache.h | offload.h:pagedkv/cache.h) ;;
        step.h:pagedkv/cache.h | step.h:pagedkv/attn.h | step.h:pagedkv/pages.h) ;;
        prefix.h:pagedkv/cache.h | metrics.h:pagedkv/cache.h | metrics.h:pagedkv/prefix.h) ;;
        save.h:pagedkv/cache.h) ;;
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
