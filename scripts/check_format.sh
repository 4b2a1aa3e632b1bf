#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_format.sh [--fix]: every C file is laid out as clang-format would; --fix makes it so.
set -eu

if ! command -v clang-format >/dev/null; then
    echo 'skipped: format, no clang-format on this machine'
    exit 0
fi
files=$(find include src tests examples bench -name '*.[ch]')
if [ "${1:-}" = --fix ]; then
    # shellcheck disable=SC2086
    exec clang-format -i $files
fi
# shellcheck disable=SC2086
clang-format --dry-run -Werror $files
echo "format: clang-format agrees with $(echo "$files" | wc -l) files"
