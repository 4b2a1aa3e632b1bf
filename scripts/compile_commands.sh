#!/bin/sh
# SPDX-License-Identifier: MIT
#
# compile_commands.sh: turns the output of `make -nB V=1` on standard input into a compilation
# database.
set -eu
awk -v dir="$PWD" '
    / -c -o / {
        file = $NF
        gsub(/\\/, "\\\\")
        gsub(/"/, "\\\"")
        printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}",
               n++ ? ",\n" : "[\n", dir, file, $0
    }
    END { print n ? "\n]" : "[]" }'
