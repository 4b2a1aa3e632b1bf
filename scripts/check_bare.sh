#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_bare.sh command..: runs scripts/deps.sh check and then a command as on a machine without
# jemalloc and hiredis where nothing can be installed: in a mount namespace of its own, in which
# their files and apt-get are useless text. Nothing outside of it changes. Where no namespace can be
# had (it takes root or a user namespace) JEMALLOC=0 and HIREDIS=0 have to do.
#
#     scripts/check_bare.sh make BUILD=build/bare check
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: check_bare.sh command.." >&2; exit 2; }

if [ "${PKV_BARE:-}" != 1 ]; then
    own='unshare -m'
    [ "$(id -u)" = 0 ] || own='unshare -rm'
    if $own true 2>/dev/null; then
        PKV_BARE=1 exec $own "$0" "$@"
    fi
    echo "no mount namespace can be had: jemalloc and hiredis are left out, not hidden"
    JEMALLOC=0 HIREDIS=0 exec "$@"
fi

# Neither a header, a library, a linker script nor a program.
nothing=$(mktemp)
trap 'rm -f "$nothing"' EXIT
echo 'This is not here.' >"$nothing"
hide() {
    [ ! -f "$1" ] || cmp -s "$nothing" "$1" || mount --bind "$nothing" "$1"
}
for file in /lib*/libjemalloc* /usr/lib*/libjemalloc* /usr/lib*/*/libjemalloc* \
    /usr/local/lib/libjemalloc* /usr/include/jemalloc/* /usr/lib*/*/libhiredis* \
    /usr/include/hiredis/*; do
    hide "$file"
done
hide "$(command -v apt-get || true)"

scripts/deps.sh check
"$@"
