#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_server.sh [load|page]: examples/server by its clients: Python's http.client and bare
# sockets, curl, and where it can be had Node's openai package (examples/server/tests). First what
# it reads models with, against Python (models.py; PKV_MODELS: where stories260K lies). With `load`,
# 64 streams for PKV_LOAD_SECONDS (60), half of them cut off, each answer checked. With `page`, the
# live page in a browser, which leaves pictures in build: apart, because it looks at what moves.
# Skips, with a word, where the packages that the server needs are missing and cannot be installed.
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
if [ "${1:-}" != page ]; then
    $MAKE "$BUILD/examples/server_probe"
    "$python" $tests/models.py "$BUILD/examples/server_probe" \
        "${PKV_MODELS:-${PKV_SHARED:-../shared}/models}"
    "$python" -m unittest discover -s $tests
    "$python" $tests/load.py --seconds 5 -- --threads 1
    PKV_FUZZ_SECONDS=${PKV_FUZZ_SECONDS:-5} $MAKE VARIANT=asan BUILD=build/asan fuzz-server
fi

# --- clients of npm. Their folder is build/npm, where nothing is installed twice.
skip() {
    echo "skipped: $1"
    exit 0
}
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    skip 'clients by Node, it is not here'
fi
npm=$PWD/build/npm
mkdir -p "$npm"
if [ ! -d "$npm/node_modules/openai" ] || [ ! -d "$npm/node_modules/playwright-core" ]; then
    (cd "$npm" && timeout 120 npm install --no-audit --no-fund --silent \
        openai@4.104.0 playwright-core@1.65.1 >/dev/null 2>&1) ||
        skip 'clients by Node, npm cannot install them'
fi
cp $tests/*.mjs "$npm"

address=$(mktemp)
"$SERVER" --port 0 --threads 1 --max-batch 8 >"$address" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -f "$address"' EXIT
trap 'exit 1' INT TERM
until grep -q http: "$address"; do
    kill -0 $server
    sleep 0.1
done
url=$(sed -n 's/.* on //p' "$address")

if [ "${1:-}" != page ]; then
    node "$npm/openai_client.mjs" "$url"
else
    browser=$(command -v chromium || command -v chromium-browser || true)
    [ -n "$browser" ] || skip 'the page in a browser, chromium is not here'
    SCHEME=light node "$npm/page.mjs" "$url" "$browser" "$PWD/build/server-page.png"
    SCHEME=dark node "$npm/page.mjs" "$url" "$browser" "$PWD/build/server-page-dark.png"
fi
kill -TERM $server
wait $server || { echo "the server ended with $?" >&2; exit 1; }
