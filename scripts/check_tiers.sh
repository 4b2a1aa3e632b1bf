#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_tiers.sh [TEST..]: examples/server with tiers (examples/server/tests/tiers.py): a restarted
# server finds what the one before it has stored, also when that was killed; and a tier that fails
# changes no answer. PKV_TIER_KILLS servers are killed at moments from PKV_TIER_SEED on. Skips, with
# a word, where the server's packages or a Redis server are missing and cannot be installed.
set -eu
cd "$(dirname "$0")/.."

: "${BUILD:=build/release}" "${MAKE:=make}"
# Debian's interpreter, whatever comes first in PATH.
python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
SERVER=$BUILD/examples/server
# Threads that spin between calls would only slow each other down here.
export SERVER OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1

skip() {
    echo "skipped: the server with tiers, $1"
    exit 0
}
PYTHON=$python scripts/deps.sh tiers || skip 'its packages are missing'
command -v redis-server >/dev/null || command -v valkey-server >/dev/null ||
    skip 'redis-server is missing'
$MAKE "$SERVER"
if "$SERVER" --redis 127.0.0.1:1 --port 1 --address none 2>&1 | grep -q hiredis; then
    skip 'the library was built without hiredis'
fi
cd examples/server/tests
case $SERVER in
/*) ;;
*) SERVER=$OLDPWD/$SERVER ;;
esac
"$python" -m unittest ${1:+-v} "${@:-tiers}"
