#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_rust.sh: builds bindings/rust and runs its tests, without network, against the library that
# is built in BUILD, by the cargo that CARGO names. Debian 12's is enough. Where there is none and
# none can be installed, a line says so, and the exit status is 0.
set -eu
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build/release}
CARGO=${CARGO:-cargo}
if ! { scripts/deps.sh rust && command -v "$CARGO" >/dev/null; }; then
    echo 'rust: skipped, cargo is missing'
    exit 0
fi
make BUILD="$BUILD" lib

PAGEDKV_LIB_DIR=$(cd "$BUILD" && pwd)
LD_LIBRARY_PATH=$PAGEDKV_LIB_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Threads that spin between calls would only slow each other down here.
export PAGEDKV_LIB_DIR LD_LIBRARY_PATH OMP_WAIT_POLICY=passive RUSTFLAGS='-D warnings'
export CARGO_TARGET_DIR="$PWD/build/rust" RUSTDOCFLAGS='-D warnings'
cd bindings/rust
"$CARGO" test --quiet --offline --locked >"$CARGO_TARGET_DIR.log" 2>&1 ||
    { cat "$CARGO_TARGET_DIR.log" >&2; exit 1; }
echo "rust: $(awk '/^test result: ok/ { passed += $4 } END { print passed }' \
    "$CARGO_TARGET_DIR.log") tests"
