#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_abidiff.sh [--update] LIBRARY: compares the binary interface of the shared library with the
# one that was kept for this soname (tests/abi/libpagedkv.abi.xz, by libabigail): functions, and
# every struct, enum and type that they reach through the public headers. Any change fails. A struct
# with a size may grow at its end, which scripts/check_abi.sh holds; after such a change, and only
# then, --update keeps the new interface.
set -eu

kept=tests/abi/libpagedkv.abi.xz
update=
[ "$1" != --update ] || {
    update=1
    shift
}
library=$1
command -v abidiff >/dev/null || {
    echo 'skipped: binary interface, no abidiff (Debian: apt-get install abigail-tools)'
    exit 0
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$update" ]; then
    abidw --headers-dir include --no-corpus-path --no-comp-dir-path --short-locs "$library" |
        xz -9 >"$kept"
    exit 0
fi
xz -dc "$kept" >"$work/kept.abi"
if abidiff --headers-dir2 include --no-added-syms "$work/kept.abi" "$library" >"$work/report"; then
    echo 'abidiff: the binary interface is the one that was kept'
else
    cat "$work/report"
    exit 1
fi
