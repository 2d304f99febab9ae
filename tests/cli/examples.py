# SPDX-License-Identifier: Apache-2.0
"""examples.py <build folder>: --dry-run takes each example of `ddhost explain`, and none repeats a default. Examples for a GPU
are left out."""
import json
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

PROGRAM = f"{sys.argv[1]}/ddhost"


def said(folder, *words):
    return subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=120)


def problem_of(folder, fact):
    """What is wrong with an example; "": nothing."""
    words = shlex.split(fact["example"])[1:]
    preset = re.search(r"; default (.*)$", fact.get("values", ""))
    if preset and words[-1] == f"{fact['name'].split(' ')[0]}={preset[1].strip(chr(34))}":
        return "repeats the default"
    if "cuda" in words or words[0] == "eval":
        return ""
    run = said(folder, *words, "--dry-run")
    return "" if run.returncode == 0 else run.stderr.strip()


def problems_of(folder, name):
    """Those of all options and plugins of this name, and the number of examples."""
    explained = said(folder, "explain", name, "--json")
    if explained.returncode != 0:
        return [f"{name}: {explained.stderr.strip()}"], 0
    facts = [fact for fact in json.loads(explained.stdout) if "example" in fact]
    problems = [(fact, problem_of(folder, fact)) for fact in facts]
    return [f"{fact['example']}: {problem}" for fact, problem in problems if problem], len(facts)


with tempfile.TemporaryDirectory() as folder:
    script = said(folder, "completion", "fish").stdout
    names = re.search(r"seen_subcommand_from explain' -f -a '([^']*)'", script)[1].split()
    with ThreadPoolExecutor(4) as pool:
        all_of_them = list(pool.map(lambda name: problems_of(folder, name), names))
    for problems, _ in all_of_them:
        for problem in problems:
            print(f"FAILED: {problem}")
    count = sum(count for _, count in all_of_them)
    if count < 300 or any(problems for problems, _ in all_of_them):
        sys.exit(f"FAILED: of {len(names)} names with {count} examples")
print(f"--dry-run takes all {count} examples")
