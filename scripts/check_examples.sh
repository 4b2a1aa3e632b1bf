#!/bin/sh
# SPDX-License-Identifier: MIT
#
# All examples but story (check_story.sh), server (check_server.sh) and context_parallel
# (check_mpi.sh). decode, hybrid, nhd_pages, router and server_loop compare their own answers, the
# last for pools from the smallest on. speculative compares its own results and says
# how many drafts were accepted, so most cases are a run of it and what it must say; pagemap checks
# its counts at each frame, and its frames must fit a terminal; so must those of the demo, which
# says whether three ways to decode agree, and whose logits numpy computes anew where it is there.
# Bad arguments must be refused by one line on stderr, with nothing on stdout and exit status 1.
# Models may be absent.
#
#   scripts/check_examples.sh [build dir]      PKV_MODELS or PKV_SHARED/models: where the model lies

set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build/release}}
speculative=$build/examples/speculative
pagemap=$build/examples/pagemap
demo=$build/examples/demo
models=
for folder in ${PKV_MODELS:+"$PKV_MODELS"} ${PKV_SHARED:+"$PKV_SHARED/models"} ../shared/models; do
    if [ -z "$models" ] && [ -r "$folder/stories260K.bin" ]; then models=$folder; fi
done
work=$(mktemp -d) || exit 1
redis=
trap 'if [ -n "$redis" ]; then kill "$redis"; fi; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
passed=0
failed=0

# verdict ok|FAILED TITLE NOTE; judge takes the exit status of what was compared instead.
verdict() {
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-6s %s%s\n' "$1" "$2" "${3:+ ($3)}"
}

judge() {
    if [ "$1" -eq 0 ]; then verdict ok "$2" "$3"; else verdict FAILED "$2" "$3"; fi
}

