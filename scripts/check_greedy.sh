#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Greedy decoding of a real model against continuations of a float64 reference: all prompts of one
# window in one continuous batch, for every block size, form, thread count and cache dtype, with
# the prefix cache, and with a pool so small that requests are preempted. A line a configuration; a
# 16-bit cache is held to the lines whose margin is over 0.02.
#
#   scripts/check_greedy.sh [build dir]      PKV_MODELS or PKV_SHARED/models: where the model lies

set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build/release}}
story=$build/examples/story
models=
for folder in ${PKV_MODELS:+"$PKV_MODELS"} ${PKV_SHARED:+"$PKV_SHARED/models"} ../shared/models; do
    if [ -z "$models" ] && [ -r "$folder/stories260K.bin" ]; then models=$folder; fi
done
if [ -z "$models" ]; then
    echo 'skipped: no models'
    exit 0
fi
expected=$models/expected_greedy.txt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
passed=0
failed=0

# What a run must say: each expected line of this window is a prefix of the output line. Prints how
# many lines were compared, and the first difference.
compare() { # window prefix least-margin
    awk -F '|' -v window="$1" -v prefix="$2" -v least="$3" '
        FNR == NR { got[FNR] = $0; rows = FNR; next }
        /^#/ { next }
        { split($1, head, " ") }
        head[1] != window || head[2] != prefix { next }
        { line++ }
        head[3] + 0 <= least + 0 { next }
        {
            want_count = split($3, want, " ")
            split(got[line], have, " ")
            compared++
            for (i = 1; i <= want_count; i++)
                if (want[i] != have[i]) {
                    if (first == "")
                        first = "request " line - 1 ", token " i - 1 ": " \
                                (have[i] == "" ? "nothing" : have[i]) ", not " want[i]
                    different++
                    break
                }
        }
        END {
            if (rows != line) first = rows " lines of output, not " line
            printf "%d of %d lines", compared - different, compared
            if (first != "") printf " (%s)", first
            exit !(compared > 0 && first == "")
        }' "$work/out" "$expected"
}

# One configuration: prints its line and counts it. A run with "preempts" must have preempted, one
# with "hits" found prompt tokens cached, one with "both" has done both, and found what a preempted
# request left.
run() { # title window prefix least-margin any|preempts|hits|both arguments...
    title=$1 window=$2 prefix=$3 least=$4 kind=$5
    shift 5
    verdict=ok
    if "$story" --model "$models/stories260K.bin" --requests "$work/requests.$window.$prefix" \
        -n 256 --ids --window "$window" --kept-prefix "$prefix" --max-batch 16 "$@" \
        >"$work/out" 2>"$work/err"; then
        note=$(compare "$window" "$prefix" "$least") || verdict=FAILED
    else
        verdict=FAILED
        note=$(head -n 1 "$work/err")
    fi
    preempted=$(sed -n 's/.* \([0-9][0-9]*\) preemptions$/\1/p' "$work/err")
    hits=$(sed -n 's/^prefix cache: \([0-9]*\) of .*/\1/p' "$work/err")
    again=$(sed -n 's/^prefix cache: .* and \([0-9]*\) of .*/\1/p' "$work/err")
    case $kind in preempts | both)
        note="$note, ${preempted:-no} preemptions"
        [ "${preempted:-0}" -gt 0 ] || verdict=FAILED ;;
    esac
    case $kind in hits | both)
        note="$note, ${hits:-no} hits"
        [ "${hits:-0}" -gt 0 ] || verdict=FAILED ;;
    esac
    if [ "$kind" = both ]; then
        note="$note, ${again:-none} after preemption"
        [ "${again:-0}" -gt 0 ] || verdict=FAILED
    fi
    if [ "$verdict" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-6s window %2s prefix %s  %-38s %s\n' "$verdict" "$window" "$prefix" "$title" "$note"
}

# Everything for one window; $3 and $4 are pools of 16-token and 7-token blocks that are too small.
run_window() {
    grep "^$1 $2 " "$expected" | cut -d '|' -f 2 >"$work/requests.$1.$2"
    run 'without the library' "$1" "$2" 0 any --form naive
    for dtype in f32 f16 bf16; do
        least=0.02
        if [ "$dtype" = f32 ]; then least=-1; fi
        for threads in 1 2 8; do
            for block in 1 7 16 64; do
                run "paged, block $block, $threads threads, $dtype" "$1" "$2" "$least" any \
                    --block-size "$block" --threads "$threads" --dtype "$dtype"
            done
            run "continuous, $threads threads, $dtype" "$1" "$2" "$least" any \
                --form continuous --threads "$threads" --dtype "$dtype"
        done
    done
    run "paged, block 16, $3 blocks in all" "$1" "$2" -1 preempts --block-size 16 --num-blocks "$3"
    run "paged, block 7, $4 blocks in all" "$1" "$2" -1 preempts --block-size 7 --num-blocks "$4"
    for block in 1 7 16; do
        run "prefix cache, block $block" "$1" "$2" -1 hits --prefix-cache --block-size "$block"
    done
    run 'prefix cache, block 64' "$1" "$2" -1 any --prefix-cache --block-size 64
    run 'prefix cache, 3 at a time, chunk 5' "$1" "$2" -1 hits --prefix-cache --max-batch 3 \
        --chunk 5
    run 'prefix cache, bf16, 8 threads' "$1" "$2" 0.02 hits --prefix-cache --dtype bf16 \
        --threads 8 --block-size 16
    run "prefix cache, block 16, $3 in all" "$1" "$2" -1 both --prefix-cache --block-size 16 \
        --num-blocks "$3"
    run "prefix cache, block 7, $4 in all" "$1" "$2" -1 both --prefix-cache --block-size 7 \
        --num-blocks "$4"
    run 'paged, chunk 1' "$1" "$2" -1 any --chunk 1
    run 'paged, 3 at a time' "$1" "$2" -1 any --max-batch 3
}

# Text in: the encoder must give the ids that the continuation is known for.
run_text() { # ids text
    ids=$("$story" --model "$models/stories260K.bin" --tokens "$1" -n 48 --ids 2>"$work/err")
    text=$("$story" --model "$models/stories260K.bin" --tokenizer "$models/tok512.bin" \
        --prompt "$2" -n 48 --ids 2>"$work/err")
    if [ -n "$ids" ] && [ "$ids" = "$text" ]; then
        verdict=ok passed=$((passed + 1))
    else
        verdict=FAILED failed=$((failed + 1))
    fi
    printf '%-6s text "%s"\n' "$verdict" "$2"
}

run_text '1' ''
run_text '1 403 407 261 378' 'Once upon a time'
run_text '1 291 280 294 262 294 353' 'The cat sat on'
run_text '1 274 287 269 301 425 411 263 377 267 265' 'Tom and Sue went to the'
run_window 0 0 40 80
run_window 24 4 12 20
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
