#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_cmake.sh: a client that finds an installed copy by cmake's find_package, linked to the
# shared library and to the archive; and versions that must not be found. BUILD is where the
# library is built. Where cmake is missing and cannot be installed, a line says so, and the exit
# status is 0.
set -eu
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build/release}
if ! scripts/deps.sh cmake; then
    echo 'cmake: skipped, it is missing'
    exit 0
fi
folder=$PWD/build/cmake
rm -rf "$folder"
mkdir -p "$folder"
# libdir as Debian has it: the way from there to the headers is longer.
make BUILD="$BUILD" install DESTDIR="$folder/first" prefix=/usr \
    libdir=/usr/lib/x86_64-linux-gnu >"$folder/log"
mv "$folder/first" "$folder/moved"

# configure NAME VERSION: whether cmake finds that version.
configure() {
    cmake -S tests/cmake -B "$folder/$1" -DWANTED="$2" -DSOURCE="$PWD/examples/decode.c" \
        -DCMAKE_PREFIX_PATH="$folder/moved/usr" -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu \
        -DCMAKE_C_COMPILER="${CMAKE_CC:-cc}" >>"$folder/log" 2>&1
}

version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$BUILD/pagedkv-config-version.cmake")
if ! { configure client "${version%.*}" && cmake --build "$folder/client" >>"$folder/log" 2>&1; }
then
    cat "$folder/log" >&2
    exit 1
fi
"$folder/client/client-shared"
"$folder/client/client-static"
readelf -d "$folder/client/client-shared" | grep -q "NEEDED.*libpagedkv" ||
    { echo 'the client of pagedkv::pagedkv does not need the shared library' >&2; exit 1; }
for wrong in "${version%.*}.99" 0.0 1.0 99.0; do
    ! configure "wrong-$wrong" "$wrong" ||
        { echo "version $wrong is found, where $version is installed" >&2; exit 1; }
done
make BUILD="$BUILD" uninstall DESTDIR="$folder/moved" prefix=/usr \
    libdir=/usr/lib/x86_64-linux-gnu >"$folder/log"
[ -z "$(find "$folder/moved" ! -type d)" ] || { echo 'uninstall left files' >&2; exit 1; }
