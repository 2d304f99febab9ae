#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# slurm.sh <source folder> <build folder>: the script that `ddhost slurm` prints, as a job of a private Slurm. Its time ends, so
# that the run gets SIGTERM, saves a checkpoint and ends with 143; the job goes into the queue again, and the run goes on. Rows
# and weights are those of one undisturbed run. Needs Slurm; otherwise it is skipped.
set -euo pipefail
for tool in slurmctld slurmd munged srun sbatch scontrol; do
  PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null ||
    { echo "skipped: there is no $tool (Debian: slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge)"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/private_slurm.sh"
start_slurm

# Tasks of a step find each other, unequal ones too.
reference one --strategy zero2 --nproc 4 train.steps=3
srun -N2 -n2 --ntasks-per-node=1 "${toy[@]}" --comm gloo "run.dir=$work/two" --strategy zero2 --nproc 4 train.steps=3 \
  --save-final "$work/two.safetensors" >"$work/two.log" 2>&1 || { cat "$work/two.log"; fail "srun with two tasks"; }
equal one two
goes_on_from_memory again srun --kill-on-bad-exit=0 -N2 -n2 --ntasks-per-node=1

# A job that is ended in time. Slurm would send the signal of the script 120 s before the end; here it comes by hand.
steps=4000 # seconds: the signal must come before the end
reference whole --strategy zero2 --nproc 2 "train.steps=$steps"
cd "$work"
"${toy[0]}" slurm "${toy[@]:1}" --num-nodes 2 --nproc 2 --strategy zero2 --comm gloo "train.steps=$steps" run.dir=job \
  --save-final "$work/job.safetensors" --directive "--output=$work/job.log" --directive=--open-mode=append >job.sh
bash -n job.sh || fail "the script is no bash"
sed -i 's/^srun /srun -v /' job.sh
id=$(sbatch --parsable job.sh)
for _ in $(seq 300); do
  [[ ! -s job/metrics.jsonl ]] || break
  sleep 0.05
done
scancel --signal=TERM "$id" # to the steps of the job, as --signal does
state() { scontrol show job "$id" -o 2>/dev/null | grep -oE "$1=[^ ]*" | cut -d= -f2; }
for _ in $(seq 200); do
  [[ $(state Restarts) != 1 ]] || break
  sleep 0.05
done
[[ $(state Restarts) == 1 ]] || { cat job.log; fail "the job does not go into the queue again: $(state JobState)"; }
grep -q "signal 15 .* has come" job.log || { cat job.log; fail "the run got no SIGTERM"; }
[[ -d job/checkpoints ]] || fail "no checkpoint was saved"
(($(numbers job | wc -l) < 3 * steps)) || fail "the run had ended before"
# Slurm would wait for two minutes. A job that starts in the second of its end is refused (Job credential revoked).
sleep 2.5
scontrol update "jobid=$id" StartTime=now
for _ in $(seq 300); do
  [[ $(state JobState) != COMPLETED && $(state JobState) != FAILED ]] || break
  sleep 0.1
done
[[ $(state JobState) == COMPLETED && $(state ExitCode) == 0:0 ]] ||
  { cat job.log; scontrol show job "$id"; grep "Job" slurm/slurmctld.log; fail "the job ends as $(state JobState)"; }
equal whole job
echo "the jobs agree"
