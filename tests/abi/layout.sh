#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# layout.sh <include folder> <golden file> [--write]: offset, size and declaration of every field of every struct and table
# of the ABI, and the value of every constant, against the committed list. After the freeze a line may only be added.
# A difference is printed with the command that renews the list.
set -euo pipefail
include=$1 golden=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without comments, one declaration a line: "S ddh_op", "F ddh_op unit int32_t unit", "C DDH_F32".
headers=$(cd "$include" && find ddh -name '*.h' ! -name checksum.h | LC_ALL=C sort)
for header in $headers; do
  gcc -w -x c -std=c11 -fpreprocessed -dD -E -P "$include/$header" >"$work/text"
  awk '
    /^#define DDH_[A-Z0-9_]+ / && $2 !~ /\(/ {
      name = $2
      value = $0
      sub(/^#define [A-Z0-9_]+ +/, "", value)
      if (value ~ /^[-0-9(]/ || value ~ /^UINT64_C/) print "C " name
      next
    }
    /^#/ { next }
    { line = line " " $0 }
    END {
      while (match(line, /typedef struct [a-z0-9_]+ \{[^}]*\} [a-z0-9_]+;/)) {
        text = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        name = text
        sub(/^typedef struct /, "", name)
        sub(/ .*/, "", name)
        print "S " name
        sub(/^[^{]*\{/, "", text)
        sub(/\}[^}]*$/, "", text)
        n = split(text, parts, ";")
        for (i = 1; i <= n; ++i) {
          part = parts[i]
          gsub(/[ \t]+/, " ", part)
          gsub(/^ | $/, "", part)
          if (part == "") continue
          if (match(part, /\(\*[a-z0-9_]+\)/)) {
            print "F " name " " substr(part, RSTART + 2, RLENGTH - 3) " " part
            continue
          }
          m = split(part, names, ",") # several of one type: "uint16_t abi_major, abi_minor"
          for (k = 1; k <= m; ++k) {
            field = names[k]
            sub(/\[.*/, "", field)
            gsub(/ +$/, "", field)
            sub(/.*[ *]/, "", field)
            print "F " name " " field " " part
          }
        }
      }
    }' "$work/text"
done >"$work/names"

{
  echo '#include <stdio.h>'
  echo '#include "ddh/ddh.h"'
  echo 'int main(void) {'
  while read -r kind name field rest; do
    case $kind in
      S) printf '  printf("%s: %%u bytes\\n", (unsigned)sizeof(%s));\n' "$name" "$name" ;;
      F)
        printf '  printf("%s.%s: offset %%u, %%u bytes: %s\\n",' "$name" "$field" "$rest"
        printf ' (unsigned)offsetof(%s, %s), (unsigned)sizeof(((%s*)0)->%s));\n' "$name" "$field" "$name" "$field"
        ;;
      C) printf '  printf("%s = %%lld\\n", (long long)(%s));\n' "$name" "$name" ;;
    esac
  done <"$work/names"
  echo '  return 0;'
  echo '}'
} >"$work/layout.c"
gcc -std=c11 "-I$include" -o "$work/layout" "$work/layout.c"
"$work/layout" >"$work/now"
structs=$(grep -cE '^ddh_[a-z0-9_]+: [0-9]+ bytes$' "$work/now") fields=$(grep -c ': offset ' "$work/now")
constants=$(grep -c ' = ' "$work/now")
# What the text of the headers holds, counted another way: nothing may be missed by the reading above.
expected=$(cd "$include" && cat $headers | grep -c '^typedef struct .* {$')
[[ $structs == "$expected" ]] || { echo "FAILED: $structs structs were read, the headers hold $expected"; exit 1; }

if [[ ${3:-} == --write ]]; then
  cp "$work/now" "$golden"
  echo "wrote $golden: $structs structs, $fields fields, $constants constants"
  exit 0
fi
if ! diff -U0 --label committed --label "these headers" "$golden" "$work/now" >"$work/difference"; then
  grep '^[-+][^-+]' "$work/difference" || true
  echo "FAILED: the layout of the ABI is not the committed one (- committed, + these headers)."
  echo "Before the freeze renew the list with: bash tests/abi/layout.sh plugin_api/include tests/abi/layout.golden --write"
  echo "After it a struct may only grow at its end (docs/compatibility.md)."
  exit 1
fi
echo "$structs structs, $fields fields, $constants constants"
