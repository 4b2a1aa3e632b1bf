#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh: what `make check` runs once everything is built. Golden vectors by 1, 2 and 8 threads,
# the man pages, the unit tests and each kernel on every instruction set of this machine, request
# life from many threads, greedy decoding, the examples, and loading the shared library at run time.
# It goes on after a failure and exits 1 at the end; CUnit's summary of the best level closes the
# run. BUILD, LIBRARY and VECTORS come from the Makefile.
set -eu

: "${BUILD:=build/release}" "${LIBRARY:?}" "${VECTORS:=}"
unit=$BUILD/tests/unit
export BUILD LIBRARY
failed=

step() {
    echo "== $1"
    shift
    "$@" || failed="$failed, $*"
}

levels=$("$unit" --levels)

if [ -z "$VECTORS" ]; then
    echo "skipped: golden vectors, none found (set PKV_SHARED or FILES)"
else
    for isa in $levels; do
        for threads in 1 2 8; do
            # shellcheck disable=SC2086
            step "vectors, $isa, threads: $threads" env PKV_TEST_ISA=$isa \
                PKV_TEST_THREADS=$threads "$BUILD/tests/vectors" $VECTORS
        done
    done
fi
step "man pages" scripts/man.sh --check
step "kernels" "$BUILD/tests/kernels"
step "request life from many threads" "$BUILD/tests/stress"
step "random calls" "$BUILD/tests/fuzz"
step "greedy decoding" scripts/check_greedy.sh "$BUILD"
step "broken input to examples/story" scripts/check_story.sh "$BUILD"
step "the other examples" scripts/check_examples.sh "$BUILD"
case $BUILD in
*san) echo "skipped: dlopen, a sanitiser must be in the program itself" ;;
*)
    step "dlopen" "$BUILD/tests/dlopen" "$LIBRARY"
    step "clients" scripts/check_clients.sh
    ;;
esac
for isa in $levels; do
    step "unit tests, $isa" env PKV_TEST_ISA="$isa" "$unit"
done

if [ -n "$failed" ]; then
    echo "make check: failed:${failed#,}" >&2
    exit 1
fi
