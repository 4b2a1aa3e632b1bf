#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_mpi.sh: runs examples/context_parallel with 1, 2, 4 and 3 processes of this machine, more
# than it has processors. BUILD is where the example is built. Where Open MPI is missing a line says
# so, and the exit status is 0.
set -eu
cd "$(dirname "$0")/.."

program=${BUILD:-build/release}/examples/context_parallel
skip() {
    echo "skipped: several processes on one sequence, $1"
    exit 0
}

command -v mpirun >/dev/null || skip 'mpirun is not here (Debian: openmpi-bin libopenmpi-dev)'
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip 'mpirun is not that of Open MPI'
[ -x "$program" ] || skip "$program is not built: mpicc is not here (Debian: libopenmpi-dev)"
as_root=
if [ "$(id -u)" = 0 ]; then as_root=--allow-run-as-root; fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for count in 1 2 4 3; do
    # shellcheck disable=SC2086
    if ! timeout 60 mpirun $as_root --oversubscribe -np "$count" "$program" >"$output" 2>&1; then
        cat "$output" >&2
        exit 1
    fi
    echo "$count processes: $(grep ' passed, ' "$output")"
done
