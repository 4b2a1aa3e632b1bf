#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench.sh bench|bench-peers|bench-plot: what the make targets of these names do, after the programs
# are built. BUILD names the variant's folder. `bench` leaves its numbers in $BUILD/bench.csv, from
# which bench-plot draws. Peers come from the npm registry into build/peers, without running
# anything of theirs at install; where that cannot be, they are left out with a word.
set -eu
: "${BUILD:=build/release}"

csv=$BUILD/bench.csv
peers=build/peers
packages='onnxruntime-node@1.30.0 @node-llama-cpp/linux-x64@3.22.1'

run_attn() {
    "$BUILD/bench/attn" --csv "$csv.new"
    mv "$csv.new" "$csv"
}

install_peers() {
    [ ! -e "$peers/installed" ] || return 0
    mkdir -p "$peers"
    if ! command -v npm >/dev/null; then
        echo 'npm is not here (Debian: apt-get install npm): no peers'
        return 1
    fi
    # shellcheck disable=SC2086
    if ! npm install --prefix "$peers" --ignore-scripts --no-save --no-audit --no-fund $packages \
        >"$peers/log" 2>&1; then
        tail -n 5 "$peers/log"
        echo "npm could not install $packages: no peers"
        return 1
    fi
    touch "$peers/installed"
}

case ${1:-} in
bench)
    run_attn
    echo
    "$BUILD/bench/bookkeeping"
    "$BUILD/bench/mixed"
    echo
    "$BUILD/bench/tiers"
    echo
    "$BUILD/bench/retention"
    ;;
bench-peers)
    ! install_peers || "$BUILD/bench/peers" "$peers/node_modules"
    ;;
bench-plot)
    scripts/deps.sh bench
    [ -e "$csv" ] || run_attn
    scripts/plot.sh "$csv" docs
    ;;
*)
    echo 'usage: bench.sh bench|bench-peers|bench-plot' >&2
    exit 2
    ;;
esac
