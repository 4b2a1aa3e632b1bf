#!/bin/sh
# SPDX-License-Identifier: MIT
#
# man.sh [--check]: writes docs/man/*.3 from the public headers: a page for each call, and for
# each header one with the comment that opens it and its calls. That of base.h is pagedkv(3).
#
#   NAME            the first sentence of the comment above the declaration
#   SYNOPSIS        include line and prototype
#   DESCRIPTION     the comment; indented lines stay as they are
#   TYPES           structs and enums that the call takes, with their comments. What those contain
#                   in turn is shown on the first page that needs it, and referred to on others
#   RETURN VALUES   the paragraph that begins with "Returns"
#   SEE ALSO        pagedkv(3), the page of the header, the header's other calls
#
# With --check it writes nothing, says which pages are stale, missing or of a call that is gone, has
# mandoc check them where it is installed, and exits 1 for each of these.
set -eu
cd "$(dirname "$0")/.."

# Of the last change of the interface, by hand: a date of the file or of the commit would make all
# pages stale with each change.
date='November 30, 2026'
# In the order in which they build on each other: what a type contains is described first.
headers='base alloc pages slots attn select contract tier cache swap step prefix offload metrics
         save'
pages=docs/man

# write_pages FOLDER
write_pages() {
    # shellcheck disable=SC2046,SC2086
    awk -v date="$date" -v folder="$1" -f scripts/man.awk \
        $(printf 'include/pagedkv/%s.h ' $headers)
}

if [ "${1:-}" != --check ]; then
    mkdir -p "$pages"
    rm -f "$pages"/*.3
    write_pages "$pages"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
write_pages "$work"
if ! diff -rq "$work" "$pages" >"$work.diff" 2>&1; then
    echo 'man: pages do not follow the headers; run scripts/man.sh:'
    sed "s|$work|the headers|; s|^|  |" "$work.diff"
    rm -f "$work.diff"
    exit 1
fi
rm -f "$work.diff"
count=$(find "$pages" -name '*.3' | wc -l)
if command -v mandoc >/dev/null; then
    # Lines of level STYLE are hidden: they say that pages which are not installed yet are not
    # found, and that .Os names no operating system.
    mandoc -T lint -W warning "$pages"/*.3
    echo "man: $count pages follow the headers, mandoc has no warning"
else
    echo "man: $count pages follow the headers; skipped: mandoc is not installed"
fi
