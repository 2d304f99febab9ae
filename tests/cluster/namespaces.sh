# SPDX-License-Identifier: Apache-2.0
#
# namespaces.sh: the hosts of a test: three network namespaces with an sshd, a name and shared memory of their own, node1 to
# node3. Sourced; needs root, ip, sshd and ssh, otherwise the test is skipped. Defines $net, $bridge, $id and ssh_config. With
# own_core=true each host has one core of the machine, so that ranks of two hosts do not share it.
skip() {
  echo "skipped: $*"
  exit 77
}
[[ $(id -u) == 0 ]] || skip "network namespaces need root"
for tool in ip ss ssh ssh-keygen unshare; do
  command -v "$tool" >/dev/null || skip "there is no $tool (Debian: iproute2, openssh-client, util-linux)"
done
[[ -x /usr/sbin/sshd ]] || skip "there is no /usr/sbin/sshd (Debian: openssh-server)"
unshare --net true 2>/dev/null || skip "this kernel or container allows no network namespace"
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

id=$$ # several tests may run at once
net=10.$((100 + id % 100)).$((id / 100 % 250))
bridge=dh$((id % 100000))
links=()
remove_hosts() {
  local link
  for link in "${links[@]}"; do ip link del "$link" 2>/dev/null || true; done
  ip link del "$bridge" 2>/dev/null || true
}
at_end=(remove_hosts)
# Its own address: else it takes that of a port, and the port that a test unplugs cuts all hosts off from the bridge.
ip link add "$bridge" address 02:dd:00:00:00:fe type bridge || skip "no bridge can be made"
ip addr add "$net.254/24" dev "$bridge"
ip link set "$bridge" up
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
cp "$work/key.pub" "$work/authorized"
chmod 600 "$work/authorized"

core_of() { # number of a host
  python3 -c 'import os, sys; cores = sorted(os.sched_getaffinity(0)); print(cores[(int(sys.argv[1]) - 1) % len(cores)])' "$1"
}
host_pid=()
start_host() { # number
  local n=$1 link=dh$((id % 100000))n$1
  cat >"$work/sshd$n.conf" <<CONF
ListenAddress $net.$n
HostKey $work/key
AuthorizedKeysFile $work/authorized
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
CONF
  mkdir -p "$work/run$n/sshd"
  local core=()
  [[ ${own_core:-false} != true ]] || core=(taskset -c "$(core_of "$n")")
  "${core[@]}" unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc bash -c "
    hostname node$n; mount -t tmpfs tmpfs /dev/shm; mount --bind $work/run$n /run; ip link set lo up
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
    ip addr add $net.$n/24 dev eth0; ip link set eth0 up
    exec /usr/sbin/sshd -D -e -f $work/sshd$n.conf" >"$work/sshd$n.log" 2>&1 &
  host_pid[n]=$!
  until [[ $(readlink "/proc/$!/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.02; done
  ip link add "$link" type veth peer name eth0 netns "$!"
  ip link set "$link" master "$bridge" up
  links+=("$link")
  cat >>"$work/ssh_config" <<CONF
Host node$n
  HostName $net.$n
  IdentityFile $work/key
  StrictHostKeyChecking no
  UserKnownHostsFile $work/known
  LogLevel ERROR
CONF
}
for n in 1 2 3; do start_host "$n"; done
for n in 1 2 3; do
  for _ in $(seq 100); do
    ! ssh -F "$work/ssh_config" -o BatchMode=yes -o ConnectTimeout=1 "node$n" true 2>/dev/null || continue 2
    sleep 0.1
  done
  cat "$work/sshd$n.log"
  fail "node$n does not answer"
done
# Runs a command on this host, also while it is cut off from the network.
inside() { # number, command...
  nsenter -t "$(ps -o pid= --ppid "${host_pid[$1]}" | head -1)" -m -n -p -u "${@:2}"
}
set_rate() { # of the links of the first two hosts, in both directions; none: as fast as they are
  local n limit=(tbf rate "$1" burst 256kb latency 50ms)
  [[ $1 != none ]] || limit=(noqueue)
  command -v tc >/dev/null || skip "there is no tc (Debian: iproute2)"
  for n in 1 2; do
    tc qdisc replace dev "dh$((id % 100000))n$n" root "${limit[@]}" 2>/dev/null || return 1
    inside "$n" tc qdisc replace dev eth0 root "${limit[@]}" 2>/dev/null || return 1
  done
}
now_ms() { date +%s%3N; }
median_and_most() { sort -n | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)], at[NR] }'; }
median() { median_and_most | cut -d' ' -f1; }
