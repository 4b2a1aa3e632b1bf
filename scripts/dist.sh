#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dist.sh VERSION: writes build/pagedkv-VERSION.tar.xz, the tracked files of the commit that is
# checked out, in a folder of the same name. The same commit gives the same bytes: times are the
# commit's, owners are none, and one thread compresses. It is written twice and compared.
set -eu
cd "$(dirname "$0")/.."

version=${1:?dist.sh VERSION}
archive=build/pagedkv-$version.tar.xz
if ! git rev-parse --verify -q HEAD >/dev/null; then
    echo 'dist: not a git checkout: the tracked files are not known' >&2
    exit 1
fi
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo 'dist: changes that are not committed are left out'

write() {
    git -c tar.umask=0022 archive --format=tar --prefix="pagedkv-$version/" HEAD |
        xz --threads=1 -6 --check=crc64
}
mkdir -p build
write >"$archive.new"
write | cmp - "$archive.new" || { echo 'dist: two runs differ' >&2; exit 1; }
mv "$archive.new" "$archive"
echo "$archive: $(tar tf "$archive" | grep -vc '/$') files, $(wc -c <"$archive") bytes"
