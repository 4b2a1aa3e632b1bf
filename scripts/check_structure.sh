#!/bin/sh
# SPDX-License-Identifier: MIT
#
# structure.sh: what a module's headers may hold, and how long its functions are.
#
#   - a struct in a header of src bears a word of the header's name or of its module's, and where a
#     header has its whole name, as block.h for struct block, it is in that one
#   - a function that a header declares is defined in the .c file of the header's name
#   - a .c file declares nothing that another file defines
#
# Prints each breach and, by folder, the number of files and functions, the longest of both and the
# median length of a function, which style wants at 12 lines or below. Exits 1 when --check is given
# and there is a breach.
set -eu

check=${1:-}
breaches=$(
    for header in src/*/*.h; do
        stem=${header%.h}
        module=${header%/*}
        others=$(cd "$module" && ls -- *.h)
        awk -v header="$header" -v stem="${stem##*/}" -v module="${module##*/}" \
            -v others="$others" '
            # One word stands for the other when it is its beginning: seq and sequence.
            function alike(a, b) {
                return length(a) >= 3 && length(b) >= 3 && (index(a, b) == 1 || index(b, a) == 1)
            }
            # A word of the name is one of the header or of the module.
            function bears(name,   i, j, words, parts) {
                for (i = split(name, words, "_"); i > 0; i--)
                    for (j = split(module "_" stem, parts, "_"); j > 0; j--)
                        if (alike(words[i], parts[j])) return 1
                return 0
            }
            # The header of the module whose whole name the struct begins with, the longest first.
            function home(name,   i, best, files) {
                for (i = split(others, files, "\n"); i > 0; i--) {
                    sub(/\.h$/, "", files[i])
                    if (index(name "_", files[i] "_") == 1 && length(files[i]) > length(best))
                        best = files[i]
                }
                return best
            }
            /^(struct|union) [a-z0-9_]+ \{/ {
                name = $2
                sub(/^pkv_/, "", name)
                best = home(name)
                if (best != "" && best != stem)
                    print header ":" FNR ": struct " $2 " belongs in " best ".h"
                else if (!bears(name))
                    print header ":" FNR ": struct " $2 " is of another module"
            }' "$header"
        # Prototypes of functions, one a line: they begin in the first column and end with );
        awk '
            /^(static|typedef|extern|struct [a-z0-9_]+ \{|enum|union|#|\/|[ }])/ && !open { next }
            /^[a-z]/ || open {
                text = text " " $0
                open = !/[;{]/
                if (open) next
                if (text ~ /\) *[A-Z_]*;$/ && match(text, /[a-z0-9_]+\(/))
                    print substr(text, RSTART, RLENGTH - 1)
                text = ""
            }' "$header" | while read -r function; do
            if [ ! -e "$stem.c" ]; then
                echo "$header: declares $function and has no ${stem##*/}.c"
            elif ! grep -qE "^[a-z].*\b$function\(" "$stem.c"; then
                echo "$header: $function is not defined in ${stem##*/}.c"
            fi
        done
    done
    grep -nE '^extern ' src/*/*.c | sed 's/:extern/: declares what another file defines: extern/' ||
        true
)
[ -z "$breaches" ] || printf '%s\n' "$breaches"

# A function's body lies between a { and a } in the first column.
awk '
    FNR == 1 {
        folder = FILENAME
        sub(/\/[^\/]*$/, "", folder)
        if (!(folder in files)) folders[++num_folders] = folder
        files[folder]++
        start = 0
    }
    { if (FNR > longest_file[folder]) longest_file[folder] = FNR }
    /^\{$/ { start = FNR }
    /^\}$/ && start {
        lines = FNR - start - 1
        functions[folder]++
        with[folder, lines]++
        if (lines > longest[folder]) longest[folder] = lines
        start = 0
    }
    function median(folder,   lines, seen) {
        for (lines = -1; 2 * seen < functions[folder]; lines++) seen += with[folder, lines + 1]
        return lines
    }
    END {
        printf "%-16s %5s %13s %9s %14s %16s\n", "folder", "files", "longest file", "functions",
               "median, lines", "longest function"
        for (i = 1; i <= num_folders; i++) {
            folder = folders[i]
            printf "%-16s %5d %13d %9d %14d %16d\n", folder, files[folder], longest_file[folder],
                   functions[folder], median(folder), longest[folder]
        }
    }' src/*/*.[ch] tests/*.c tests/*/*.[ch]
if [ -n "$breaches" ]; then
    echo "structure: $(printf '%s\n' "$breaches" | wc -l) breaches"
    [ "$check" != --check ] || exit 1
else
    echo "structure: each struct and function of src is in the module of its name"
fi
