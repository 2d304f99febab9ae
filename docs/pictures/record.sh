#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# record.sh SOURCE BUILD: makes the pictures of docs/first-hour.md again, with its commands and the program as it is now: three
# of a terminal of 100 columns (recorded in tmux), two of pages. Needs tmux, Chromium, and a Python with Pillow (RECORD_PYTHON).
set -euo pipefail
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
out=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${RECORD_PYTHON:-python3}
folder=/tmp/ddhost # in the pictures
mkdir "$folder"
terminals=0
tmux() { command tmux -S "$folder/socket-$terminals" "$@"; }
trap 'tmux kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/build"
cd "$folder/build"
ln -s "$build/ddhost" ddhost
ln -s "$source/configs" "$source/tests" ..
export DDHOST_DATA=$folder/tests/data # the text of the demo alone

screenshot() { # page, picture, width, height
  chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$folder/profile" \
    --virtual-time-budget=2000 --window-size="$3,$4" --screenshot="$2" "$1" >"$folder/chromium.log" 2>&1 ||
    { cat "$folder/chromium.log" >&2; exit 1; }
}
command_of() { # part of it: the page's command with this part
  awk '/^```/ { code = !code; next } code' "$source/docs/first-hour.md" | grep -m 1 -F -- "$1" ||
    { echo "docs/first-hour.md has no command with '$1'" >&2; exit 1; }
}
demo=$(command_of run.name=demo) second=$(command_of run.name=second) diff=$(command_of 'runs diff')
plot=$(command_of 'runs plot') compare=$(command_of compare)
terminal() { # lines: a new terminal with a prompt, and a server of its own
  tmux kill-server 2>/dev/null || true
  terminals=$((terminals + 1))
  tmux -f /dev/null new-session -d -x 100 -y "$1" "PS1='$ ' TERM=screen bash --norc"
  tmux set-option -g status off
  sleep 1
}
is_at_prompt() { [[ $(tmux capture-pane -p | grep . | tail -1) == '$' ]]; }
enter() { # a command, as if typed, without waiting for its end
  tmux send-keys -l "$1"
  tmux send-keys Enter
  sleep 0.3
}
wait_for_prompt() {
  local n
  for ((n = 0; n < 1500; ++n)); do
    ! is_at_prompt || return 0
    sleep 0.2
  done
  echo "a command did not end: $(tmux capture-pane -p | tail -5)" >&2
  exit 1
}
run() {
  enter "$1"
  wait_for_prompt
}
picture() { # text file, picture, lines
  "$python" - "$1" >"$folder/page.html" <<'P'
import html, re, sys
text = html.escape(open(sys.argv[1], encoding="utf-8").read())
# The font has no braille, and that of another font is wider.
text = re.sub("[\u2800-\u28ff]", r"<span style='display:inline-block;width:1ch'>\g<0></span>", text)
print("<meta charset=utf-8><body style='margin:0;background:#16191d'><pre style='margin:0;padding:10px;color:#d6dae0;"
      "font:13px/17px \"DejaVu Sans Mono\",monospace'>" + text)
P
  screenshot "file://$folder/page.html" "$2" 830 "$((17 * $3 + 20))"
}

echo "== the demo: a frame each half second"
terminal 24
enter "$demo"
frames=0
until is_at_prompt; do
  tmux capture-pane -p >"$folder/frame-$(printf %03d $frames)"
  frames=$((frames + 1))
  sleep 0.5
done
tmux capture-pane -p >"$folder/frame-$(printf %03d $frames)"
for frame in "$folder"/frame-*; do picture "$frame" "$frame.png" 24; done
"$python" - "$out/demo.gif" "$folder"/frame-*.png <<'P'
import sys
from PIL import Image
frames = [Image.open(f).convert("P", palette=Image.Palette.ADAPTIVE, colors=16) for f in sys.argv[2:]]
frames[0].save(sys.argv[1], save_all=True, append_images=frames[1:], duration=[500] * (len(frames) - 1) + [6000], loop=0,
               optimize=True)
P

echo "== another strategy, and the curves of both"
terminal 48
run "$second"
tmux capture-pane -p >"$folder/swap"
picture "$folder/swap" "$out/swap.png" 48
terminal 40
run "$diff"
run "$plot"
tmux capture-pane -p >"$folder/plot"
picture "$folder/plot" "$out/plot.png" 40
screenshot "file://$PWD/runs/demo/report.html" "$out/report.png" 1000 1400

echo "== six strategies"
terminal 60
run "$compare"
! grep 'the machine did other work' runs/compare/compare.md || { echo "record it on an idle machine"; exit 1; }
screenshot "file://$PWD/runs/compare/compare.html" "$out/compare.png" 1620 1180
ls -l "$out"
