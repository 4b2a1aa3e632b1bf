#!/bin/sh
# SPDX-License-Identifier: MIT
#
# coverage.sh BUILD: what the programs that ran in a coverage build have reached. Lines and branches
# (gcov: a branch counts when it was taken at least once) of every file of src, then the totals of
# alloc, pages and slots, on which all else stands. GCOV comes from the Makefile.
set -eu

build=${1:?usage: coverage.sh BUILD}
counts=$(find "$build/obj/src" -name '*.gcda' | sort)
[ -n "$counts" ] || { echo "coverage.sh: nothing ran in $build" >&2; exit 1; }

# A header's share comes again with each file that includes it; files of src alone are counted.
# shellcheck disable=SC2086
${GCOV:-gcov} -b -n $counts 2>/dev/null | awk '
    function share(part, all) { return all > 0 ? sprintf("%6.2f %%", 100 * part / all) : "     - " }
    function row(name) {
        printf "%-32s %s of %5d lines   %s of %5d branches\n", name,
               share(lines[name], all_lines[name]), all_lines[name],
               share(taken[name], all_branches[name]), all_branches[name]
    }
    function add(name, percent, count, parts, wholes) {
        parts[name] += int(percent * count / 100 + 0.5)
        wholes[name] += count
    }
    /^File / {
        file = $2
        gsub("\047", "", file)
        if (file !~ /^src\/[a-z]+\/[a-z0-9_]+\.c$/) file = ""
        if (file != "") files[++num_files] = file
        split(file, parts_of, "/")
        module = "src/" parts_of[2]
        next
    }
    file != "" && /^(Lines executed|Taken at least once):/ {
        split($0, halves, ":")
        split(halves[2], words, "% of ")
        if (/^Lines/) {
            add(file, words[1], words[2], lines, all_lines)
            add(module, words[1], words[2], lines, all_lines)
        } else {
            add(file, words[1], words[2], taken, all_branches)
            add(module, words[1], words[2], taken, all_branches)
        }
    }
    /^(Calls executed|No calls)/ { file = "" } # the last line sums up all files
    END {
        for (i = 1; i <= num_files; i++) row(files[i])
        print ""
        num_watched = split("src/alloc src/pages src/prefix src/slots", watched, " ")
        total = "the three together"
        for (i = 1; i <= num_watched; i++) {
            row(watched[i])
            lines[total] += lines[watched[i]]
            all_lines[total] += all_lines[watched[i]]
            taken[total] += taken[watched[i]]
            all_branches[total] += all_branches[watched[i]]
        }
        row(total)
    }'
