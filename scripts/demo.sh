#!/bin/sh
# SPDX-License-Identifier: MIT
#
# demo.sh: runs examples/story, on the model under $PKV_SHARED or ../shared where there is one, else
# on a small seeded random model that the example makes itself. BUILD comes from the Makefile.
set -eu

: "${BUILD:=build/release}"
for models in "${PKV_SHARED:-../shared}/models" ../shared/models; do
    if [ -r "$models/stories260K.bin" ] && [ -r "$models/tok512.bin" ]; then
        exec "$BUILD/examples/story" --model "$models/stories260K.bin" \
            --tokenizer "$models/tok512.bin"
    fi
done
echo "no model under ${PKV_SHARED:-../shared}/models: a seeded random one shows the same"
exec "$BUILD/examples/story"
