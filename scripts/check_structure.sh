#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_structure.sh: what a module's headers may hold, and how long its functions are.
#
#   - a struct in a header of src bears a word of the header's name or of its module's, and where a
#     header has its whole name, as block.h for struct block, it is in that one
#   - a header declares no struct forward that another header defines: types form no circle
#   - a function that a header declares is defined in the .c file of the header's name
#   - a .c file declares nothing that another file defines
#   - nothing of src/runtime is named prefix_, as src/prefix is
#   - half of the functions of a folder of src have 12 lines or fewer
#
# Prints, by folder, the number of files and functions, the longest of both and the median length of
# a function, and then each breach. Exits 1 when there is one and --report is not given.
set -eu

breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT

# check_structs HEADER: its structs are its own
check_structs() {
    others=$(cd "${1%/*}" && ls -- *.h)
    awk -v header="$1" -v others="$others" '
        BEGIN {
            split(header, path, "/")
            module = path[2]
            stem = path[3]
            sub(/\.h$/, "", stem)
        }
        # One word stands for the other when it is its beginning: seq and sequence.
        function alike(a, b) {
            return length(a) >= 3 && length(b) >= 3 && (index(a, b) == 1 || index(b, a) == 1)
        }
        function bears_word(name,   i, j, words, parts) {
            # The header of the kernels has a struct of arguments for each of them.
            if (stem == "kernels" && name ~ /_job$/) return 1
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
        /^(struct|union) [a-z0-9_]+;/ {
            name = $2
            sub(/;.*/, "", name)
            if (name != stem) print header ":" FNR ": struct " name " is only declared here"
        }
        /^(struct|union) [a-z0-9_]+ \{/ {
            name = $2
            sub(/^pkv_/, "", name)
            best = home(name)
            if (best != "" && best != stem)
                print header ":" FNR ": struct " $2 " belongs in " best ".h"
            else if (!bears_word(name))
                print header ":" FNR ": struct " $2 " is of another module"
        }' "$1"
}

# declared_in HEADER: the functions whose prototypes begin in the first column and end with );
declared_in() {
    awk '
        /^(static|typedef|extern|struct [a-z0-9_]+ \{|enum|union|#|\/|[ }])/ && !open { next }
        /^[a-z]/ || open {
            text = text " " $0
            open = !/[;{]/
            if (open) next
            if (text ~ /\) *[A-Z_]*;$/ && match(text, /[a-z0-9_]+\(/))
                print substr(text, RSTART, RLENGTH - 1)
            text = ""
        }' "$1"
}

# check_functions HEADER: what it declares is defined in the .c file of its name
check_functions() {
    source=${1%.h}.c
    for function in $(declared_in "$1"); do
        if [ ! -e "$source" ]; then
            echo "$1: declares $function and has no ${source##*/}"
        elif ! grep -qE "^[a-z].*\b$function\(" "$source"; then
            echo "$1: $function is not defined in ${source##*/}"
        fi
    done
}

for header in src/*/*.h; do
    check_structs "$header"
    check_functions "$header"
done >"$breaches"
grep -nE '^extern ' src/*/*.c >>"$breaches" || true
# The runtime's side of the prefix index is called reuse, so that prefix_ names one module.
grep -nE '^([a-z][^(]* \*?prefix_[a-z_]+\(|struct prefix_[a-z_]+ \{)' src/runtime/*.[ch] \
    >>"$breaches" || true

# A function's body lies between a { and a } in the first column.
awk -v breaches="$breaches" '
    FNR == 1 {
        folder = FILENAME
        sub(/\/[^\/]*$/, "", folder)
        if (!(folder in files)) folders[++num_folders] = folder
        files[folder]++
        start = 0
    }
    FNR > longest_file[folder] { longest_file[folder] = FNR }
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
        format = "%-14s %5s  %12s  %9s  %13s  %16s\n"
        printf format, "folder", "files", "longest file", "functions", "median, lines",
               "longest function"
        for (i = 1; i <= num_folders; i++) {
            folder = folders[i]
            printf format, folder, files[folder], longest_file[folder], functions[folder] + 0,
                   median(folder), longest[folder] + 0
            if (folder ~ /^src/ && median(folder) > 12)
                print folder ": half of its functions are longer than 12 lines" >>breaches
        }
    }' src/*/*.[ch] tests/*.c tests/*/*.[ch] examples/*.c examples/*/*.[ch] bench/*/*.[ch]

if [ -s "$breaches" ]; then
    cat "$breaches"
    echo "structure: $(wc -l <"$breaches") breaches"
    [ "${1:-}" = --report ] || exit 1
else
    echo 'structure: every struct and function of src is in the module of its name'
fi
