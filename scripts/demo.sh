#!/bin/sh
# SPDX-License-Identifier: MIT
#
# demo.sh: runs examples/demo, whose model is in the program. BUILD comes from the Makefile; on a
# terminal PKV_DEMO_DELAY is how many milliseconds a frame stands.
set -eu

: "${BUILD:=build/release}" "${PKV_DEMO_DELAY:=30}"
exec "$BUILD/examples/demo" --delay "$PKV_DEMO_DELAY"
