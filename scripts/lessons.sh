#!/bin/sh
# SPDX-License-Identifier: MIT
#
# lessons.sh [--check]: fills the last column of the table of lessons in docs/testing.md with the
# tests that carry a lesson's number: the file, and the case below a comment that begins with the
# number and says what holds, as in "A1: a block that a release names twice is freed once." So the
# table never claims what no test says. With --check the page is only compared.
set -eu

page=docs/testing.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# A number is followed by its sentence.
bare=$(grep -nE '^/[*] [A-K][0-9]+' tests/*.c tests/*/*.c |
    grep -vE '/[*] ([A-K][0-9]+, )*[A-K][0-9]+: [^ ]+( [^ ]+){4}' || true)
[ -z "$bare" ] || {
    printf 'a lesson without its sentence:\n%s\n' "$bare"
    exit 1
}

# tests_of A1: "file: case, case; file: case", in order
tests_of() {
    awk -v number="$1" '
        FNR == 1 { waits = 0 }
        $0 ~ "^/[*] ([A-K][0-9]+, )*" number "[,:]" { waits = 1 }
        waits && /^static void [a-z0-9_]+\(void\)$/ {
            name = $3
            sub(/\(void\)/, "", name)
            file = FILENAME
            sub(/^tests\//, "", file)
            text = text (file == last ? ", " : (text == "" ? "" : "; ") file ": ") name
            last = file
            waits = 0
        }
        END { print text }' tests/*.c tests/*/*.c
}

while IFS= read -r line; do
    case $line in
    '| '[A-K][0-9]' |'*'|'*'|' | '| '[A-K][0-9][0-9]' |'*'|'*'|')
        number=$(echo "$line" | cut -d '|' -f 2 | tr -d ' ')
        promise=$(echo "$line" | cut -d '|' -f 3)
        tests=$(tests_of "$number")
        printf '| %s |%s| %s |\n' "$number" "$promise" "${tests:-none yet}"
        ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$page" >"$new"
if [ "${1:-}" = --check ]; then
    cmp -s "$new" "$page" || { echo "$page: its table is old, run scripts/lessons.sh"; exit 1; }
else
    cat "$new" >"$page"
fi
