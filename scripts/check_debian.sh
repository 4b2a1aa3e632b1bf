#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_debian.sh: builds the Debian packages in a copy under build/, of the files that git tracks,
# runs lintian over them, and a program and the Python module out of them. The tests of the library
# are left out of the build (`make check` has them). Where debhelper or lintian is missing and
# cannot be installed, a line says so, and the exit status is 0.
set -eu
cd "$(dirname "$0")/.."

if ! scripts/deps.sh debian; then
    echo 'debian: skipped, its packages are missing'
    exit 0
fi
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES BUILD VARIANT WERROR
folder=$PWD/build/debian
rm -rf "$folder"
mkdir -p "$folder/pagedkv" "$folder/root"
git ls-files -z | tar --null --files-from=- -c | tar -x -C "$folder/pagedkv"
(
    cd "$folder/pagedkv"
    DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" DPKG_GENSYMBOLS_CHECK_LEVEL=4 \
        dpkg-buildpackage -us -uc -b >"$folder/log" 2>&1
) || { tail -n 30 "$folder/log" >&2; exit 1; }
lintian --fail-on error,warning,info --display-info "$folder"/*.changes

for package in "$folder"/*.deb; do
    dpkg-deb -x "$package" "$folder/root"
done
libdir=$(dirname "$(find "$folder/root" -name 'libpagedkv.so')")
LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH
# shellcheck disable=SC2046
cc "$folder/root/usr/share/doc/libpagedkv-dev/examples/decode.c" -o "$folder/decode" \
    $(PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$folder/root \
        pkg-config --cflags --libs pagedkv)
"$folder/decode"
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    (cd "$folder" && PYTHONDONTWRITEBYTECODE=1 \
        PYTHONPATH=$folder/root/usr/lib/python3/dist-packages /usr/bin/python3 -c \
        'import pagedkv; print("python3-pagedkv", pagedkv.__version__)')
fi
echo "debian: $(find "$folder" -maxdepth 1 -name '*.deb' | wc -l) packages"
