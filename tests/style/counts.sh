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

# Headers of the host that only one other unit includes, and no test. A unit is a header with its source. What a test examines
# alone is a unit of its own.
headers_with_one_user() {
  local header units
  sources host | grep '\.hpp$' | while IFS= read -r header; do
    units=$(sources host | grep -E '\.(cpp|hpp)$' | xargs grep -lF "#include \"${header#host/}\"" | sed 's/\.[ch]pp$//' |
      sort -u | grep -vcx "${header%.hpp}" || true)
    ((units != 1)) || [[ -n $(sources tests | xargs grep -lF "#include \"${header#host/}\"") ]] || echo "$header"
  done
}

# Files that a new plugin touches: the hand-written ones that name <plugin>, an existing one of the kind in <folder>.
# Left out are docs/options.md and docs/from-*.md (made by the program), plugins/names (names of other programs), data of tests
# except the scripts that make it, this file, and uses: files to which a new plugin of the kind is not added. A use with a line
# that names three of the kind counts, because that is a list. So does one that does not name the plugin any more.
touched() { # plugin, folder, uses...
  local name=$1 folder=$2 others file uses=" ${*:3} "
  others=$(basename -as .cpp "$folder"/*.cpp | grep -vx "$name" | paste -sd '|')
  sources . | grep -vxE 'docs/(options|from-[a-z]+)\.md|plugins/names/.*|tests/style/counts\.sh' |
    awk '!/^tests\/data\// || /\/make_[a-z_]*\.py$/' | xargs -d '\n' grep -lwI -e "$name" | while IFS= read -r file; do
    if [[ $uses == *" $file "* ]]; then
      grep -w -e "$name" "$file" | grep -qE "\b($others)\b.*\b($others)\b" || continue
    fi
    echo "$file"
  done
  for file in $uses; do grep -qw -e "$name" "$file" || echo "$file"; done
}
uses_of_wsd=(tests/cli/swap_test.cpp) # replaces a schedule by another one
uses_of_lion=(
  tests/abi/examples_train.sh                      # equals the example signum, with equal betas
  tests/cli/swap_test.cpp                          # replaces an optimizer by another one
  tests/equivalence/optimizers_test.cpp            # further worlds, with one number per element; every optimizer before
  tests/gpu/optimizer_ptx_test.cpp                 # forms of kernels alone; tests/gpu/optimizers_test.cpp has every optimizer
  tests/gpu/outside_kernel.sh                      # is built outside of the tree
  tests/unit/plugins/optimizers/optimizer_test.cpp # what lion alone does, beside the cases for every optimizer
)

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
# 20 of 240 files; the host has grown since.
row "$(headers_with_one_user | wc -l)" most $(($(wc -l <<<"$host_files") / 12)) reached \
  'headers of the host with one user and no test: one of 12 files'
row "$(sed 's#/[^/]*$##' <<<"$host_files" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $1 }')" most 32 reached \
  'files in the largest folder of the host'
row "$(grep -rl DDHOST_DATA models --include=*.cpp | wc -l)" most 0 reached 'sources of models that look for data themselves'
row "$(sources docs | grep -c '^docs/writing-an\?-[a-z]*\.md$' || true)" least 8 reached 'pages on how to write a plugin'
row "$(sources tests | cut -d/ -f2 -s | sort -u | grep -vc '\.' || true)" most 13 reached 'folders of tests'
names=$(bash tests/style/names.sh . || true)
programs=$(awk '/name another program/ { print $1 }' <<<"$names") plugins=$(awk '/name a plugin/ { print $1 }' <<<"$names")
row "${programs:?names.sh printed no count}" most 0 reached 'lines of the host that name another program'
row "${plugins:?names.sh printed no count}" most 0 reached 'lines of the host that name a plugin'
row "$(touched wsd plugins/schedules "${uses_of_wsd[@]}" | wc -l)" most 3 reached \
  'hand-written files that a schedule (wsd) touches'
row "$(touched lion plugins/optimizers "${uses_of_lion[@]}" | wc -l)" most 4 reached \
  'hand-written files that an optimizer (lion) touches'
row "$(wc -l <CHANGELOG.md)" most 100 reached 'lines of CHANGELOG.md'
exit "$failed"
