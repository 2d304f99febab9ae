#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mpi.sh <source folder> <build folder> [two-nodes]: runs whose ranks are tasks of mpirun, and of `srun --mpi=pmix`, linked by
# MPI. The bits are those of one launcher; a killed rank or task is named, and nothing is left. two-nodes: Slurm starts tasks
# on two nodes, too.
set -euo pipefail
command -v mpirun >/dev/null || { echo "skipped: there is no mpirun (Debian: openmpi-bin)"; exit 77; }
mpirun --version | grep -q 'Open MPI' || { echo "skipped: mpirun is not that of Open MPI"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun=(mpirun --oversubscribe --bind-to none)

same() { # name, reference, command that starts tasks, --, settings...
  local name=$1 expected=$2 start=()
  shift 2
  while [[ $1 != -- ]]; do start+=("$1"); shift; done
  shift
  timeout -k 5 60 "${start[@]}" "${toy[@]}" --comm mpi "run.dir=$work/$name" --save-final "$work/$name.safetensors" \
    train.steps=3 "$@" </dev/null >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; fail "$name"; }
  grep -q "ranks over mpi" "$work/$name.log" || { cat "$work/$name.log"; fail "$name: mpi is not the transport"; }
  equal "$expected" "$name"
}
reference one --strategy zero2 --nproc 4 train.steps=3
for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
  same "$strategy" one "${mpirun[@]}" -n 4 -- --strategy "$strategy"
done
reference one_blocks --strategy zero2 --nproc 4 train.steps=3 train.reduce_block=2
same blocks one_blocks "${mpirun[@]}" -n 4 -- --strategy zero3 train.reduce_block=2
same groups one_blocks "${mpirun[@]}" -n 4 -- --strategy fsdp strategy.sharding_strategy=hybrid_shard \
  strategy.shard_size=2 train.reduce_block=2
# Messages that are cut as those of more than 1 GiB are.
reference one_wide --strategy zero2 --nproc 2 train.steps=3 model.hidden=2000
same cut one_wide "${mpirun[@]}" -n 2 -- --strategy zero3 comm.message_bytes=1024 model.hidden=2000

# What ends one ends all, and the run says why.
start_long() { # name
  setsid "${mpirun[@]}" -n 4 "${toy[@]}" --comm mpi "run.dir=$work/$1" --strategy zero3 train.steps=1000000 \
    checkpoint.every=500000 </dev/null >"$work/$1.log" 2>&1 &
  run=$!
  until_rows "$1" 2
  mapfile -t agents < <(pgrep -P "$run" -f run.sample_tokens)
  [[ ${#agents[@]} == 4 ]] || fail "$1 has ${#agents[@]} tasks"
}
ends() { # name, exit code, part of the sentence
  local rc=0 left
  wait "$run" || rc=$?
  [[ $rc == "$2" ]] || { cat "$work/$1.log"; fail "$1: exit code $rc, not $2"; }
  grep -qE "^ddhost: .*$3" "$work/$1.log" || { cat "$work/$1.log"; fail "$1: no sentence '$3'"; }
  for _ in $(seq 50); do
    left=$(ps -o pid=,stat=,args= -p "$(IFS=,; echo "${agents[*]}")" --ppid "$(IFS=,; echo "${agents[*]}")" || true)
    [[ -n $left ]] || break
    sleep 0.1
  done
  [[ -z $left ]] || fail "$1: processes are left: $left"
  [[ -z $(ls "$work/.ddhost" 2>/dev/null) ]] || fail "$1: left $(ls "$work/.ddhost")"
}
start_long rank_killed
kill -KILL "$(pgrep -x -P "${agents[2]}" ddhost)"
ends rank_killed 1 'host .*: rank 2 \(pid [0-9]+\) was killed by signal 9 .* at step [0-9]+; the run has ended'
start_long task_killed
kill -KILL "${agents[2]}"
ends task_killed 137 'host .* with rank 2 is gone'
start_long head_killed
kill -KILL "${agents[0]}"
ends head_killed 137 'the head of the run at .* is gone'
start_long terminated
kill -TERM "${agents[1]}"
ends terminated 143 'signal 15 .* has come.*: the run ends after the current step'
[[ -d $work/terminated/checkpoints ]] || fail "SIGTERM to a task saved no checkpoint"

# Over gloo tasks of mpirun start again; over MPI they can't.
if [[ -e $build/plugins/gloo.so ]]; then
  goes_on_from_memory again "${mpirun[@]}" -n 2
else
  echo "without a restart: there is no plugin gloo"
fi

refused() { # part of the sentence, command...
  local said_here
  ! said_here=$(timeout -k 5 60 "${@:2}" </dev/null 2>&1) || fail "accepted: ${*:2}"
  [[ $(grep -c '^ddhost: ' <<<"$said_here") == 1 && $said_here == *"$1"* ]] || fail "'$1' is not what '${*:2}' says: $said_here"
}
refused "start the run with \`mpirun -n 2 ddhost" "${toy[@]}" --comm mpi --nproc 2 launch.from=none "run.dir=$work/r1"
refused "launch.max_restarts=1 is not possible with MPI" "${mpirun[@]}" -n 2 "${toy[@]}" --comm mpi \
  launch.max_restarts=1 "run.dir=$work/r4"
for tasks in 1 2; do
  refused "MPI needs one task for each rank, but rank " "${mpirun[@]}" -n "$tasks" "${toy[@]}" --comm mpi --nproc 4 \
    "run.dir=$work/r2"
done

# Slurm starts the tasks.
for tool in slurmctld slurmd munge srun; do
  PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || { echo "without Slurm: there is no $tool"; exit 0; }
done
source "$(dirname "${BASH_SOURCE[0]}")/private_slurm.sh"
start_slurm
same slurm one srun --mpi=pmix -N1 -n4 -- --strategy zero3
if [[ ${3:-} == two-nodes ]]; then
  # The two nodes are one machine here, and MPI's shared memory takes nodes to be different ones.
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
  same slurm_two one srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 -- --strategy zero3
fi
refused "start the run with \`mpirun -n 2 ddhost" srun --mpi=none -N1 -n2 "${toy[@]}" --comm mpi "run.dir=$work/r3"
echo "all tasks of MPI agree"
