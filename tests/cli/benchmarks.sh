#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# benchmarks.sh <source folder>: the scripts of the benchmarks start and explain their flags, charts are well-formed, and what
# can't be measured is one sentence before any work.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3, which the benchmarks need"; exit 77; }
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
export PYTHONDONTWRITEBYTECODE=1

for script in benchmarks/*.py; do
  grep -q 'ArgumentParser' "$script" || continue
  python3 "$script" --help >"$work/help" 2>&1 || { cat "$work/help"; fail "$script --help"; }
done

(cd benchmarks && python3 - "$work" <<'EOF') || fail "a chart"
import sys, xml.dom.minidom
from chart import LinearAxis, LogAxis, chart, write_charts
rows = [("a <b>", {"ours": 2.0, "floor": 0.5, "peer": 300.0}), ("none", {"ours": None}), ("zero", {"ours": 0.0, "floor": -1.0})]
for axis, dots in ((LogAxis, 3 + 3), (LinearAxis, 5 + 3)):  # of rows and of the legend
    text = chart("title", "µs", rows, axis)
    assert text.count("<circle") == dots, (axis, text)
    xml.dom.minidom.parseString(text)
    for circle in xml.dom.minidom.parseString(text).getElementsByTagName("circle"):
        assert 330 <= float(circle.getAttribute("cx")) <= 740, circle.toxml()
assert chart("title", "ms", [("none", {"ours": None})]) == ""
assert write_charts(f"{sys.argv[1]}/new/charts", {"steps": text})
assert not write_charts("/dev/null/charts", {})
EOF
[[ -s $work/new/charts/performance_steps.svg ]] || fail "no chart was written"

refused() { # code, sentence, command...
  local rc=0
  "${@:3}" >"$work/out" 2>&1 || rc=$?
  [[ $rc == "$1" ]] && tail -1 "$work/out" | grep -qF -- "$2" || { cat "$work/out"; fail "${*:3}: exit code $rc"; }
}
refused 1 "no charts in '/dev/null/charts': Not a directory; give a folder that can be written" \
  python3 benchmarks/whole.py --charts /dev/null/charts
refused 1 "no charts in '/dev/null/charts'" python3 benchmarks/quick.py --charts /dev/null/charts
refused 2 "--only nothing: there is no such part; choose from quick, collectives" python3 benchmarks/whole.py --only nothing
refused 2 "--only nothing: there is no such row" python3 benchmarks/growth.py --only nothing
refused 1 "--models nothing is unknown; give some of vit:small" python3 benchmarks/models_vs_torch.py --models nothing

# Without peers their parts are left out, and said so; the object then holds the others.
DDHOST_PEER_PYTHON='' python3 benchmarks/whole.py --only gpt_fp32,models_compiled --json >"$work/out" 2>"$work/err"
[[ $(cat "$work/out") == "{}" ]] || fail "parts that were left out gave $(cat "$work/out")"
[[ $(grep -c '^left out: .*; ./dev setup --peers installs one$' "$work/err") == 2 ]] || { cat "$work/err"; fail "not said"; }
