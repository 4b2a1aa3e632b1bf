#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh: what `make check` runs once everything is built. Golden vectors and the unit tests on
# every instruction set of this machine, greedy decoding, and loading the shared library at run
# time. It goes on after a failure and exits 1 at the end; CUnit's summary of the best level closes
# the run. BUILD, LIBRARY and VECTORS come from the Makefile.
set -eu

: "${BUILD:=build/release}" "${LIBRARY:?}" "${VECTORS:=}"
unit=$BUILD/tests/unit
failed=

step() {
    echo "== $1"
    shift
    "$@" || failed="$failed, $*"
}

# The runner says "skipped" for a level that this machine or build lacks; a suite that does not
# exist keeps it from running anything.
levels=
for isa in scalar avx2 avx512 avx512bf16; do
    case $(PKV_TEST_ISA=$isa "$unit" no-suite-of-this-name 2>&1 || true) in
    *skipped:*) echo "skipped: $isa, not on this machine or not in this build" ;;
    *) levels="$levels $isa" ;;
    esac
done

if [ -z "$VECTORS" ]; then
    echo "skipped: golden vectors, none found (set PKV_SHARED or FILES)"
else
    for isa in $levels; do
        # shellcheck disable=SC2086
        step "vectors, $isa" env PKV_TEST_ISA=$isa "$BUILD/tests/vectors" $VECTORS
    done
fi
step "greedy decoding" scripts/check_greedy.sh "$BUILD"
step "broken input to examples/story" scripts/check_story.sh "$BUILD"
case $BUILD in
*san) echo "skipped: dlopen, a sanitiser must be in the program itself" ;;
*) step "dlopen" "$BUILD/tests/dlopen" "$LIBRARY" ;;
esac
for isa in $levels; do
    step "unit tests, $isa" env PKV_TEST_ISA="$isa" "$unit"
done

if [ -n "$failed" ]; then
    echo "make check: failed:${failed#,}" >&2
    exit 1
fi
