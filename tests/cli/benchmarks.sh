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
assert '<text x="430" y="54" text-anchor="end">' in chart("title", "ms", [("m" * 60, {"ours": 1.0})])  # a long label is not cut
assert write_charts(f"{sys.argv[1]}/new/charts", {"steps": text})
assert not write_charts("/dev/null/charts", {})
EOF
[[ -s $work/new/charts/performance_steps.svg ]] || fail "no chart was written"

# What the parts print is shown and drawn; the numbers are those of their rounds.
cat >"$work/parts.py" <<'EOF'
import argparse, contextlib, io, json, os, pathlib, sys, xml.dom.minidom
import gpt_vs_peers, models_vs_torch, quick, whole
args = argparse.Namespace(peers=["torch:ddp"], strategies=["ddp", "zero1"], size="gpt2", dtype="bf16", nproc=2, micro_batch=1,
                          context=64, pairs=3)
gpt = gpt_vs_peers.numbers(args, {"torch:ddp": [20.0, 30.0, 40.0], "ddp": [10.0, 10.0, 10.0], "zero1": [10.0, 20.0, 8.0]})
assert gpt["rows"][2]["other_over_this"] == {"torch:ddp": {"median": 2.0, "lowest": 1.5, "highest": 5.0},
                                             "ddp": {"median": 1.0, "lowest": 0.5, "highest": 1.25}}
failed = gpt_vs_peers.numbers(args, {"torch:ddp": [None, 30.0], "ddp": [10.0, None], "zero1": [10.0, 15.0]})
assert [row["step_ms"] for row in failed["rows"]] == [30.0, 10.0, 12.5]
assert failed["rows"][1]["other_over_this"].keys() == {"ddp"}
assert failed["rows"][2]["other_over_this"]["torch:ddp"]["median"] == 2.0
text = io.StringIO()
with contextlib.redirect_stdout(text):
    gpt_vs_peers.show(failed)
assert "| ddp | 10 | 12800 | 1.00 (1.00 .. 1.00) |  |" in text.getvalue(), text.getvalue()
assert len(gpt_vs_peers.numbers(args, {"torch:ddp": [None], "ddp": [10.0], "zero1": [10.0]})["rows"]) == 2
rounds = [models_vs_torch.Round(ours, theirs, None) for ours, theirs in ((10.0, 20.0), (20.0, 20.0), (10.0, 30.0))]
models = {"rows": [models_vs_torch.speed_row("cnn:basic", 2, peer, rounds) for peer in ("PyTorch", "torch.compile")]}
assert models["rows"][0]["ours"] == 20_000 and models["rows"][0]["ours_over_peer"] == 2.0
run = pathlib.Path(sys.argv[1])
(run / "config.json").write_text(json.dumps({"train": {"grad_accum_steps": 2, "optimizers": ["optimizer"]}}))
(run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [
    *({"step": step, "step_ms": 1.0, "program": "b" if step > 3 else "a"} for step in range(1, 8)),
    {"summary": {"estimates": [{"program": name, "forward_flops": flops, "backward_flops": 2 * flops,
                                "peak_flops_per_s_of_a_rank": 1e9} for name, flops in (("a", 1e9), ("b", 1e6))],
                 "ranks": [{"plan_bytes": {"optim": 8e6}}, {"plan_bytes": {"optim": 8}}]}}]))
assert abs(quick.floor_of(run, 0.5) - (2 * 3e6 / 1e9 * 1e3 + 0.5)) < 1e-9
timed = lambda **more: {"row": "r", "unit": "ms", "ours": 2.0, "floor": 1.0, "floor_over_ours": 0.5, "steal_percent": 0.0,
                        "is_marked": False} | more
collectives = [{"transport": transport, "operation": "all_reduce", "memory": memory, "bytes": 1024, "ranks": ranks, "us": 5.0,
                "floor_us": 1.0, "steal_percent": 9.0} for ranks in (2, 8)
               for transport, memory in (("shm", "private"), ("shm", "window"), ("gloo", "private"))]
machine = {"processor": "p", "cores": 2, "memory_gib": 1.0, "load": 0.0, "steal_percent": 0.0, "read_gb_per_s": 4.0,
           "write_gb_per_s": 3.0, "copy_gb_per_s": 2.0, "triad_gb_per_s": 1.0,
           "update_gb_per_s": 5.0, "handoff_ns": 99.4, "mhz": 3000.0}
growth = {"row": "ranks", "meaning": "m", "values": [1, 2], "times": [1.0, 3.0], "exponent": 1.6, "limit": 1.05,
          "is_marked": True}
