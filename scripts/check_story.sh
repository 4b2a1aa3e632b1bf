#!/bin/sh
# SPDX-License-Identifier: MIT
#
# examples/story against broken input: checkpoints, tokenizers, prompts and arguments that are
# short, oversized or absurd. Each must be refused by one line on stderr, with nothing on stdout
# and exit status 1; a fuzzed header may also be valid, but nothing may crash. Needs no model: a
# tiny checkpoint of zeros is made here.
#
#   scripts/check_story.sh [build dir]

set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-${BUILD:-build/release}}
story=$build/examples/story
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
passed=0
failed=0

# --- making files

# Each argument as four little-endian bytes.
words() {
    for number in "$@"; do
        # shellcheck disable=SC2059
        printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((number & 255)) $((number >> 8 & 255)) \
            $((number >> 16 & 255)) $((number >> 24 & 255)))"
    done
}

# dim 4, hidden 4, one layer, 2 heads on 1 KV head, 260 tokens, 16 positions: 1148 weights and rope
# tables of 32.
header='4 4 1 2 1 260 16'
plain_bytes=$((4 * 1148))
legacy_bytes=$((4 * 1180))

# checkpoint NAME BYTES WORD...: a header, and that many bytes of zeros behind it.
checkpoint() {
    name=$1 bytes=$2
    shift 2
    { words "$@" && head -c "$bytes" /dev/zero; } >"$work/$name"
}

# patched NAME OFFSET WORD: the good checkpoint with one word overwritten.
patched() {
    cp "$work/good" "$work/$1"
    words "$3" | dd of="$work/$1" bs=1 seek="$2" conv=notrunc 2>"$work/dd"
}

# 260 tokens: three names, the bytes, and a space.
tokenizer() {
    words 6
    words 0 5 && printf '<unk>'
    words 0 3 && printf '<s>'
    words 0 4 && printf '</s>'
    byte=0
    while [ "$byte" -lt 256 ]; do
        words 0 6 && printf '<0x%02X>' "$byte"
        byte=$((byte + 1))
    done
    words 0 1 && printf ' '
}

# --- judging a run

verdict() { # ok|FAILED title note
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-6s %s%s\n' "$1" "$2" "${3:+ ($3)}"
}

