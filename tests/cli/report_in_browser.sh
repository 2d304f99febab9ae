#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Opens the pages of a run, of a failed run and of a comparison in headless Chromium, without a network. Each must be drawn,
# and have no error in the console.
set -euo pipefail
build=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "skipped: no Chromium is installed (apt-get install chromium)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
toy="$build/tests/plugins/toy.so"
[ -e "$toy" ] || toy=$(find "$build" -name toy.so | head -1)

train() { "$build/ddhost" --model "$toy" --nproc 2 train.steps=20 train.eval_every=5 run.quiet=true "$@" > /dev/null; }
train "run.dir=$folder/run" checkpoint.every=10
"$build/ddhost" compare --strategies ddp,zero3 --model "$toy" --nproc 2 --steps 6 --rounds 1 --out "$folder/compare" \
  > /dev/null 2>&1

open_page() { # page, words that it must show
  local page=$1 dom
  shift
  timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-extensions \
    --user-data-dir="$folder/profile" --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --v=0 \
    --virtual-time-budget=2000 --dump-dom "file://$page" > "$folder/dom" 2> "$folder/err" ||
    fail "$browser can't open $page: $(tail -3 "$folder/err")"
  ! grep 'CONSOLE' "$folder/err" || fail "$page has errors in the console"
  dom=$(cat "$folder/dom")
  for word in "$@"; do [[ $dom == *"$word"* ]] || fail "$page does not show $word"; done
}
open_page "$folder/run/report.html" '<path d="M' 'class="state done"' 'step-20' 'val_loss' '</html>'
open_page "$folder/compare/compare.html" 'zero3' '<rect' 'same bits' '</html>'
echo "two pages were drawn by $("$browser" --version 2> /dev/null)"
