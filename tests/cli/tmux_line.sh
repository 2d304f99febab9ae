#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tmux_line.sh <build>: the progress of a run is one line of a terminal of 80 columns, as tmux shows it, also after the
# terminal got narrower. Skipped (77) where there is no tmux.
set -euo pipefail
build=$1
command -v tmux >/dev/null || { echo "skipped: there is no tmux"; exit 77; }
folder=$(mktemp -d)
tmux() { command tmux -S "$folder/socket" "$@"; }
trap 'tmux kill-server 2>/dev/null || true; rm -rf "$folder" || { sleep 1; rm -rf "$folder"; }' EXIT
fail() { echo "FAILED: $*"; tmux capture-pane -p -S - 2>/dev/null || true; exit 1; }

tmux -f /dev/null new-session -d -x 80 -y 60 "TERM=screen '$build/ddhost' --model '$build/tests/plugins/toy.so' --nproc 2 \
  train.steps=100000000 run.sample_tokens=0 'run.dir=$folder/run' monitor.every=100000000; sleep 60"
# The rows of the pane with progress: "120/300 ... loss 2.34".
rows() { tmux capture-pane -p -S - | grep -cE '[0-9]+/100000000 .*loss' || true; }
for ((i = 0; i < 600; ++i)); do # the machine may be busy
  (($(rows) == 0)) || break
  sleep 0.1
done
sleep 0.5 # it is drawn several times
soon() { # a picture may fall between the removal of the row and its drawing
  for ((t = 0; t < 100; ++t)); do
    ! "$@" || return 0
    sleep 0.1
  done
  return 1
}
is_one_row() { [[ $(rows) == 1 ]]; }
has_values() { grep -qE 'loss [0-9.]+ .*samples/s .*ms .*(ckpt|checkpoint)' <<<"$(tmux capture-pane -p)"; }
soon is_one_row || fail "there are $(rows) rows of progress at 80 columns"
soon has_values || fail "the row lacks values"
for columns in 50 120 40; do
  tmux resize-window -x "$columns" -y 60
  sleep 0.5
  soon is_one_row || fail "there are $(rows) rows of progress after a change to $columns columns"
done
# Ctrl-C: the line is followed by sentences, and a checkpoint is there.
tmux send-keys C-c
for ((i = 0; i < 600; ++i)); do
  [[ ! -e $folder/run/checkpoints/latest ]] || break
  sleep 0.1
done
[[ -e $folder/run/checkpoints/latest ]] || fail "Ctrl-C left no checkpoint"
for ((i = 0; i < 600; ++i)); do # the run writes its page last; then its folder can be removed
  [[ ! -e $folder/run/report.html ]] || break
  sleep 0.1
done
echo "one row at 80, 50, 120 and 40 columns"
