#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_docs.sh [--static] [file...]: runs, compiles and compares what README.md and docs/*.md show,
# in a copy of the tree. The line that opens a fenced block says what is done with it:
#
#   ```console      lines behind "$ " are run in the copy's folder, one shell a document; what they
#                   print must be the lines between them, where "..." stands for any lines
#   ```sh           is run, and must succeed
#   ```c            is compiled: as a file when it has a main, else inside a function
#   ```python       is run where python3 is
#   ```text         a drawing or a formula: nothing
#   ... save=NAME   is written to NAME in the current folder; commands that follow compile it
#   ... part=FILE   is a part of that file of ours, to the letter, and not compiled again
#   ... skip=REASON is not run; the reason is printed
#
# A command in an indented block would escape, and is refused. Links and names of our files must
# lead to files. With --static only parts, links and names are checked, which needs no compiler.
# Nothing here uses the network. Prints how many blocks ran, compiled and were compared; exit status
# 1 when one differs.
set -eu
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES BUILD VARIANT
unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR LD_LIBRARY_PATH DESTDIR

static=
[ "${1:-}" != --static ] || { static=1; shift; }
[ $# -gt 0 ] || set -- README.md docs/*.md

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/blocks" "$work/home" "$work/out"
failed=0
compared=0 compiled=0 saved=0 ran=0 skipped=0

fail() {
    echo "$1" >&2
    failed=$((failed + 1))
}

# Blocks go to files 1, 2, ..; the list has a line for each: number, place, language, kind, value.
awk -v folder="$work/blocks" '
    FNR == 1 { inside = 0 }
    inside && /^```$/ { inside = 0; close(folder "/" count); next }
    inside { print >(folder "/" count); next }
    /^```/ {
        inside = 1
        printf "" >(folder "/" ++count)
        language = $1
        sub(/^```/, "", language)
        kind = "-"
        value = "-"
        if (match($0, / [a-z]+=.*$/)) {
            kind = value = substr($0, RSTART + 1)
            sub(/=.*/, "", kind)
            sub(/^[a-z]+=/, "", value)
        }
        print count, FILENAME ":" FNR, language == "" ? "none" : language, kind, value
        next
    }
    /^    +(\$ |make |cc |gcc |cd |scripts\/|build\/|bench\/|PKV_)/ {
        print "0", FILENAME ":" FNR, "indented", "-", "-"
    }' "$@" >"$work/list"

# compare_part PLACE BLOCK FILE
compare_part() {
    compared=$((compared + 1))
    [ -f "$3" ] || { fail "$1: there is no $3"; return; }
    SHOWN=$(cat "$2") awk 'BEGIN { RS = "\001" } { exit index($0, ENVIRON["SHOWN"]) == 0 }' "$3" ||
        fail "$1: the block is no part of $3"
}

# Relative links, and names such as attn/plan.h, which are meant from the top, src or tests. (What
# would be added for NEON is not there.)
check_files() { # DOCUMENT
    grep -noE '\]\([^)#: ]+' "$1" | sed 's/](//' >"$work/links" || true
    while IFS=: read -r line path; do
        [ -e "$(dirname "$1")/$path" ] || fail "$1:$line: a link to $path, which is not there"
    done <"$work/links"
    folders='base|alloc|pages|prefix|slots|tiers|attn|runtime|examples|scripts|tests|bench|src'
    folders="$folders|include"
    grep -noE "\\b($folders)/[A-Za-z0-9_/]+\.[a-z]+\\b" "$1" | grep -v neon >"$work/names" || true
    while IFS=: read -r line path; do
        [ -e "$path" ] || [ -e "src/$path" ] || [ -e "tests/$path" ] ||
            fail "$1:$line: names $path, which is not there"
    done <"$work/names"
}

# A fragment sees a cache that is open; everything else it declares itself.
compile() { # PLACE BLOCK
    compiled=$((compiled + 1))
    if grep -q 'main(' "$2"; then
        cat "$2"
    else
        printf '#include <%s>\n' pagedkv.h stdio.h stdlib.h string.h
        printf 'void fragment(pkv_cache *cache);\nvoid fragment(pkv_cache *cache)\n{\n'
        printf '(void)cache;\n'
        cat "$2"
        printf '}\n'
    fi >"$work/block.c"
    ${CC:-cc} -std=c17 -Wall -Wextra -Werror -Wno-unused -Iinclude -fsyntax-only "$work/block.c" ||
        fail "$1: does not compile"
}

# Adds the commands of a block to the document's script. Each keeps its output and its status; the
# lines that it must print lie beside them.
add_commands() { # PLACE BLOCK
    awk -v out="$work/out/" -v place="$1" -v first="$num_commands" '
        function finish() {
            if (command == "") return
            printf "{ %s\n} >%s%d.got 2>&1 </dev/null\n", command, out, n
            printf "echo $? >%s%d.status\n", out, n
            print place ": " title >(out n ".place")
            close(out n ".want")
            command = ""
        }
        BEGIN { n = first }
        continued { command = command "\n" $0; continued = /\\$/; next }
        /^\$ / {
            finish()
            n++
            command = title = substr($0, 3)
            continued = /\\$/
            printf "" >(out n ".want")
            next
        }
        { print >(out n ".want") }
        END { finish() }' "$2" >>"$work/script"
    num_commands=$((num_commands + $(grep -c '^\$ ' "$2")))
}

# A whole block whose output does not matter.
add_block() { # PLACE BLOCK COMMAND
    num_commands=$((num_commands + 1))
    cp "$2" "$work/out/$num_commands.block"
    echo "$1" >"$work/out/$num_commands.place"
    echo '...' >"$work/out/$num_commands.want"
    printf '%s %s >%s 2>&1 </dev/null; echo $? >%s\n' "$3" "$work/out/$num_commands.block" \
        "$work/out/$num_commands.got" "$work/out/$num_commands.status" >>"$work/script"
}

# "..." among the wanted lines is any number of lines.
matches() { # WANT GOT
    awk -v want_file="$1" '
        BEGIN { while ((getline line <want_file) > 0) want[++num_want] = line }
        { got[++num_got] = $0 }
        # Lines from w on of those wanted are lines from g on of those got.
        function fits(w, g) {
            while (w <= num_want && want[w] != "...") {
                if (g > num_got || got[g++] != want[w++]) return 0
            }
            if (w > num_want) return g > num_got
            while (g <= num_got + 1) if (fits(w + 1, g++)) return 1
            return 0
        }
        END { exit !fits(1, 1) }' "$2"
}

judge_command() { # NUMBER
    out=$work/out/$1
    ran=$((ran + 1))
    if [ "$(cat "$out.status" 2>/dev/null)" != 0 ]; then
        fail "$(cat "$out.place"): exit status $(cat "$out.status" 2>/dev/null || echo none)"
        tail -n 5 "$out.got" >&2 || true
    elif ! matches "$out.want" "$out.got"; then
        fail "$(cat "$out.place"): prints something else"
        diff "$out.want" "$out.got" | head -n 20 >&2 || true
    fi
}

skip_block() { # PLACE REASON
    skipped=$((skipped + 1))
    [ -n "$static" ] || echo "skipped: $1: $2"
}

take_block() { # NUMBER PLACE LANGUAGE KIND VALUE
    block=$work/blocks/$1
    case $4 in
    part) compare_part "$2" "$block" "$5"; return ;;
    skip) skip_block "$2" "$5"; return ;;
    save)
        saved=$((saved + 1))
        printf 'cp %s %s\n' "$block" "$5" >>"$work/script"
        return ;;
    -) ;;
    *) fail "$2: $4= is unknown" ;;
    esac
    [ -z "$static" ] || return 0
    case $3 in
    c) compile "$2" "$block" ;;
    console) add_commands "$2" "$block" ;;
    sh) add_block "$2" "$block" 'sh -e' ;;
    python)
        if command -v python3 >/dev/null; then
            add_block "$2" "$block" python3
        else
            skip_block "$2" 'python3 is not here'
        fi ;;
    text) ;;
    indented) fail "$2: a command in an indented block, where nobody runs it" ;;
    *) fail "$2: a block of language $3" ;;
    esac
}

# The copy has what is tracked and new, and no build.
copy_tree() {
    mkdir "$work/pagedkv"
    tar -cf - --exclude=./build --exclude=./.git . | tar -xf - -C "$work/pagedkv"
}

run_document() { # NAME
    num_commands=0
    rm -f "$work/out/"*
    printf 'cd %s || exit 1\n' "$work/pagedkv" >"$work/script"
    grep " $1:[0-9]* " "$work/list" >"$work/of_document" || return 0
    while read -r number place language kind value; do
        take_block "$number" "$place" "$language" "$kind" "$value"
    done <"$work/of_document"
    [ "$num_commands" -gt 0 ] || return 0
    [ -d "$work/pagedkv" ] || copy_tree
    HOME=$work/home sh "$work/script" || fail "$1: its shell ended early"
    for number in $(seq "$num_commands"); do
        judge_command "$number"
    done
}

for document in "$@"; do
    check_files "$document"
    run_document "$document"
done
if [ -n "$static" ]; then
    echo "docs: $compared blocks are parts of their files, links and names lead to files"
else
    echo "docs: $ran commands ran, $saved files saved for them, $compiled C blocks compiled," \
        "$compared are parts of files, $skipped skipped, $failed failed"
fi
[ "$failed" = 0 ]
