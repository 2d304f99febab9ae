#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mpi.sh <collectives>: the conformance test of transports for mpi, whose ranks are tasks of mpirun. MPI starts once in a
# process, so each world is an mpirun of its own.
set -euo pipefail
collectives=$1
command -v mpirun >/dev/null || { echo "skipped: there is no mpirun (Debian: openmpi-bin)"; exit 77; }
mpirun --version | grep -q 'Open MPI' || { echo "skipped: mpirun is not that of Open MPI"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work # the rendezvous files
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DDHOST_COMM=mpi
# Some worlds fail on purpose, and MPI does not end in them. Without recovery mpirun would kill their last tasks.
mpirun=(mpirun --enable-recovery --oversubscribe --bind-to none)
worlds=0
for ranks in 1 2 3 4 5 8; do
  for nth in $(seq 0 9); do
    rc=0
    DDHOST_NTH_WORLD=$nth timeout -k 5 60 "${mpirun[@]}" -n "$ranks" "$collectives" --use-colour no </dev/null \
      >"$work/log" 2>&1 || rc=$?
    passed=$(grep -c '^All tests passed' "$work/log" || true)
    [[ $rc == 0 && $passed == "$ranks" ]] ||
      { cat "$work/log"; echo "FAILED: world $nth: exit code $rc, $passed of $ranks ranks have passed"; exit 1; }
    grep -q "^world $nth of $ranks ranks" "$work/log" || break # there is no such world
    grep '^skipped' "$work/log" || true
    worlds=$((worlds + 1))
  done
done
echo "$worlds worlds agree"
((worlds >= 14)) || { echo "FAILED: these are too few"; exit 1; }
