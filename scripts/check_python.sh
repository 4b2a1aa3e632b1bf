#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_python.sh [--asan]: installs bindings/python into a virtual environment in build/, without
# network, and runs its tests, its doctests and its example there. BUILD is where the library is
# built, PYTHON the interpreter. Where Debian's packages for it are missing and cannot be installed,
# a line says so, and the exit status is 0. With --asan the tests run on a library with the address
# sanitiser, which takes some minutes to build and run.
set -eu
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build/release}
# Debian's packages are for Debian's interpreter, whatever comes first in PATH.
PYTHON=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
export BUILD PYTHON
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES VARIANT PYTHONPATH PAGEDKV_LIBRARY PAGEDKV_BUNDLE
# Threads that spin between calls would only slow each other down here.
export OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

if ! { scripts/deps.sh python && "$PYTHON" -c 'import ensurepip, numpy, venv'; }; then
    echo 'python: skipped, its packages are missing'
    exit 0
fi

folder=$PWD/build/python
rm -rf "$folder"
mkdir -p "$folder"
"$PYTHON" bindings/python/check_style.py
"$PYTHON" -m venv --system-site-packages "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-index ./bindings/python

if [ "${1:-}" = --asan ]; then
    make VARIANT=asan BUILD=build/asan lib
    PAGEDKV_LIBRARY=$(echo "$PWD"/build/asan/libpagedkv.so.*.*.*)
    LD_PRELOAD=$(${CC:-cc} -print-file-name=libasan.so)
    # What the interpreter never frees is no leak of ours; its own pool would hide what arrays do.
    export PAGEDKV_LIBRARY LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc
fi

cd bindings/python/tests
"$folder/venv/bin/python" -X dev -W error::ResourceWarning -m unittest -q
"$folder/venv/bin/python" -c 'import torch' 2>/dev/null ||
    echo 'python: torch is not installed, its tests were skipped'
[ "${1:-}" != --asan ] || exit 0
cd ..
"$folder/venv/bin/python" examples/pool_use.py "$folder/pool_use.png"
if "$folder/venv/bin/python" -c 'import matplotlib' 2>/dev/null; then
    [ -s "$folder/pool_use.png" ] || { echo 'the example has drawn nothing' >&2; exit 1; }
fi
