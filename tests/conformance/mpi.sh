#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mpi.sh <collectives>: the conformance test of transports for mpi, whose ranks are tasks of mpirun, because MPI starts once
# in a process.
set -euo pipefail
collectives=$1
command -v mpirun >/dev/null || { echo "skipped: there is no mpirun (Debian: openmpi-bin)"; exit 77; }
mpirun --version | grep -q 'Open MPI' || { echo "skipped: mpirun is not that of Open MPI"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work # the rendezvous files
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DDHOST_COMM=mpi
source "$(dirname "${BASH_SOURCE[0]}")/worlds_of_tasks.sh"
run_tasks() { # number of ranks
  # Some worlds fail on purpose, and MPI does not end in them. Without recovery mpirun would kill their last tasks.
  timeout -k 5 60 mpirun --enable-recovery --oversubscribe --bind-to none -n "$1" "$collectives" --use-colour no </dev/null
}
every_world 14 1 2 3 4 5 8
