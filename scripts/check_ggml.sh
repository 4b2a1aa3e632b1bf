#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_ggml.sh: runs examples/from_ggml against the build of ggml that the npm registry has, which
# bench.sh compares with too. BUILD is where the example is built. Where npm is missing or cannot
# install it, or the machine is another one than the build is for, a line says so, and the exit
# status is 0.
set -eu
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build/release}
package=@node-llama-cpp/linux-x64
skip() {
    echo "ggml: skipped, $1"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || skip 'its build is for x86_64'
for folder in build/peers build/ggml; do
    [ ! -e "$folder/node_modules/$package/bins" ] || break
done
if [ ! -e "$folder/node_modules/$package/bins" ]; then
    command -v npm >/dev/null || skip 'npm is not here'
    mkdir -p "$folder"
    # Nothing of the package runs at install.
    timeout 120 npm install --prefix "$folder" --ignore-scripts --no-save --no-audit --no-fund \
        "$package@3.22.1" >"$folder/log" 2>&1 || skip "npm could not install $package"
fi
printf 'ggml: '
"$BUILD/examples/from_ggml" "$folder/node_modules/$package/bins/linux-x64" 2>"$folder/errors" ||
    { cat "$folder/errors" >&2; exit 1; }
