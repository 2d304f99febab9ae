#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# doctor.sh <build folder>: `ddhost doctor` on this machine says what a run chooses, as text and as JSON, and fails where a run
# would be refused. `ddhost slurm` prints a script that bash takes, whose command starts the same run.
set -euo pipefail
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
cd "$work"
toy=$build/tests/plugins/toy.so
"$build/ddhost" doctor --model "$toy" --strategy zero2 --nproc 3 >text 2>err || { cat text err; fail "doctor"; }
for words in "cores +memory" \
  "model toy, strategy zero2, 3 ranks on 1 host, transport shm, device cpu" \
  "its folder: $work/runs/toy-zero2"; do
  grep -qE "$words" text || { cat text; fail "no '$words'"; }
done
[[ ! -s err && -z $(ls -A | grep -vx -e text -e err) ]] || { cat err; fail "doctor leaves $(ls -A)"; }

"$build/ddhost" doctor --json --model "$toy" --nproc 3 >json
value() { python3 -c 'import json, sys; d = json.load(open("json")); print(eval(sys.argv[1]))' "$1"; }
if command -v python3 >/dev/null; then
  [[ $(value 'd["would_start"], d["run"]["ranks"], d["problems"], len(d["hosts"])') == "(True, 3, [], 1)" ]] ||
    { cat json; fail "the values"; }
  [[ $(value 'd["hosts"][0]["open_files"]') == $(ulimit -n) ]] || fail "the limit of open files is not $(ulimit -n)"
  [[ $(value 'd["hosts"][0]["cores"]') == $(nproc) ]] || fail "not $(nproc) cores"
  [[ $(value 'd["hosts"][0]["write_bytes_per_s"] > 1e5') == True ]] || fail "no rate of writing"
fi

refused() { # sentence, words...
  local rc=0
  "$build/ddhost" doctor --model "$toy" "${@:2}" >text 2>err || rc=$?
  [[ $rc == 1 ]] || { cat text err; fail "exit code $rc with ${*:2}"; }
  [[ $(cat err) == "ddhost: "*"$1"* && $(wc -l <err) == 1 ]] || { cat err; fail "'$1' is not what it says of ${*:2}"; }
}
refused "no strategy 'nothing'" --strategy nothing
refused "run.dir: '/proc' can't be written" run.dir=/proc/run
(ulimit -n 200 && "$build/ddhost" doctor --json --model "$toy" >json && [[ $(value 'd["hosts"][0]["open_files"]') == 200 ]]) ||
  fail "another limit of open files is not shown"

# The script.
"$build/ddhost" slurm --model "$toy" --num-nodes 2 --nproc-per-node 3 --cores-per-rank 4 --directive=--partition=gpu \
  --directive "--time=1:00:00" train.steps=7 "run.name=it's" >job.sh 2>err || { cat err; fail "slurm"; }
bash -n job.sh || fail "the script is no bash"
for line in '#SBATCH --nodes=2' '#SBATCH --cpus-per-task=12' '#SBATCH --partition=gpu' '#SBATCH --time=1:00:00' \
  '#SBATCH --signal=TERM@120' '#SBATCH --requeue' "#SBATCH --chdir=$work"; do
  grep -qxF -e "$line" job.sh || { cat job.sh; fail "no line '$line'"; }
done
grep -q '^srun .* --nproc 6 --resume auto || code=' job.sh || { cat job.sh; fail "the command of the run"; }
! grep -qE 'num-nodes|nproc-per-node|directive|cores-per-rank' job.sh || { cat job.sh; fail "a flag of the job is in its run"; }
# The job with other programs in the place of Slurm's: exit code 143 puts it into the queue again.
mkdir bin
printf '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@" --dry-run\n' >bin/srun
printf '#!/bin/bash\necho "$@" >>requeued\n' >bin/scontrol
chmod +x bin/*
"$build/ddhost" slurm --model "$toy" --nproc 2 train.steps=7 "run.name=it's" >job.sh
PATH=$PWD/bin:$PATH SLURM_JOB_ID=12 bash job.sh >json || fail "the script"
[[ ! -e requeued ]] || fail "a run that ends well goes into the queue again"
grep -q '"steps": 7' json || { cat json; fail "the run has not its options"; }
grep -q "it's" json || { cat json; fail "a quote in a name"; }
printf '#!/bin/bash\nexit 143\n' >bin/srun
rc=0
PATH=$PWD/bin:$PATH SLURM_JOB_ID=12 bash job.sh || rc=$?
[[ $rc == 143 && $(cat requeued) == "requeue 12" ]] || fail "exit code $rc, requeued: $(cat requeued)"
grep -q 'run.dir=runs/job-\$SLURM_JOB_ID' <("$build/ddhost" slurm --model "$toy") || fail "a job has no folder of its own"
! "$build/ddhost" slurm --model "$toy" --num-nodes 2 --nproc 3 >/dev/null 2>err || fail "3 ranks on 2 hosts"
grep -q "can't be divided equally" err || { cat err; fail "no sentence about 3 ranks on 2 hosts"; }
echo "the doctor and the script are right"
