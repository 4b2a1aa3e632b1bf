#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_words.sh [FILE..]: no name, comment, error or document uses a word of retired_words.txt.
# Prints each place with what to use instead and exits 1. With --counts it only counts, by word and
# folder, and exits 0. A phrase is also found where a line break cuts it in two.
set -eu

counts=0
[ "${1:-}" != --counts ] || {
    counts=1
    shift
}
list=scripts/retired_words.txt
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(find include src tests bench examples scripts docs .ci -type f \
    \( -name '*.[ch]' -o -name '*.md' -o -name '*.sh' -o -name '*.[0-9]' -o -name run \)) \
    README.md CHANGELOG.md CONTRIBUTING.md Makefile mk/*.mk \
    $(find bindings/python -type f \( -name '*.py' -o -name '*.md' \))

awk -v counts=$counts '
    # The list comes first.
    FNR == NR {
        if (/^ *(#|$)/) next
        pattern = substr($0, 1, match($0, /  +/) - 1)
        instead = substr($0, RSTART + RLENGTH)
        if (pattern == "except") {
            exceptions = exceptions (exceptions == "" ? "" : "|") instead
            next
        }
        words[++num_words] = pattern
        if ((at = index(instead, "@")) > 0) {
            places[num_words] = "^(" substr(instead, at + 2) ")"
            instead = substr(instead, 1, at - 1)
        }
        sub(/ +$/, "", instead)
        use[num_words] = instead
        any = any (any == "" ? "" : "|") "(" pattern ")"
        next
    }
    FNR == 1 {
        search(text, "")
        file = FILENAME
        line = 0
        text = plain(file)
    }
    {
        next_text = plain($0)
        search(text, next_text)
        text = next_text
        line = FNR
    }
    END {
        search(text, "")
        for (w = 1; counts && w <= num_words; w++) {
            if (!found[w]) continue
            shown = sprintf("%5d  %s:", found[w], use[w])
            for (i = 1; i <= num_folders; i++)
                if ((w, folders[i]) in by_folder)
                    shown = shown " " folders[i] " " by_folder[w, folders[i]]
            print shown "  (" words[w] ")"
        }
        if (counts) print total + 0 " uses of retired words"
        else if (!total) print "words: none of " num_words " retired ones is in use"
        exit !counts && total > 0
    }

    # One line without the marks of a comment, in lower case, blanks at both ends.
    function plain(s) {
        s = tolower(s)
        sub(/^ *(\/\*|\*|\/\/|#)? */, "", s)
        gsub(exceptions, "", s)
        if (FILENAME == "CHANGELOG.md") gsub(/`[^`]*`/, "", s) # old names are told to users
        return " " s " "
    }
    # Matches that begin in s; after is the line below it.
    function search(s, after,   both, w) {
        both = s substr(after, 2)
        if (both !~ any) return
        for (w = 1; w <= num_words; w++)
            if (!(w in places) || file ~ places[w]) search_word(w, both, length(s) - 1)
    }
    function search_word(w, s, end,   begin, pattern) {
        pattern = "[^a-z](" words[w] ")[^a-z]"
        begin = 0
        while (match(s, pattern) && begin + RSTART < end) {
            report(w, substr(s, RSTART + 1, RLENGTH - 2))
            begin += RSTART + RLENGTH - 2
            s = substr(s, RSTART + RLENGTH - 1)
        }
    }
    function report(w, what,   folder) {
        total++
        found[w]++
        folder = file
        sub(/\/[^\/]*$/, "", folder)
        if (!(folder in known)) { known[folder]; folders[++num_folders] = folder }
        by_folder[w, folder]++
        if (!counts) printf "%s:%d: \"%s\": %s\n", file, line, what, use[w]
    }' "$list" "$@"
