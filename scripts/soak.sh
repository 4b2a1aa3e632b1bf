#!/bin/sh
# SPDX-License-Identifier: MIT
#
# soak.sh: what `make soak` runs: the models of the runtime at 10^6 operations, those of the block
# pool and the prefix index from many seeds, stress and random calls for minutes. The first
# failure ends it, with the variables that repeat it. BUILD comes from the Makefile; PKV_TEST_OPS,
# PKV_TEST_SEED, PKV_STRESS_SECONDS, PKV_FUZZ_SECONDS and PKV_SOAK_SEEDS change how much is run.
set -eu

: "${BUILD:=build/release}" "${PKV_TEST_OPS:=1000000}" "${PKV_TEST_SEED:=20260101}"
: "${PKV_STRESS_SECONDS:=600}" "${PKV_SOAK_SEEDS:=84}" "${PKV_FUZZ_SECONDS:=180}"
export PKV_TEST_OPS PKV_TEST_SEED PKV_STRESS_SECONDS PKV_FUZZ_SECONDS
log=$BUILD/soak.log

# run WHAT COMMAND..: its CUnit summary alone, or all of it when it fails
run() {
    what=$1
    shift
    echo "== $what"
    if ! "$@" >"$log" 2>&1; then
        cat "$log"
        echo "soak: failed: PKV_TEST_SEED=$PKV_TEST_SEED PKV_TEST_OPS=$PKV_TEST_OPS $*" >&2
        exit 1
    fi
    sed -n '/^Run Summary/,/asserts/p' "$log"
}

run "the whole surface with a prefix cache, $PKV_TEST_OPS operations" \
    "$BUILD/tests/unit" runtime_reuse_model
run "state groups, two block sizes and trees, $PKV_TEST_OPS operations" \
    "$BUILD/tests/unit" runtime_states_model
run "promises of admission, a tenth as many operations" "$BUILD/tests/unit" runtime_promise
run "request life from many threads, $PKV_STRESS_SECONDS s" "$BUILD/tests/stress"
run "random calls, $PKV_FUZZ_SECONDS s" "$BUILD/tests/fuzz"
echo "== 12,000 requests to the hybrid example"
if ! "$BUILD/examples/hybrid" --requests 12000 --seed "$PKV_TEST_SEED" >"$log" 2>&1; then
    cat "$log"
    exit 1
fi
tail -n 1 "$log"

# These are of one length, so they are run from many seeds: 12,000 operations a seed of the runtime
# without a prefix cache, 10^6 of the block pool, and those of the index. Rounds of a seed use the
# six numbers after it.
seed=$PKV_TEST_SEED
last=$((seed + 7 * PKV_SOAK_SEEDS))
while [ "$seed" -lt "$last" ]; do
    PKV_TEST_SEED=$seed
    run "runtime, block pool and index, seed $seed" \
        "$BUILD/tests/unit" runtime_model block_pool prefix_model
    seed=$((seed + 7))
done
