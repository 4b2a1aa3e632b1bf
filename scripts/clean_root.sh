#!/bin/sh
# SPDX-License-Identifier: MIT
#
# clean_root.sh [TARGET...]: makes a Debian root in which nothing is installed but git and make,
# clones this repository's commit into it, and runs the two commands of README there (or the make
# targets given), with their times. For root, with mmdebstrap; half an hour for demo and check. The
# packages come from the mirrors that this machine uses. The root is removed at the end.
set -eu

suite=${SUITE:-bookworm}
[ $# -gt 0 ] || set -- demo check
command -v mmdebstrap >/dev/null || {
    echo 'skipped: clean root, no mmdebstrap (Debian: apt-get install mmdebstrap)'
    exit 0
}
[ "$(id -u)" = 0 ] || {
    echo 'skipped: clean root, it needs root'
    exit 0
}

source=$(git rev-parse --show-toplevel)
work=$(mktemp -d)
root=$work/root
trap 'rm -rf "$work"' EXIT

# What this machine's apt reads, in either form.
cat /etc/apt/sources.list.d/*.sources >"$work/sources" 2>/dev/null ||
    cat /etc/apt/sources.list >"$work/sources"
mmdebstrap --quiet --variant=minbase --include=git,make,ca-certificates "$suite" "$root" - \
    <"$work/sources"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
git clone -q "$source" "$root/srv/pagedkv"

# /proc is mounted in a namespace of its own, which takes it along when it ends.
run() {
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i HOME=/srv \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 make -C /srv/pagedkv "$1"' "$root" "$1"
}

for target in "$@"; do
    start=$(date +%s)
    if ! run "$target"; then
        echo "clean root: make $target failed"
        exit 1
    fi
    echo "clean root: make $target, $(($(date +%s) - start)) s"
done