# refused TITLE MESSAGE-PART program argument...
refused() {
    title=$1 message=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    status=$?
    if [ "$status" -ne 1 ]; then
        verdict FAILED "$title" "exit status $status"
    elif [ -s "$work/out" ]; then
        verdict FAILED "$title" 'something on stdout'
    elif [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qF -- "$message" "$work/err"; then
        verdict FAILED "$title" "said: $(head -n 3 "$work/err")"
    else
        verdict ok "$title"
    fi
}

# refused_numbers program name...: each with values that are no numbers, or too large.
refused_numbers() {
    program=$1
    shift
    for name in "$@"; do
        option="${program##*/} $name"
        refused "$option without a number" "$name" "$program" "$name"
        refused "$option x" 'is not a whole number' "$program" "$name" x
        refused "$option 1.5" 'is not a whole number' "$program" "$name" 1.5
        refused "$option -1" 'is outside' "$program" "$name" -1
        refused "$option 10^30" 'is outside' "$program" "$name" 1000000000000000000000000000000
    done
}

# --- decode, nhd_pages, router and server_loop

check_small() {
    "$build/examples/decode" >"$work/out" 2>&1
    judge $? 'decode' "$(tail -n 1 "$work/out")"
    "$build/examples/nhd_pages" >"$work/out" 2>&1
    judge $? 'nhd_pages' "$(tail -n 1 "$work/out")"
    for seed in 1 2 3 4 5; do
        "$build/examples/router" "$seed" >"$work/out" 2>&1
        judge $? "router, seed $seed" "$(tail -n 1 "$work/out")"
    done
    refused 'router, a seed that is none' 'is not a whole number' "$build/examples/router" x
    for blocks in 4 5 6 7 8 9 12 16; do
        "$build/examples/server_loop" "$blocks" >"$work/out" 2>&1
        judge $? "server_loop, $blocks blocks" \
            "$(grep -c waits "$work/out") waits, $(grep -c preempted "$work/out") preemptions"
    done
    refused 'a pool that is too small for a request' PKV_NEVER_FITS "$build/examples/server_loop" 1
}

# --- hybrid: compares tokens and states with computations of whole texts

check_hybrid() {
    hybrid=$build/examples/hybrid
    for seed in 1 2; do
        "$hybrid" --seed "$seed" >"$work/out" 2>&1
        judge $? "hybrid, 300 requests, seed $seed" "$(tail -n 1 "$work/out")"
    done
    refused_numbers "$hybrid" --requests --seed --round
    refused 'hybrid --requests 0' 'is outside' "$hybrid" --requests 0
    refused 'hybrid, an unknown argument' 'unknown argument what' "$hybrid" what 1
}

# --- sizing: what it prints is compared by check_docs.sh

check_sizing() {
    sizing=$build/examples/sizing
    refused_numbers "$sizing" --layers --heads --kv-heads --k-width --v-width --latent --window \
        --window-layers --memory --seq-len --block-size --step-tokens
    refused 'sizing without a model' 'needs --model' "$sizing"
    refused 'sizing, an unknown model' 'no model x' "$sizing" --model x
    refused 'sizing, an unknown dtype' 'no dtype x' "$sizing" --model llama-3-8b --dtype x
    refused 'sizing, more window layers than layers' 'more than there are' "$sizing" \
        --model llama-3-8b --window 1 --window-layers 33
    refused 'sizing, heads that are no multiple' 'num_heads' "$sizing" --model llama-3-8b --heads 9
    refused 'sizing, an unknown argument' 'unknown argument what' "$sizing" what 1
}

# --- speculative

# speculates TITLE all|some|any argument...: how many drafts must be accepted. "some" is at least
# one of them and not all, and then the target must have taken fewer steps than plainly.
speculates() {
    title=$1 kind=$2
    shift 2
    if ! "$speculative" --threads 1 "$@" >"$work/out" 2>"$work/err"; then
        verdict FAILED "$title" "said: $(head -n 1 "$work/err")"
        return
    fi
    cat "$work/out" "$work/err" >"$work/said"
    accepted=$(sed -n 's/^accepted \([0-9]*\) of .*/\1/p' "$work/said")
    drafted=$(sed -n 's/^accepted [0-9]* of \([0-9]*\) .*/\1/p' "$work/said")
    steps=$(sed -n 's/^steps of the target: \([0-9]*\),.*/\1/p' "$work/said")
    plain=$(sed -n 's/^steps of the target: [0-9]*, plainly \([0-9]*\);.*/\1/p' "$work/said")
    note="${accepted:=-1} of ${drafted:=-2} drafts, ${steps:=0} steps for ${plain:=0}"
    case $kind in
    all) [ "$accepted" -eq "$drafted" ] && [ "$accepted" -gt 0 ] && [ "$steps" -lt "$plain" ] ;;
    some) [ "$accepted" -gt 0 ] && [ "$accepted" -lt "$drafted" ] && [ "$steps" -lt "$plain" ] ;;
    any) [ "$accepted" -ge 0 ] ;;
    esac
    judge $? "$title" "$note"
}

check_speculative() {
    speculates 'a draft of fewer layers' some
    speculates 'a draft with changed weights' some --draft-layers 6 --draft-noise 10
    speculates 'a draft that is the target' all --draft-layers 6
    speculates 'a draft that knows nothing' any --draft-layers 1 --draft-noise 1000
    for k in 1 2 7 64; do
        speculates "$k drafts a round" some -k "$k"
    done
    for block in 1 3 64; do
        speculates "blocks of $block" some --block-size "$block"
    done
    for window in 1 2 9 40; do
        speculates "window $window" any --window "$window" --block-size 4 -k 6
        speculates "window $window, kept prefix 3" any --window "$window" --kept-prefix 3 \
            --block-size 4 -k 6
    done
    for n in 1 2 5 600; do
        speculates "$n new tokens" any -n "$n" -k 5
    done
    refused_numbers "$speculative" -n -k --draft-layers --draft-noise --window --kept-prefix \
        --block-size --threads
    for name in -n -k --block-size; do
        refused "speculative $name 0" 'is outside' "$speculative" "$name" 0
    done
    refused 'more drafts than there is room for' 'is outside [1, 64]' "$speculative" -k 65
    refused 'more layers than there are' 'the model has 6' "$speculative" --draft-layers 7
    refused 'speculative, an unknown argument' 'unknown argument --what' "$speculative" --what 1
    refused 'speculative, prompts without a model' 'need --model' "$speculative" --tokens 1
    refused 'speculative, ids without a model' 'need --model' "$speculative" --ids
    refused 'speculative, a model that is missing' 'No such file' "$speculative" \
        --model "$work/missing"
}

