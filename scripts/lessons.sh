#!/bin/sh
# SPDX-License-Identifier: MIT
#
# lessons.sh: fills the last column of the table of lessons in docs/testing.md with the test files
# that carry a lesson's number in a comment. The table so never claims what no test says.
set -eu

page=docs/testing.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# files_of A1: the files with a comment that names A1, joined by commas
files_of() {
    grep -lE "^ *(/?\*|//).*(^|[^A-Za-z0-9])$1([^A-Za-z0-9]|\$)" tests/*.c tests/*/*.c | sort |
        sed 's|^tests/||' | paste -sd, | sed 's/,/, /g'
}

while IFS= read -r line; do
    case $line in
    '| '[A-J][0-9]' |'*'|'*'|' | '| '[A-J][0-9][0-9]' |'*'|'*'|')
        number=$(echo "$line" | cut -d '|' -f 2 | tr -d ' ')
        promise=$(echo "$line" | cut -d '|' -f 3)
        files=$(files_of "$number")
        printf '| %s |%s| %s |\n' "$number" "$promise" "${files:-none yet}"
        ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$page" >"$new"
if [ "${1:-}" = --check ]; then
    cmp -s "$new" "$page" || { echo "$page: its table is old, run scripts/lessons.sh"; exit 1; }
else
    cat "$new" >"$page"
fi
