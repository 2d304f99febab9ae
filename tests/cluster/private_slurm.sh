# SPDX-License-Identifier: Apache-2.0
#
# private_slurm.sh: a Slurm of two nodes with four processors each, which lives in $work/slurm and ends with the test. Its nodes
# are this machine. Sourced by scripts that have sourced common.sh.
start_slurm() {
  local d=$work/slurm me host base end daemons=()
  export PATH=$PATH:/usr/sbin
  me=$(id -un) host=$(hostname -s) base=$((20000 + $$ % 2000 * 20))
  mkdir -p "$d/state" "$d/spool" "$d/tmp-node1" "$d/tmp-node2"
  chmod 755 "$work" "$d" "$d/spool"
  (umask 077 && head -c 128 /dev/urandom >"$d/munge.key")
  munged -F --force --key-file="$d/munge.key" --socket="$d/munge.sock" --pid-file="$d/munged.own" \
    --seed-file="$d/munge.seed" --log-file="$d/munge.log" >"$d/munged.out" 2>&1 &
  daemons+=($!)
  for _ in $(seq 100); do ! munge -S "$d/munge.sock" -n >/dev/null 2>&1 || break; sleep 0.05; done
  cat >"$d/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$me
SlurmdUser=$me
SlurmctldPort=$base
AuthType=auth/munge
AuthInfo=socket=$d/munge.sock
CredType=cred/munge
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool/%n
TmpFS=$d/tmp-%n
SlurmctldPidFile=$d/slurmctld.own
SlurmdPidFile=$d/%n.own
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MailProg=/bin/true
SrunPortRange=$((base + 3))-$((base + 19))
NodeName=node[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 2))] CPUs=4 Boards=1 \\
  SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  # Otherwise slurmd stops where nothing is mounted on /sys/fs/cgroup.
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$d/cgroup.conf"
  export SLURM_CONF=$d/slurm.conf
  slurmctld -D -f "$d/slurm.conf" >"$d/slurmctld.out" 2>&1 &
  daemons+=($!)
  for node in 1 2; do
    slurmd -D -N "node$node" -f "$d/slurm.conf" >"$d/node$node.out" 2>&1 &
    daemons+=($!)
  done
  disown "${daemons[@]}" # clean_up waits for all others before it calls stop_slurm
  at_end=(stop_slurm "${daemons[@]}")
  end=$((SECONDS + 20))
  while ((SECONDS < end)); do
    [[ $(timeout 2 sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$') != 2 ]] || return 0
    sleep 0.05
  done
  tail -n 3 "$d"/*.out "$d"/*.log
  fail "the private Slurm does not start"
}

# Cancels what still runs, so that no process of a job is left.
stop_slurm() { # pids
  timeout 5 scancel -u "$(id -un)" 2>/dev/null || true
  for _ in $(seq 50); do
    [[ -n $(timeout 2 squeue -h 2>/dev/null) ]] || break
    sleep 0.1
  done
  kill -TERM "$@" 2>/dev/null || true
  for _ in $(seq 50); do
    kill -0 "$@" 2>/dev/null || break
    sleep 0.05
  done
  kill -KILL "$@" 2>/dev/null || true
}
