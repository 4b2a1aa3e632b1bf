#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_server.sh [load]: examples/server by its clients: Python's http.client and bare sockets,
# curl, and where they can be had Node's openai package and a browser (examples/server/tests). First
# what it reads models with, against Python (models.py; PKV_MODELS: where stories260K lies). With
# `load`, 64 streams for PKV_LOAD_SECONDS (60), half of them cut off, each answer checked. Skips,
# with a word, where the packages that the server needs are missing and cannot be installed.
set -eu
cd "$(dirname "$0")/.."

: "${BUILD:=build/release}" "${MAKE:=make}"
# Debian's interpreter, whatever comes first in PATH.
python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
tests=examples/server/tests
SERVER=$BUILD/examples/server
# Threads that spin between calls would only slow each other down here.
export BUILD SERVER OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1

if ! PYTHON=$python scripts/deps.sh server; then
    echo 'skipped: the server, its packages are missing'
    exit 0
fi
$MAKE "$SERVER"

if [ "${1:-}" = load ]; then
    exec "$python" $tests/load.py --seconds "${PKV_LOAD_SECONDS:-60}" --compare
fi
$MAKE "$BUILD/examples/server_probe"
"$python" $tests/models.py "$BUILD/examples/server_probe" \
    "${PKV_MODELS:-${PKV_SHARED:-../shared}/models}"
"$python" -m unittest discover -s $tests
"$python" $tests/load.py --seconds 5 -- --threads 1