# The real model: also the very tokens that are known for its prompts.
check_real() { # window kept-prefix
    grep "^$1 $2 " "$models/expected_greedy.txt" >"$work/lines"
    cut -d '|' -f 2 "$work/lines" >"$work/requests"
    for draft in '--draft-layers 4' '--draft-layers 5 --draft-noise 10'; do
        # shellcheck disable=SC2086
        speculates "stories260K, window $1, $draft" some --model "$models/stories260K.bin" \
            --requests "$work/requests" --ids -n 256 --window "$1" --kept-prefix "$2" $draft
        different=$(awk -F '|' '
            FNR == NR { got[FNR] = $0 " "; next }
            { sub(/^ */, "", $3); sub(/ *$/, " ", $3) }
            index(got[FNR], $3) != 1 { count++ }
            END { print count + 0 }' "$work/out" "$work/lines")
        if [ "$different" -eq 0 ]; then
            verdict ok "its $(wc -l <"$work/lines") known continuations"
        else
            verdict FAILED 'its known continuations' "$different differ"
        fi
    done
}

# --- pagemap

# shows TITLE FRAMES argument...: that many frames, none over 24 lines or 80 columns.
shows() {
    title=$1 frames=$2
    shift 2
    if ! "$pagemap" --plain --frames "$frames" "$@" >"$work/out" 2>"$work/err"; then
        verdict FAILED "$title" "said: $(head -n 1 "$work/err")"
        return
    fi
    note=$(awk -v frames="$frames" '
        /^frame / { seen++; lines = 0 }
        { lines++ }
        lines > 24 || length($0) > 80 || /\033/ { bad++ }
        END {
            printf "%d frames", seen
            if (bad) printf ", %d bad lines", bad
            exit !(seen == frames && bad == 0)
        }' "$work/out")
    judge $? "$title" "$note"
}

# said TITLE PATTERN: of the last run.
said() {
    if grep -q -- "$2" "$work/out"; then verdict ok "$1"; else verdict FAILED "$1"; fi
}

check_pagemap() {
    shows 'one frame' 1
    shows 'sixty frames' 60
    said 'pinned blocks are seen' 'P pinned [1-9]'
    said 'shared blocks are seen' '+ shared [1-9]'
    said 'cached blocks are seen' 'o cached [1-9]'
    said 'prompts hit' '^hit rate [1-9]'
    shows 'the largest pool' 10 --num-blocks 1024 --block-size 1
    shows 'a pool with few blocks' 60 --num-blocks 40
    said 'blocks are evicted' 'evicted [1-9]'
    said 'requests are preempted' 'preemptions [1-9]'
    shows 'a pool with no room for pins' 10 --num-blocks 2 --block-size 512
    shows 'one request at a time' 20 --max-batch 1 --every 7
    if "$pagemap" --frames 2 | grep -q "$(printf '\033')"; then
        verdict FAILED 'no colours into a pipe'
    else
        verdict ok 'no colours into a pipe'
    fi
    refused_numbers "$pagemap" --frames --every --delay --num-blocks --block-size --max-batch \
        --threads
    for name in --frames --every --num-blocks --block-size --max-batch; do
        refused "pagemap $name 0" 'is outside' "$pagemap" "$name" 0
    done
    refused 'a pool that is too small' 'the pool has 2' "$pagemap" --num-blocks 2
    refused 'pagemap, an unknown argument' 'unknown argument what' "$pagemap" what 1
}

# --- demo

# agrees TITLE argument...: exit status 0, and the last line says that three ways agree.
agrees() {
    title=$1
    shift
    "$demo" "$@" >"$work/out" 2>"$work/err"
    status=$?
    note=$(tail -n 1 "$work/out" "$work/err" | grep -v '^==>')
    [ "$status" -eq 0 ] && tail -n 1 "$work/out" | grep -q '^paged = continuous = naive: '
    judge $? "$title" "$(echo "$note" | head -n 1)"
}

# Frames on a terminal: at most 24 lines of 80 columns between two moves of the cursor.
check_frames() {
    if ! script -qec true "$work/typescript" >/dev/null 2>&1 </dev/null; then
        echo 'skipped: frames of the demo, script(1) has no terminal to give'
        return
    fi
    script -qec "$demo --delay 0" "$work/typescript" >"$work/out" 2>"$work/err" </dev/null
    tr -d '\r' <"$work/typescript" | awk '
        /\033\[H/ { if (lines > 24) bad++; frames++; lines = 0 }
        /^$/ && frames { exit }
        { gsub(/\033\[[0-9;]*[A-Za-z]/, ""); lines++; if (length($0) > 80 && frames) bad++ }
        END {
            printf "%d frames", frames
            if (bad) printf ", %d do not fit", bad
            exit !(frames > 50 && bad == 0)
        }' >"$work/note"
    judge $? 'frames of the demo fit a terminal' "$(cat "$work/note")"
}

check_demo() {
    agrees 'the demo, without a terminal'
    said 'its requests share blocks' '+ shared [1-9]'
    said 'its prompts hit' '[1-9][0-9]* of [0-9]* prompt tokens were hits'
    said 'it has a map for each kind of layers' '^blocks of the layers with a window of 64 tokens'
    if grep -q "$(printf '\033')" "$work/out"; then
        verdict FAILED 'no cursor movement in a pipe'
    else
        verdict ok 'no cursor movement in a pipe'
    fi
    agrees 'the demo, blocks of 7, one thread' --block-size 7 --threads 1
    agrees 'the demo, blocks of 64, 8 threads' --block-size 64 --threads 8
    check_frames
    /usr/bin/python3 examples/train/check.py "$demo" examples/train/stories.pkvm \
        >"$work/out" 2>"$work/err"
    case $? in
    0) verdict ok "its logits against numpy's" "$(cat "$work/out")" ;;
    77 | 127) echo 'skipped: logits of the demo against numpy, no python3-numpy' ;;
    *) verdict FAILED "its logits against numpy's" "$(cat "$work/out" "$work/err" | tail -n 1)" ;;
    esac
    refused_numbers "$demo" --delay --block-size --threads
    refused 'demo, an unknown argument' 'unknown argument what' "$demo" what 1
}

# --- disaggregated: it compares tokens and hits, whenever prefill is killed

# A server on a free port of this machine, until the script ends; false = there is none.
start_redis() {
    server=$(command -v redis-server || command -v valkey-server) || return 1
    for try in 0 1 2 3 4; do
        port=$((20000 + ($$ * 7 + try * 1009) % 12000))
        "$server" --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" \
            >"$work/redis" 2>&1 &
        redis=$!
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            if grep -q 'Ready to accept' "$work/redis"; then return 0; fi
            sleep 0.1
        done
        kill "$redis" 2>/dev/null
        redis=
    done
    return 1
}

check_redis() {
    if ! start_redis; then
        echo 'skipped: disaggregated with Redis, no server is here'
        return
    fi
    "$disaggregated" --redis "127.0.0.1:$port" >"$work/out" 2>&1
    status=$?
    if grep -q 'built without hiredis' "$work/out"; then
        echo 'skipped: disaggregated with Redis, built without hiredis'
    else
        judge "$status" 'disaggregated, by Redis' "$(tail -n 1 "$work/out")"
    fi
    kill "$redis"
    wait "$redis"
    redis=
}

check_disaggregated() {
    disaggregated=$build/examples/disaggregated
    "$disaggregated" >"$work/out" 2>&1
    judge $? 'disaggregated' "$(tail -n 1 "$work/out")"
    for ms in 0 5 10 20 40 80; do
        "$disaggregated" --kill-after "$ms" >"$work/out" 2>&1
        judge $? "prefill is killed after $ms ms" "$(tail -n 1 "$work/out")"
    done
    check_redis
    refused_numbers "$disaggregated" --kill-after
    refused 'disaggregated, no address' 'not HOST:PORT' "$disaggregated" --redis what
    refused 'disaggregated, an unknown argument' 'unknown argument what' "$disaggregated" what 1
}

check_small
check_hybrid
check_sizing
check_speculative
if [ -z "$models" ]; then
    echo 'skipped: speculative decoding of stories260K, no models'
else
    check_real 0 0
    check_real 24 4
fi
check_pagemap
check_demo
check_disaggregated
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
