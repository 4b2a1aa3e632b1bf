#!/bin/sh
# SPDX-License-Identifier: MIT
#
# coverage_table.sh [--check]: fills the table of docs/testing.md that says which tests cover which
# source file of src. foo.c and foo.h are one source, and its tests are the files of tests/ that
#
#   - bear its name, tests/alloc/mem.c for src/alloc/mem.c, or include its header
#   - then those that call the public functions that it defines
#
# Headers, files named *_case and those of tests/support are what tests use, and no tests.
# A source with neither is tested through the sources that include its header. With --check the
# page is only compared. A public function that no test calls is an error.
set -eu

page=docs/testing.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '
    function stem_of(path) {
        sub(/^(src|tests)\//, "", path)
        sub(/\.[ch]$/, "", path)
        return path
    }
    function list(text, item) { return text (text == "" ? "" : ", ") item }
    # Once per source and test file.
    function own_test(stem, file) {
        if (!((stem, file) in is_own)) own[stem] = list(own[stem], file)
        is_own[stem, file]
    }
    function find_calls(text, file,   name) {
        while (match(text, /pkv_[a-z0-9_]+/)) {
            name = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            if (!(name in is_public)) continue
            is_called[name]
            calls[name, file]
        }
    }
    FNR == 1 {
        folder = FILENAME
        sub(/\/.*/, "", folder)
        stem = stem_of(FILENAME)
        test = FILENAME
        sub(/^tests\//, "", test)
        if (folder == "src" && !(stem in known)) { known[stem]; stems[++num_stems] = stem }
        is_fixture = FILENAME ~ /\.h$|_case[a-z_]*\.c$|\/support\//
        if (folder == "tests" && !is_fixture) tests[++num_tests] = test
        if (folder == "tests" && FILENAME ~ /\.c$/)
            for (i = 1; i <= num_stems; i++)
                if (index(stem, stems[i]) == 1) own_test(stems[i], test)
    }
    # The public functions come first, then src, then tests.
    folder == "include" {
        if (/^PKV_API/) is_open = 1
        if (!is_open) next
        text = text " " $0
        if (!/[(]/) next
        sub(/\(.*/, "", text)
        sub(/.*[ *]/, "", text)
        is_public[text]
        publics[++num_publics] = text
        is_open = 0
        text = ""
        next
    }
    /^ *# *include "/ {
        split($0, quoted, "\"")
        header = stem_of(quoted[2])
        if (folder == "tests" && header in known) {
            if (!is_fixture) own_test(header, test)
        } else if (header != stem && !((header, stem) in is_used)) {
            is_used[header, stem]
            users[header] = list(users[header], stem)
        }
        next
    }
    folder == "src" && /^[a-z].*\(/ && !/^static / {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (name in is_public) defined[stem] = list(defined[stem], name)
    }
    folder == "tests" && /pkv_/ && !/^ *(\/\*|\*)/ { find_calls($0, test) }
    # The first few of a list, and how many more there are.
    function shorten(text,   parts, num_parts, short, i) {
        num_parts = split(text, parts, ", ")
        for (i = 1; i <= num_parts && i <= 5; i++) short = list(short, parts[i])
        return short (num_parts > 5 ? " and " num_parts - 5 " more" : "")
    }
    # The tests that call a function of this source, those of its own module first.
    function add_callers(stem, module, names, num_names,   pass, t, n, is_near) {
        for (pass = 1; pass <= 2; pass++)
            for (t = 1; t <= num_tests; t++) {
                is_near = index(tests[t], module "/") == 1
                for (n = 1; n <= num_names; n++)
                    if (is_near == (pass == 1) && (names[n], tests[t]) in calls)
                        own_test(stem, tests[t])
            }
    }
    END {
        print "| source | public calls | tests |"
        print "|---|---|---|"
        for (i = 1; i <= num_stems; i++) {
            stem = stems[i]
            module = stem
            sub(/\/.*/, "", module)
            num_names = split(defined[stem], names, ", ")
            add_callers(stem, module, names, num_names)
            if (own[stem] != "") text = shorten(own[stem])
            else if (users[stem] != "") text = "through " shorten(users[stem])
            else text = "all of tests/" (stem ~ /\/kernels_/ ? "kernels" : module)
            printf "| %s | %s | %s |\n", stem, num_names ? num_names : "", text
        }
        for (n = 1; n <= num_publics; n++)
            if (!(publics[n] in is_called)) print "no test calls " publics[n] >"/dev/stderr"
    }' include/pagedkv/*.h src/*/*.[ch] tests/*.[ch] tests/*/*.[ch] >"$work/table" 2>"$work/faults"

awk -v table="$work/table" '
    /^<!-- coverage table: end -->/ { hidden = 0 }
    !hidden { print }
    /^<!-- coverage table: begin/ {
        hidden = 1
        while ((getline line <table) > 0) print line
    }' "$page" >"$work/page"
cat "$work/faults" >&2
[ ! -s "$work/faults" ] || exit 1
if [ "${1:-}" = --check ]; then
    cmp -s "$work/page" "$page" ||
        { echo "$page: its table of coverage is old, run scripts/coverage_table.sh"; exit 1; }
else
    cat "$work/page" >"$page"
fi
