#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_stress.sh [--list]: the stress calls every public function that takes the cache's mutex, by
# itself or through others of src/runtime, so that a lock that is left out is a race that the thread
# sanitiser sees. --list prints those functions.
set -eu

awk -v list="${1:-}" '
    function plain(line) {
        gsub(/"[^"]*"/, "", line)
        sub(/\/\*.*/, "", line)
        return line
    }
    # Adds the names that are called in a line to found[].
    function find_calls(line, found) {
        split("", found)
        for (line = plain(line); match(line, /[a-z_][a-z0-9_]*\(/);
             line = substr(line, RSTART + RLENGTH))
            found[substr(line, RSTART, RLENGTH - 1)]
    }
    FNR == 1 { name = "" }
    /^( \*|\/\*)/ { next }
    FILENAME ~ /^tests/ {
        find_calls($0, found)
        for (callee in found) stressed[callee]
        next
    }
    # A definition begins at the margin. A static function of a .c file belongs to that file.
    /^[a-z].*\(/ && !/;$/ {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (/^static/ && FILENAME ~ /\.c$/) { is_own[FILENAME, name]; name = FILENAME ":" name }
        file[name] = FILENAME
    }
    /^}/ { name = "" }
    /^ / && name != "" {
        find_calls($0, found)
        for (callee in found) calls[name, callee]
    }
    END {
        takes["cache_lock"]
        takes["cache_queue"]
        do {
            grew = 0
            for (pair in calls) {
                split(pair, ends, SUBSEP)
                callee = ends[2]
                if ((file[ends[1]], callee) in is_own) callee = file[ends[1]] ":" callee
                if (callee in takes && !(ends[1] in takes)) { takes[ends[1]]; grew = 1 }
            }
        } while (grew)
        for (name in takes) if (name ~ /^pkv_/) {
            count++
            if (list != "") print name
            else if (!(name in stressed)) {
                missing++
                print "the stress does not call " name ", which takes the mutex"
            }
        }
        if (count < 30) { print "only " count + 0 " functions found"; exit 1 }
        if (missing) exit 1
        if (list == "") print "stress: calls all " count " public functions that take the mutex"
    }' src/runtime/*.c src/runtime/*.h tests/stress/*.c
