#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_style.sh: the gates of CONTRIBUTING.md that a line count can hold. Prints every breach and
# exits 1. With --words it counts the uses of retired words instead.
set -eu

[ "${1:-}" != --words ] || exec scripts/check_words.sh --counts

bad=0
sources=$(ls include/*.h include/*/*.h src/*/*.[ch] tests/*.[ch] tests/*/*.[ch] examples/*.[ch] \
    examples/*/*.[ch] bench/*.[ch] bench/*/*.[ch] 2>/dev/null || true)
scripts=$(ls scripts/*.sh .ci/run Makefile mk/*.mk)

# report TEXT LINES: says TEXT and the lines, when there are any
report() {
    [ -z "$2" ] || {
        printf '%s:\n%s\n' "$1" "$2"
        bad=1
    }
}

report 'no SPDX line at the top' "$(for f in $sources $scripts; do
    head -n 2 "$f" | grep -q 'SPDX-License-Identifier: MIT' || echo "$f"
done)"

report 'file longer than 800 lines' "$(for f in $sources $scripts; do
    lines=$(wc -l <"$f")
    [ "$lines" -le 800 ] || echo "$f: $lines"
done)"
report 'Makefile longer than 200 lines' "$(awk 'END { if (NR > 200) print NR }' Makefile)"
# shellcheck disable=SC2086
report 'line wider than 100 columns' "$(awk 'length($0) > 100 { print FILENAME ":" FNR }' \
    $sources $scripts)"

# A function's body stands between a { and a } in the first column.
# shellcheck disable=SC2086
report 'function longer than 60 lines (kernels: 100)' "$(awk '
    FNR == 1 { cap = FILENAME ~ /src\/attn\/(kernels|vec)_/ ? 100 : 60; start = 0 }
    /^\{$/ { start = FNR }
    /^\}$/ && start { if (FNR - start - 1 > cap) print FILENAME ":" start ": " FNR - start - 1
                      start = 0 }' $sources)"
# shellcheck disable=SC2086
report 'nesting deeper than 3' \
    "$(grep -nE '^ {16,}(if|for|while|switch|do)( \(| \{)' $sources || true)"

# Conditions of the preprocessor have their places; an include guard is none.
report '#if outside build.h, error.h, cpu.c, dispatch.c, openmp.c, vec_*.h' \
    "$(for f in src/*/*.[ch]; do
    case $f in
    src/base/build.h | src/base/error.h) ;;
    src/attn/cpu.c | src/attn/dispatch.c | src/attn/openmp.c | src/attn/vec_*.h) ;;
    *) grep -nE '^ *# *(if|ifdef|ifndef|elif)\b' "$f" | grep -vE 'ifndef PKV_[A-Z0-9_]+_H$' |
        sed "s|^|$f:|" || true ;;
    esac
done)"
# shellcheck disable=SC2086
report '#if 0' "$(grep -nE '^ *# *if 0' $sources || true)"
# shellcheck disable=SC2086
report 'token pasting' \
    "$(grep -nE '[A-Za-z0-9_] *## *[A-Za-z0-9_]' $sources | grep -v 'kernels_##name' || true)"
# shellcheck disable=SC2086
report 'absolute path' "$(grep -nE '"/[a-z]+/' $sources | grep -vE '"/(dev|proc)/' || true)"
# shellcheck disable=SC2086
report 'absolute path' "$(grep -nE '[ "=](/home|/work|/root|/tmp)/' $scripts |
    grep -v 'check_style' || true)"
# shellcheck disable=SC2086
report 'TODO without a number' \
    "$(grep -nE 'TODO|FIXME|\bXXX\b' $sources | grep -vE '#[0-9]+' || true)"

# One spelling: error.h has a name for the most frequent refusal.
report 'refuse(PKV_INVALID_ARGUMENT, ..) instead of INVALID(..)' \
    "$(grep -nE 'refuse\(PKV_INVALID_ARGUMENT' src/*/*.[ch] | grep -v '^src/base/error.h' || true)"

suites=$(sed -n 's/^const struct test_suite \(suite_[a-z0-9_]*\).*/\1/p' tests/*.c tests/*/*.c)
report 'suite that is not in tests/suites.h' "$(for suite in $suites; do
    grep -qx "SUITE($suite)" tests/suites.h || echo "$suite"
done)"

if command -v shellcheck >/dev/null; then
    report 'shellcheck' "$(shellcheck scripts/*.sh .ci/run || true)"
else
    echo 'skipped: scripts, no shellcheck on this machine'
fi

scripts/check_words.sh || bad=1

# What README and docs show of our files is in them, and what is written by scripts is up to date.
scripts/check_docs.sh --static || bad=1
scripts/coverage_table.sh --check || bad=1
scripts/lessons.sh --check || bad=1
scripts/man.sh --check || bad=1

[ $bad = 0 ] && echo "style: $(echo "$sources" | wc -w) files hold the gates"
exit $bad