promise = {"model": "m", "promise": "metrics", "percent": -0.5, "pairs": 3}
found = {
    "quick": {"machine": machine, "rows": [timed(table="steps", peer="torch DDP", peer_over_ours=3.0), timed(table="models"),
                                           *(row | timed(table="collectives") for row in collectives)]},
    "collectives": {"rows": collectives},
    "boundary": {"rows": [{"row": "r", "loaded": 1.0, "linked": 2.0, "loaded_over_linked": 0.5, "lowest": 0.4, "highest": 0.6,
                           "pairs": 5}]},
    "growth": {"rows": [growth]},
    "promises": {"rows": [promise | {"error": 0.1}, promise | {"lowest": -1.0, "highest": 1.0}]},
    "gpt_fp32": gpt, "gpt_bf16": gpt, "gpt_jemalloc": gpt, "models_eager": models, "models_compiled": models}
assert found.keys() == whole.PARTS.keys()
shown = {"quick": "triad 1.0, update 5.0; 99 ns from core to core", "collectives": "steal",
         "boundary": "0.5000 (0.4000 .. 0.6000)", "growth": "above 1.05", "promises": "(-1.00 .. 1.00)",
         "gpt_fp32": "2.00 (1.50 .. 5.00)", "gpt_bf16": "1.00 (0.50 .. 1.25)", "gpt_jemalloc": "2.00 (1.50 .. 5.00)",
         "models_eager": "2.00 (1.00 .. 3.00)", "models_compiled": "ddhost / torch.compile"}
charts = {}
for name, part in whole.PARTS.items():
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        part.show(found[name])
    assert shown[name] in text.getvalue(), (name, text.getvalue())
    charts |= part.charts(found[name])
assert len(charts) == 3 + 2 + 1 + 1 + 1 + 1 + 1 + 2, charts.keys()
for name, text in charts.items():
    xml.dom.minidom.parseString(text)
for command in (["/none"], ["/bin/echo", "no object"], ["/bin/false"]):
    assert whole.run(whole.Part(command, None, None), "") == (None, False), command
assert whole.run(whole.Part(["/bin/sh", "-c", "echo '{}'; exit 1"], None, None), "") == ({}, False)
assert quick.missing_of(sys.executable, ["json", "no_such_module"]) == "no_such_module"

# A peer with jemalloc has it preloaded; the others have not. Without jemalloc such peers are refused.
def preload_of(peer):
    seen = {}
    gpt_vs_peers.output_of = lambda command, env: seen.update(env) or json.dumps({"step_ms": [4.0]})
    args = argparse.Namespace(python=sys.executable, nproc=2, dtype="fp32", size="gpt2", context=64, micro_batch=1, vocab=9,
                              steps=1, warmup=0)
    assert gpt_vs_peers.run_peer(args, peer, "tokens") == 4.0
    return seen.get("LD_PRELOAD")
gpt_vs_peers.ctypes.util.find_library = lambda name: "libj.so"
assert (preload_of("torch:ddp"), preload_of("torch:ddp+jemalloc")) == (os.environ.get("LD_PRELOAD"), "libj.so")
gpt_vs_peers.ctypes.util.find_library = lambda name: None
def refusal_of(peers):
    sys.argv = ["gpt_vs_peers.py", "--python", "/none", "--peers", peers]
    try:
        gpt_vs_peers.main()
    except SystemExit as reason:
        return str(reason)
assert refusal_of("torch:ddp+jemalloc").startswith("gpt_vs_peers.py: there is no jemalloc; run ./dev setup --peers")
assert "there is no torch in /none" in refusal_of("torch:ddp")
EOF
mkdir "$work/run"
PYTHONPATH=benchmarks python3 "$work/parts.py" "$work/run" || fail "the parts of ./dev bench"

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
refused 2 "--only is empty; choose from quick, collectives" python3 benchmarks/whole.py --only ""
refused 2 "--models nothing: there is no such model; choose from vit:small" \
  python3 benchmarks/models_vs_torch.py --models nothing
refused 2 "--peers torch:nothing: there is no such peer" python3 benchmarks/gpt_vs_peers.py --peers torch:nothing
refused 2 "argument --pairs: '0' is no whole number from 1 on; give one" python3 benchmarks/gpt_vs_peers.py --pairs 0
refused 2 "--steps 3: the first 5 are warm-up; give more" python3 benchmarks/boundary_vs_linked.py --steps 3
refused 2 "--folder /not/there is no folder; make it first" python3 benchmarks/checkpoint.py --folder /not/there
refused 1 "bench takes --quick, --only PARTS" ./dev bench nothing

# Without peers their parts are left out, and said so; the object then holds the others. Nothing measured is no success.
refused 1 "all parts that were asked for are left out" env DDHOST_PEER_PYTHON= python3 benchmarks/whole.py --only gpt_fp32
rc=0
DDHOST_PEER_PYTHON='' python3 benchmarks/whole.py --only gpt_fp32,models_compiled --json >"$work/out" 2>"$work/err" || rc=$?
[[ $rc == 1 && $(cat "$work/out") == "{}" ]] || fail "parts that were left out gave $(cat "$work/out")"
[[ $(grep -c '^left out: .*; ./dev setup --peers installs one$' "$work/err") == 2 ]] || { cat "$work/err"; fail "not said"; }
