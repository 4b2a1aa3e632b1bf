#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_abi.sh: today's public headers against those of 0.1.0 as they were first published
# (tests/abi/v0_1): what a program was compiled with still means the same.
#
#   - every call, struct, field and enum constant of then is there, with the same prototype, place,
#     size or value
#   - new fields of a struct with a size are behind what was its sizeof, never in its padding; those
#     of another struct take the place of its `reserved` words; its sizeof stays
#
# And a call fills no struct but one that can grow: with a size, with reserved words, or of the few
# that never will.
set -eu
cd "$(dirname "$0")/.."

before=tests/abi/v0_1
now=include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of these the caller says how far apart they lie (event_size), or they never grow.
strided='pkv_event'
fixed='pkv_block_key'

# The prototypes in a folder's headers, one a line.
calls() {
    awk '
        /^PKV_API/ { text = "" ; is_call = 1 }
        is_call { text = text " " $0 }
        is_call && /;/ {
            gsub(/PKV_API|PKV_NODISCARD/, "", text)
            gsub(/[ \t]+/, " ", text)
            print text
            is_call = 0
        }' "$1"/pagedkv/*.h | sort
}

# A program that prints where each field is and what each constant is.
program() {
    awk '
    function show(what) { print "    printf(" what ");" }
    function field(name, declarator) {
        if (match(declarator, /\(\*[a-z_0-9]+\)/))
            declarator = substr(declarator, RSTART + 2, RLENGTH - 3)
        sub(/\[.*/, "", declarator)
        sub(/.*[ *]/, "", declarator)
        if (declarator != "")
            show("\"" name "." declarator " %zu %zu\\n\", offsetof(struct " name ", " declarator \
                 "), sizeof ((struct " name " *)0)->" declarator)
    }
    {
        print "#include <pagedkv.h>\n#include <stdio.h>\nint main(void)\n{"
        gsub(/ +/, " ")
        while (match($0, /(struct|enum) pkv_[a-z_0-9]+ \{[^}]*\}/)) {
            body = substr($0, RSTART, RLENGTH)
            $0 = substr($0, RSTART + RLENGTH)
            split(body, words, " ")
            sub(/^[^{]*\{ */, "", body)
            sub(/ *\}$/, "", body)
            n = split(body, parts, words[1] == "enum" ? "," : ";")
            if (words[1] == "struct")
                show("\"" words[2] " 0 %zu\\n\", sizeof(struct " words[2] ")")
            for (i = 1; i <= n; i++) {
                if (words[1] == "enum") {
                    sub(/=.*/, "", parts[i])
                    gsub(/ /, "", parts[i])
                    if (parts[i] ~ /^[A-Z_0-9]+$/)
                        show("\"" parts[i] " %d\\n\", (int)" parts[i])
                } else if (parts[i] ~ /\(\*/) {
                    field(words[2], parts[i])
                } else {
                    m = split(parts[i], names, ",")
                    for (k = 1; k <= m; k++) field(words[2], names[k])
                }
            }
        }
        print "    return 0;\n}"
    }' "$1"
}

# CC may be "ccache gcc".
# shellcheck disable=SC2086
layout() {
    ${CC:-cc} -std=c17 -w -I"$2" -x c "$1" -o "$work/show" && "$work/show"
}

# CC may be "ccache gcc".
# shellcheck disable=SC2086
for at in before now; do
    [ $at = before ] && folder=$before || folder=$now
    calls $folder >"$work/$at.calls"
    ${CC:-cc} -std=c17 -E -P -I$folder $folder/pagedkv.h | tr '\n\t' '  ' >"$work/$at"
    program "$work/$at" >"$work/$at.c"
done
bad=0
gone=$(comm -23 "$work/before.calls" "$work/now.calls")
[ -z "$gone" ] || { printf 'calls of 0.1.0 that changed or are gone:\n%s\n' "$gone"; bad=1; }

layout "$work/before.c" $before >"$work/was"
layout "$work/before.c" $now >"$work/is" || { echo "a field or constant of 0.1.0 is gone"; exit 1; }
layout "$work/now.c" $now >"$work/all"
awk -v strided="$strided" -v fixed="$fixed" '
    function report(text) { print text; bad = 1 }
    function of(field) { sub(/\..*/, "", field); return field }
    function grows(name) { return ((name ".size") in was) || name == strided }
    FILENAME ~ /was$/ { was[$1] = $2 " " $3; end[$1] = $3; start[$1] = $2 }
    FILENAME ~ /is$/ && $1 !~ /\.reserved$/ {
        is_sum = $1 ~ /^pkv_[a-z_0-9]*$/
        if (is_sum && grows($1) ? $3 < end[$1] : was[$1] != $2 " " $3)
            report($1 " was " was[$1] ", is " $2 " " $3)
    }
    FILENAME ~ /all$/ {
        all[$1]
        if ($1 ~ /\./ && !($1 in was) && (of($1) in was)) {
            struct = of($1)
            place = grows(struct) ? end[struct] : start[struct ".reserved"]
            if (place == "" || $2 < place)
                report($1 ", at byte " $2 ", is where a caller of 0.1.0 has something else")
        }
    }
    # Structs that a call fills.
    FILENAME ~ /calls$/ {
        rest = $0
        gsub(/const struct pkv_[a-z_0-9]+ \*/, "", rest)
        while (match(rest, /struct pkv_[a-z_0-9]+ \*/)) {
            name = substr(rest, RSTART + 7, RLENGTH - 9)
            rest = substr(rest, RSTART + RLENGTH)
            if (!((name ".size") in all) && !((name ".reserved") in all) && name != strided &&
                name != fixed)
                report("struct " name " is filled by a call, and cannot grow")
            count++
        }
    }
    END {
        if (count < 10) report("only " count + 0 " structs that are filled")
        exit bad
    }' "$work/was" "$work/is" "$work/all" "$work/now.calls" || bad=1
[ $bad = 0 ] || exit 1
echo "abi: of 0.1.0 $(wc -l <"$work/was") fields and constants," \
    "$(wc -l <"$work/before.calls") calls"
