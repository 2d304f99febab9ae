#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# counts.sh <source folder>: counts that show the structure, each with its goal. It prints the table, and fails where a goal
# that was reached is lost.
set -euo pipefail
cd "$1"
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r f; do [[ ! -e $f ]] || echo "$f"; done
}

# Headers of the host that only one other unit includes. A unit is a header with its source.
headers_with_one_user() {
  local header units
  sources host | grep '\.hpp$' | while IFS= read -r header; do
    units=$(sources host | grep -E '\.(cpp|hpp)$' | xargs grep -lF "#include \"${header#host/}\"" | sed 's/\.[ch]pp$//' |
      sort -u | grep -vcx "${header%.hpp}" || true)
    ((units != 1)) || echo "$header"
  done
}

failed=0
printf '%6s %6s  %s\n' value goal count
# row <value> <at most|at least> <goal> <reached|open> <what is counted>
row() {
  local value=$1 side=$2 goal=$3 state=$4 what=$5 is_met=yes
  [[ $side == most && $value -gt $goal || $side == least && $value -lt $goal ]] && is_met=no
  printf '%6d %6s  %s\n' "$value" "$([[ $side == most ]] && echo "<=$goal" || echo ">=$goal")" "$what"
  if [[ $state == reached && $is_met == no ]]; then
    echo "FAILED: $what: $value, but the goal of $side $goal was reached before"
    failed=1
  fi
  if [[ $state == open && $is_met == yes ]]; then
    echo "FAILED: $what: the goal is reached; write \`reached\` in tests/style/counts.sh"
    failed=1
  fi
}
host_files=$(sources host | grep -E '\.(cpp|hpp)$')
row "$(wc -l <plugins/strategies/zero3_offload.cpp)" most 100 reached 'lines of zero3_offload.cpp'
row "$(grep -l kOffloadOptimizer plugins/strategies/zero[123].cpp | wc -l)" least 3 reached \
  'of zero1, zero2, zero3 that offload optimizer state'
row "$(grep -c /import/ <<<"$host_files" || true)" most 0 reached 'files of the host that read formats of other programs'
row "$(xargs grep -liE 'conv1d|gpt2' <<<"$host_files" | wc -l)" most 0 reached 'files of the host that know a layout of GPT-2'
row "$(wc -l <<<"$host_files")" most 240 reached 'files of the host'
row "$(headers_with_one_user | wc -l)" most 20 reached 'headers of the host with one user'
row "$(sed 's#/[^/]*$##' <<<"$host_files" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $1 }')" most 32 reached \
  'files in the largest folder of the host'
row "$(grep -rl DDHOST_DATA models --include=*.cpp | wc -l)" most 0 reached 'sources of models that look for data themselves'
row "$(sources docs | grep -c '^docs/writing-an\?-[a-z]*\.md$' || true)" least 8 reached 'pages on how to write a plugin'
row "$(sources tests | cut -d/ -f2 -s | sort -u | grep -vc '\.' || true)" most 12 reached 'folders of tests'
names=$(bash tests/style/names.sh . || true)
programs=$(awk '/name another program/ { print $1 }' <<<"$names") plugins=$(awk '/name a plugin/ { print $1 }' <<<"$names")
row "${programs:?names.sh printed no count}" most 0 reached 'lines of the host that name another program'
row "${plugins:?names.sh printed no count}" most 0 reached 'lines of the host that name a plugin'
row "$(wc -l <CHANGELOG.md)" most 100 reached 'lines of CHANGELOG.md'
exit "$failed"
