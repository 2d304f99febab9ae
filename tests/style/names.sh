#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# names.sh <source folder>: the host knows no other program, library or vendor, and no plugin, by name. It prints two counts and
# fails if one is not 0. Comments may cite sources.
set -euo pipefail
cd "$1"
files=$(git ls-files --cached --others --exclude-standard host | grep -E '\.(cpp|hpp)$' | while IFS= read -r f; do
  [[ ! -e $f ]] || echo "$f"
done)

# The code without comments: "path:line: code". A line's comment begins at the first // outside of a text.
code() {
  awk '
    FNR == 1 { block = 0 }
    {
      out = ""
      quoted = 0
      for (i = 1; i <= length($0); ++i) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (block) {
          if (two == "*/") { block = 0; ++i }
          continue
        }
        if (quoted && c == "\\") { out = out two; ++i; continue }
        if (c == "\"") quoted = !quoted
        if (!quoted && two == "//") break
        if (!quoted && two == "/*") { block = 1; ++i; continue }
        out = out c
      }
      if (out ~ /[^ \t]/) print FILENAME ":" FNR ": " out
    }' $files
}

failed=0
count() { # what, the lines
  local n=0
  [[ -z $2 ]] || n=$(wc -l <<<"$2")
  printf '%6d  %s\n' "$n" "$1"
  [[ $n == 0 ]] || { echo "$2"; failed=1; }
}

foreign='torch|cuda|nvidia|nccl|cudnn|deepspeed|accelerate|hugging|transformers|nanogpt|llm\.c|onednn|mkl|openblas|openmp'
foreign+='|omp_num|tensorboard|wandb|slurm|mpirun|openmpi|gloo|genuineintel|authenticamd|avx'
count 'lines of the host that name another program, library or vendor' "$(code | grep -iE "$foreign" || true)"

# The ids of all plugins, without those that are words of their own.
words='constant|cycle|linear|loop|file|step|plateau|poly|polynomial|sim|cpu|warmup|exponential|torch|csv|basic'
named='\b(DDH_[A-Z_]*PLUGIN[A-Z_]*\([^"]*|id = |OPTIMIZER\([^"]*|SCHEDULE\([^"]*)"[a-z0-9_]+"'
ids=$(git ls-files plugins models | grep -E '\.(cpp|c)$' | xargs grep -hoE "$named" |
  grep -oE '"[a-z0-9_]+"$' | tr -d '"' | sort -u | grep -vxE "$words" | paste -sd'|')
[[ $ids == *zero3* && $ids == *gpt* && $ids == *shm* ]] ||
  { echo "FAILED: the ids of the plugins were not found: $ids"; exit 1; }
kinds='strategy|model|optimizer|schedule|comm|device|monitor|format|codec'
in_text="\"[^\"]*\b($ids)\b[^\"]*\""
in_text+="|--($kinds) (?!(or|of|and|to|for)\b)[a-z]|\b($kinds)\.(plugin|host|type)=(?!auto)[a-z]"
count 'lines of the host that name a plugin in a text' "$(code | grep -P "$in_text" || true)"
exit "$failed"