# refused TITLE MESSAGE-PART argument...
refused() {
    title=$1 message=$2
    shift 2
    "$story" "$@" >"$work/out" 2>"$work/err"
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

# accepted TITLE EXPECTED-STDOUT argument...
accepted() {
    title=$1 expected=$2
    shift 2
    if ! "$story" "$@" >"$work/out" 2>"$work/err"; then
        verdict FAILED "$title" "said: $(head -n 1 "$work/err")"
    elif [ "$(cat "$work/out")" != "$expected" ]; then
        verdict FAILED "$title" "printed: $(head -n 1 "$work/out")"
    else
        verdict ok "$title"
    fi
}

# A refused checkpoint file, by name.
bad_model() { # title message name
    refused "$1" "$2" --model "$work/$3" --tokens 1 --ids -n 4
}

# --- the cases

check_sizes() {
    accepted 'a checkpoint with rope tables' '0 0 0 0' --model "$work/good" --tokens 1 -n 4 --ids
    # shellcheck disable=SC2086
    checkpoint plain $plain_bytes $header
    accepted 'a checkpoint without rope tables' '0 0 0 0' --model "$work/plain" --tokens 1 -n 4 \
        --ids
    accepted 'the prefix cache' "$(printf '0 0\n0 0')" --model "$work/good" --tokens '1 3 4 5' \
        --tokens '1 3 4 5' -n 2 --ids --prefix-cache --block-size 1 --max-batch 1
    grep -q '^prefix cache: 3 of 8 prompt tokens' "$work/err" ||
        verdict FAILED 'the prefix cache' "said: $(tail -n 1 "$work/err")"
    accepted 'the naive decode' '0 0 0 0' --model "$work/good" --tokens 1 -n 4 --ids --form naive
    checkpoint own $((legacy_bytes + 4 * 1040)) 4 4 1 2 1 -260 16
    accepted 'a classifier of its own' '0 0 0 0' --model "$work/own" --tokens 1 -n 4 --ids
    bad_model 'a file that is missing' 'No such file' missing
    refused 'a folder as checkpoint' "$work" --model "$work" --tokens 1
    : >"$work/empty"
    bad_model 'an empty file' 'are no checkpoint' empty
    for bytes in 1 27; do
        head -c "$bytes" "$work/good" >"$work/short"
        bad_model "a file of $bytes bytes" 'are no checkpoint' short
    done
    for bytes in 28 29 1000 $((27 + plain_bytes)) $((27 + legacy_bytes)); do
        head -c "$bytes" "$work/good" >"$work/short"
        bad_model "a file of $bytes bytes" 'but the header makes it' short
    done
    { cat "$work/good" && printf x; } >"$work/long"
    bad_model 'a byte too many' 'but the header makes it' long
    { cat "$work/own" && words 0; } >"$work/long"
    bad_model 'a word too many' 'but the header makes it' long
}

# bad_header TITLE MESSAGE WORD...
bad_header() {
    title=$1 message=$2
    shift 2
    checkpoint bad $legacy_bytes "$@"
    bad_model "$title" "$message" bad
}

check_headers() {
    bad_header 'dim 0' 'dim = 0' 0 4 1 2 1 260 16
    bad_header 'dim negative' 'dim = -4' -4 4 1 2 1 260 16
    bad_header 'hidden_dim 0' 'hidden_dim = 0' 4 0 1 2 1 260 16
    bad_header 'no layers' 'n_layers = 0' 4 4 0 2 1 260 16
    bad_header 'no heads' 'n_heads = 0' 4 4 1 0 1 260 16
    bad_header 'more heads than channels' 'n_heads = 8' 4 4 1 8 1 260 16
    bad_header 'no KV heads' 'n_kv_heads = 0' 4 4 1 2 0 260 16
    bad_header 'more KV heads than heads' 'n_kv_heads = 4' 4 4 1 2 4 260 16
    bad_header 'an empty vocabulary' 'vocab_size = 0' 4 4 1 2 1 0 16
    bad_header 'the least vocabulary' 'vocab_size = -2147483648' 4 4 1 2 1 -2147483648 16
    bad_header 'a vocabulary without an end' 'no begin and end' 4 4 1 2 1 2 16
    bad_header 'seq_len 0' 'seq_len = 0' 4 4 1 2 1 260 0
    bad_header 'the largest seq_len' 'seq_len = 2147483647' 4 4 1 2 1 260 2147483647
    bad_header 'heads that do not divide dim' 'even width' 8 4 1 3 1 260 16
    bad_header 'heads of odd width' 'even width' 6 4 1 2 1 260 16
    bad_header 'KV heads that do not divide' 'cannot share' 12 4 1 6 4 260 16
    bad_header 'the largest words' 'dim = 2147483647' 2147483647 2147483647 2147483647 \
        2147483647 2147483647 2147483647 2147483647
    bad_header 'a product near 2^64' 'the header makes it' 65536 65536 4096 32 32 16777216 1048576
    checkpoint far $((4 * 29888)) 64 4 1 2 1 260 1048576
    bad_model 'a short file with rope tables of 128 MiB' 'rope tables of 134217728 bytes' far
    bad_header 'big-endian words' 'dim = 67108864' 67108864 67108864 16777216 33554432 16777216 \
        67174400 268435456
}

check_weights() {
    for offset in 28 $((24 + plain_bytes)) 4300; do
        patched broken "$offset" 2143289344
        bad_model "NaN at byte $offset" 'is not finite' broken
        patched broken "$offset" 2139095040
        bad_model "infinity at byte $offset" 'is not finite' broken
        patched broken "$offset" -8388608
        bad_model "minus infinity at byte $offset" 'is not finite' broken
    done
    cp "$work/own" "$work/broken"
    words 2143289344 | dd of="$work/broken" bs=1 seek=$((28 + legacy_bytes + 4 * 1039)) \
        conv=notrunc 2>"$work/dd"
    bad_model 'NaN in the last classifier weight' 'is not finite' broken
    # Finite weights, infinite logits: the largest float in the norm, twos in the embedding.
    patched broken $((24 + plain_bytes)) 2139095039
    words 1073741824 1073741824 1073741824 1073741824 |
        dd of="$work/broken" bs=1 seek=44 conv=notrunc 2>"$work/dd"
    bad_model 'logits that overflow' 'is not finite' broken
}

# pkvm NAME OFFSET WORD: the embedded model's file with one word overwritten.
pkvm() {
    cp "$embedded" "$work/$1"
    words "$3" | dd of="$work/$1" bs=1 seek="$2" conv=notrunc 2>"$work/dd"
}

# bad_pkvm TITLE MESSAGE OFFSET WORD
bad_pkvm() {
    pkvm bad.pkvm "$3" "$4"
    bad_model "a model file, $1" "$2" bad.pkvm
}

# Words of the header stand at 8, 12 .. 60, windows at 64, then the weights.
check_pkvm() {
    embedded=examples/train/stories.pkvm
    size=$(wc -c <"$embedded")
    "$story" --model "$embedded" --prompt 'It was a ' -n 16 >"$work/out" 2>"$work/err"
    if grep -q '^\[0\] It was a [a-z]' "$work/out"; then
        verdict ok 'a model file, and a text without tokenizer'
    else
        verdict FAILED 'a model file, and a text without tokenizer' "$(head -n 1 "$work/err")"
    fi
    for bytes in 8 63; do
        head -c "$bytes" "$embedded" >"$work/short"
        bad_model "a model file of $bytes bytes" 'do not begin as a model' short
    done
    for bytes in 64 80 1000 $((size - 1)); do
        head -c "$bytes" "$embedded" >"$work/short"
        bad_model "a model file of $bytes bytes" 'but the header makes it' short
    done
    { cat "$embedded" && printf x; } >"$work/long"
    bad_model 'a model file and a byte' 'but the header makes it' long
    bad_pkvm 'version 2' 'version 2' 8 2
    bad_pkvm 'dtype 3' 'dtype 3' 12 3
    bad_pkvm 'dtype -1' 'dtype -1' 12 -1
    bad_pkvm 'dtype f32' 'but the header makes it' 12 0
    bad_pkvm 'dim 0' 'dim = 0' 16 0
    bad_pkvm 'dim -128' 'dim = -128' 16 -128
    bad_pkvm 'the largest dim' 'dim = 2147483647' 16 2147483647
    bad_pkvm 'another dim' 'but the header makes it' 16 130
    bad_pkvm 'hidden_dim 0' 'hidden_dim = 0' 20 0
    bad_pkvm 'no layers' 'n_layers = 0' 24 0
    bad_pkvm '4096 layers' 'but the header makes it' 24 4096
    bad_pkvm 'no heads' 'n_heads = 0' 28 0
    bad_pkvm 'heads that KV heads do not divide' 'cannot share' 28 3
    bad_pkvm 'more KV heads than heads' 'n_kv_heads = 9' 32 9
    bad_pkvm 'heads of odd width' 'even width' 36 15
    bad_pkvm 'heads of no width' 'head_dim = 0' 36 0
    bad_pkvm 'the largest vocabulary' 'vocab_size = 2147483647' 40 2147483647
    bad_pkvm 'a vocabulary without an end' 'no begin and end' 40 257
    bad_pkvm 'a begin that is a byte' 'behind the 256 bytes' 44 65
    bad_pkvm 'a begin that is the end' 'behind the 256 bytes' 44 257
    bad_pkvm 'an end of -1' 'behind the 256 bytes' 48 -1
    bad_pkvm 'no positions' 'seq_len = 0' 52 0
    bad_pkvm 'positions for a larger file' 'more memory than the file has' 52 1048576
    bad_pkvm 'theta 0' 'makes no sense' 56 0
    bad_pkvm 'a reserved word' '1 reserved' 60 1
    bad_pkvm 'a window of -1' 'layer 0 has a window of -1' 64 -1
    bad_pkvm 'infinity in the embedding' 'embedding[0][1] is not finite' 80 2080374784
    bad_pkvm 'NaN in the last weight' 'final_norm[0][127] is not finite' $((size - 4)) 2113929216
}

bad_tokenizer() { # title message name
    refused "$1" "$2" --model "$work/good" --tokenizer "$work/$3" --prompt hi
}

check_tokenizers() {
    tokenizer >"$work/tokenizer"
    size=$(wc -c <"$work/tokenizer")
    accepted 'a prompt of bytes' '0 0' --model "$work/good" --tokenizer "$work/tokenizer" \
        --prompt 'hi' -n 2 --ids
    bad_tokenizer 'a tokenizer that is missing' 'No such file' missing
    refused 'a folder as tokenizer' 'Is a directory' --model "$work/good" --tokenizer "$work"
    for bytes in 0 3; do
        head -c "$bytes" "$work/tokenizer" >"$work/bad"
        bad_tokenizer "a tokenizer of $bytes bytes" 'are no tokenizer' bad
    done
    head -c 1000 "$work/tokenizer" >"$work/bad"
    bad_tokenizer 'a tokenizer of 1000 bytes' 'cannot hold 260 tokens' bad
    head -c $((size - 1)) "$work/tokenizer" >"$work/bad"
    bad_tokenizer 'a tokenizer without its last byte' 'ends inside token 259' bad
    head -c $((size - 9)) "$work/tokenizer" >"$work/bad"
    bad_tokenizer 'a tokenizer without its last token' 'ends at token 259' bad
    { cat "$work/tokenizer" && printf x; } >"$work/bad"
    bad_tokenizer 'a byte after the last token' '1 bytes follow' bad
    for longest in 0 -1 2147483647; do
        { words "$longest" && tail -c +5 "$work/tokenizer"; } >"$work/bad"
        bad_tokenizer "a longest token of $longest" 'the longest token' bad
    done
    for length in -1 7 2147483647 -2147483648; do
        { words 6 0 "$length" && tail -c +13 "$work/tokenizer"; } >"$work/bad"
        bad_tokenizer "a token of length $length" "token 0 has length $length" bad
    done
    { words 6 2143289344 && tail -c +9 "$work/tokenizer"; } >"$work/bad"
    bad_tokenizer 'a score that is NaN' 'not a number' bad
    checkpoint few $((4 * (1148 - 4 * 60))) 4 4 1 2 1 200 16
    words 1 >"$work/bad"
    token=0
    while [ "$token" -lt 200 ]; do
        words 0 1 && printf a
        token=$((token + 1))
    done >>"$work/bad"
    refused 'a byte that has no token' 'byte 228 has no token' --model "$work/few" \
        --tokenizer "$work/bad" --prompt "$(printf 'a\344')"
}

bad_ids() { # title message ids
    refused "$1" "$2" --model "$work/good" --tokens "$3" --ids -n 4
}

check_prompts() {
    bad_ids 'an id at the vocabulary size' 'token 260 is outside' '1 260'
    bad_ids 'an id below 0' 'out of range' '1 -1'
    bad_ids 'an id beyond int32' 'out of range' '1 4294967297'
    bad_ids 'an id beyond everything' 'out of range' '99999999999999999999999'
    bad_ids 'a word among the ids' 'does not begin with a token id' '1 two'
    bad_ids 'an id with a letter behind' 'does not begin with a token id' '1 2x'
    bad_ids 'no ids' 'has no tokens' ' '
    bad_ids 'a prompt longer than seq_len' 'longer than' '1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1'
    accepted 'a prompt of seq_len' '' --model "$work/good" --ids \
        --tokens '1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1'
    accepted 'an end at seq_len' '0 0 0' --model "$work/good" --ids \
        --tokens '1 1 1 1 1 1 1 1 1 1 1 1 1'
    printf '1 3\n\n  \n1 4 5' >"$work/requests"
    accepted 'a file of requests' "$(printf '0 0\n0 0')" --model "$work/good" --ids -n 2 \
        --requests "$work/requests"
    printf '\n \n' >"$work/requests"
    refused 'a file without requests' 'no prompt in it' --model "$work/good" \
        --requests "$work/requests"
    printf '1 3\n1 300\n' >"$work/requests"
    refused 'a bad id in the second line' 'request 1: token 300' --model "$work/good" \
        --requests "$work/requests"
    refused 'a binary file as requests' 'zero byte' --model "$work/good" --requests "$work/good"
    refused 'requests that are missing' 'No such file' --model "$work/good" \
        --requests "$work/missing"
    refused 'a text without tokenizer' 'needs --tokenizer' --model "$work/good" --prompt hi
}

# bad_argument TITLE MESSAGE argument...: with a good model and prompt before it.
bad_argument() {
    title=$1 message=$2
    shift 2
    refused "$title" "$message" --model "$work/good" --tokens 1 --ids "$@"
}

check_arguments() {
    for name in -n --window --kept-prefix --block-size --num-blocks --max-batch --chunk \
        --threads; do
        bad_argument "$name without a number" "$name" "$name"
        bad_argument "$name x" 'is not a whole number' "$name" x
        bad_argument "$name empty" 'is not a whole number' "$name" ''
        bad_argument "$name 1.5" 'is not a whole number' "$name" 1.5
        bad_argument "$name -1" 'is outside' "$name" -1
        bad_argument "$name 2^31" 'is outside' "$name" 2147483648
        bad_argument "$name 10^30" 'is outside' "$name" 1000000000000000000000000000000
    done
    for name in -n --block-size --max-batch --chunk; do
        bad_argument "$name 0" 'is outside' "$name" 0
    done
    bad_argument 'an unknown form' "'dense' is not" --form dense
    bad_argument 'an unknown dtype' "'f64' is not" --dtype f64
    bad_argument 'an unknown argument' 'unknown argument --what' --what 1
    bad_argument 'a naive decode in f16' 'f32 only' --form naive --dtype f16
    bad_argument 'a continuous prefix cache' 'needs --form paged' --prefix-cache --form continuous
    bad_argument 'a naive prefix cache' 'needs --form paged' --form naive --prefix-cache
    bad_argument 'a pool that is too small' 'the pool has 1' --block-size 4 --num-blocks 1
    refused 'prompts without a model' 'need --model' --tokens 1
    refused 'a form without a model' 'need --model' --form continuous
}

# Headers with one or all words replaced: refused or run, but never another exit status.
check_fuzz() {
    runs=0
    crashes=0
    first=
    while read -r fuzzed; do
        # shellcheck disable=SC2086
        checkpoint fuzzed $legacy_bytes $fuzzed
        "$story" --model "$work/fuzzed" --tokens 1 --ids -n 4 >"$work/out" 2>"$work/err"
        status=$?
        runs=$((runs + 1))
        if [ "$status" -gt 1 ]; then
            crashes=$((crashes + 1))
            first="${first:-exit status $status for $fuzzed}"
        fi
    done <<END
$(fuzzed_headers)
END
    if [ "$crashes" -eq 0 ]; then
        verdict ok "$runs fuzzed headers"
    else
        verdict FAILED "$crashes of $runs fuzzed headers" "$first"
    fi
}

# The same for the header of a model file, one word at a time.
check_pkvm_fuzz() {
    runs=0
    first=
    offset=8
    while [ "$offset" -le 76 ]; do
        for value in 0 -1 1 2 3 255 256 65536 16777216 1073741824 2147483647 -2147483648; do
            pkvm fuzzed "$offset" "$value"
            "$story" --model "$work/fuzzed" --tokens 256 --ids -n 2 >"$work/out" 2>"$work/err"
            status=$?
            runs=$((runs + 1))
            [ "$status" -le 1 ] || first="${first:-exit status $status for $value at $offset}"
        done
        offset=$((offset + 4))
    done
    if [ -z "$first" ]; then
        verdict ok "$runs fuzzed headers of model files"
    else
        verdict FAILED "$runs fuzzed headers of model files" "$first"
    fi
}

fuzzed_headers() {
    awk -v header="$header" 'BEGIN {
        srand(1)
        n = split("0 -1 1 2 3 8 255 -256 65535 65536 1048576 16777216 2147483647 -2147483648", v)
        for (word = 1; word <= 7; word++)
            for (i = 1; i <= n; i++) {
                split(header, h, " ")
                h[word] = v[i]
                print h[1], h[2], h[3], h[4], h[5], h[6], h[7]
            }
        for (i = 0; i < 60; i++) {
            for (word = 1; word <= 7; word++)
                h[word] = rand() < 0.5 ? v[1 + int(rand() * n)] : 1 + int(rand() * 64)
            print h[1], h[2], h[3], h[4], h[5], h[6], h[7]
        }
    }'
}

# shellcheck disable=SC2086
checkpoint good $legacy_bytes $header
check_sizes
check_headers
check_weights
check_pkvm
check_tokenizers
check_prompts
check_arguments
check_fuzz
check_pkvm_fuzz
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
