#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_clients.sh: programs that use the shared library as others do. A client in C++ by every C++
# compiler that is here, with warnings as errors; and a client that is compiled against the headers
# of 0.1.0 as they were first published (tests/abi/v0_1, which never changes) and run with today's
# library. BUILD and LIBRARY come from the Makefile.
set -eu

: "${BUILD:=build/release}" "${LIBRARY:?}"
bad=0
folder=$(cd "$(dirname "$LIBRARY")" && pwd)

# run name program source compiler flags..: compiles and runs one.
run() {
    name=$1 program=$2 source=$3
    shift 3
    if "$@" -Wall -Wextra -Wshadow -Werror "$source" -o "$program" "$LIBRARY" \
        "-Wl,-rpath,$folder" && "$program"; then
        echo "ok     $name"
    else
        echo "failed $name"
        bad=1
    fi
}

for cxx in g++ clang++; do
    if command -v $cxx >/dev/null; then
        run "C++ by $cxx" "$BUILD/tests/client-$cxx" tests/cxx/client.cpp $cxx -std=c++17 -Iinclude
    else
        echo "skipped: a client in C++ by $cxx, not on this machine"
    fi
done
# CC may be "ccache gcc".
# shellcheck disable=SC2086
run "headers of 0.1.0, this library" "$BUILD/tests/client-v0_1" tests/abi/client.c \
    ${CC:-cc} -std=c17 -Itests/abi/v0_1
exit $bad
