#!/bin/sh
# SPDX-License-Identifier: MIT
#
# deps.sh [demo|check|bench|python|rust|cmake|server|tiers|debian|ci]: looks for the packages that a
# target needs and installs the missing ones with apt-get where it may (root, or sudo without a
# password). Where it may not, it prints the line to run and exits 1. What is optional (jemalloc,
# hiredis, a Redis server, matplotlib, MPI) is wanted and not needed: without it a line says so, and
# the target goes on. .ci/run alone needs jemalloc and hiredis. Names are those of Debian 12.
set -eu

level=${1:-check}
optional='libjemalloc-dev libhiredis-dev'
case $level in
demo) want='gcc libc6-dev make libxxhash-dev' ;;
check)
    want='gcc libc6-dev make libcunit1-dev libxxhash-dev'
    optional='libjemalloc-dev libhiredis-dev redis-server' ;;
python)
    want='gcc libc6-dev make libxxhash-dev python3 python3-venv python3-numpy'
    optional=python3-matplotlib ;;
rust)
    want='gcc libc6-dev make libxxhash-dev cargo'
    optional= ;;
cmake)
    want='gcc libc6-dev make libxxhash-dev cmake binutils'
    optional= ;;
server)
    want='gcc libc6-dev make libxxhash-dev libmicrohttpd-dev libcjson-dev curl python3'
    optional='libjemalloc-dev python3-numpy' ;;
tiers)
    want='gcc libc6-dev make libxxhash-dev libmicrohttpd-dev libcjson-dev python3'
    optional='libjemalloc-dev libhiredis-dev redis-server' ;;
debian)
    want='gcc libc6-dev make libxxhash-dev pkg-config debhelper dpkg-dev dh-python lintian
          libhiredis-dev redis-server'
    optional= ;;
bench)
    want='gcc libc6-dev make libxxhash-dev gnuplot-nox'
    optional='libjemalloc-dev liburing-dev' ;;
ci)
    want='gcc g++ libc6-dev make libjemalloc-dev libcunit1-dev libxxhash-dev clang clang-format
          libhiredis-dev redis-server libclang-rt-dev libomp-dev binutils pkg-config mandoc
          shellcheck python3
          python3-venv python3-numpy abigail-tools xz-utils'
    optional='openmpi-bin libopenmpi-dev'
    ;;
*) echo "usage: deps.sh [demo|check|bench|python|rust|cmake|server|tiers|debian|ci]" >&2; exit 2 ;;
esac

# CC may be "ccache gcc".
first_word() {
    echo "${1%% *}"
}

# Debian's packages are for Debian's interpreter, whatever comes first in PATH.
python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}

# A header counts as there when the compiler finds it, wherever it was installed from.
has_header() {
    # shellcheck disable=SC2086
    echo "#include <$1>" | ${CC:-cc} ${CPPFLAGS:-} -E - >/dev/null 2>&1
}

# The Makefile asks the same.
has_library() {
    # shellcheck disable=SC2086
    echo 'int main() {}' |
        ${CC:-cc} ${LDFLAGS:-} -x c - "-l$1" -o /dev/null 2>/dev/null
}

has() {
    case $1 in
    gcc) command -v "$(first_word "${CC:-cc}")" >/dev/null ;;
    libc6-dev) has_header stdio.h ;;
    libjemalloc-dev) has_library jemalloc ;;
    libcunit1-dev) has_header CUnit/Basic.h ;;
    libxxhash-dev) has_header xxhash.h ;;
    libmicrohttpd-dev) has_header microhttpd.h ;;
    libcjson-dev) has_header cjson/cJSON.h ;;
    liburing-dev) has_header liburing.h ;;
    libhiredis-dev) has_header hiredis/hiredis.h && has_library hiredis ;;
    redis-server) command -v redis-server >/dev/null || command -v valkey-server >/dev/null ;;
    libomp-dev) echo '#include <omp.h>' | clang -fopenmp -E - >/dev/null 2>&1 ;;
    libclang-rt-dev) echo 'int main(void) { return 0; }' |
        clang -fsanitize=thread -x c - -o /dev/null >/dev/null 2>&1 ;;
    binutils) command -v nm >/dev/null ;;
    abigail-tools) command -v abidiff >/dev/null ;;
    xz-utils) command -v xz >/dev/null ;;
    python3-venv) "$python" -c 'import venv, ensurepip' 2>/dev/null ;;
    python3-*) "$python" -c "import ${1#python3-}" 2>/dev/null ;;
    debhelper) command -v dh >/dev/null ;;
    dpkg-dev) command -v dpkg-buildpackage >/dev/null ;;
    dh-python) command -v dh_python3 >/dev/null ;;
    openmpi-bin) command -v mpirun >/dev/null ;;
    libopenmpi-dev) command -v mpicc >/dev/null ;;
    gnuplot-nox) command -v gnuplot >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing_of() {
    for package in "$@"; do
        has "$package" || printf ' %s' "$package"
    done
}

# shellcheck disable=SC2086
missing=$(missing_of $want)
# shellcheck disable=SC2086
absent=$(missing_of $optional)
[ -n "$missing$absent" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    as_root=no
fi
command -v apt-get >/dev/null || as_root=no
line='apt-get install -y --no-install-recommends'
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086
install() {
    [ "$as_root" != no ] || return 1
    echo "installing: $*"
    $as_root apt-get update >"$log" 2>&1 &&
        $as_root env DEBIAN_FRONTEND=noninteractive $line "$@" >>"$log" 2>&1
}

if [ -n "$missing" ] && [ "$as_root" = no ]; then
    echo "missing:$missing. Install them, on Debian by:" >&2
    echo "    sudo $line$missing" >&2
    exit 1
fi
# shellcheck disable=SC2086
if [ -n "$missing" ] && ! install $missing; then
    tail -n 20 "$log" >&2
    echo "could not run: $line$missing" >&2
    exit 1
fi
# shellcheck disable=SC2086
if [ -n "$absent" ] && ! install $absent; then
    echo "goes on without:$absent"
fi
