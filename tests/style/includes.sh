#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# includes.sh <source folder>: checks the includes between folders. They must equal the table in
# docs/design.md ("What each folder includes") and must not form a cycle. A failure names the folders
# and the line that makes it.
set -euo pipefail
cd "$1"

# Lines "from to file:line" for every #include of ours that leaves its folder.
arrows() {
  git ls-files --cached --others --exclude-standard -- plugin_api sdk host plugins models |
    grep -E '\.(h|hpp|c|cpp)$' | while IFS= read -r file; do
    [[ ! -e $file ]] || grep -nHE '^[[:space:]]*#[[:space:]]*include ["<][^">]+[">]' "$file" |
      grep -E 'include "|<(base|checkpoint|cli|config|ddh|draw|engine|launch|plan|plugin|report)/' |
      grep -v "\.pb\.h\"$" || true
  done | awk -F: '
    # The folder that a file belongs to in the table.
    function folder(path, part, n) {
      n = split(path, part, "/")
      if (part[1] == "host" && part[2] == "engine") return "engine/" part[3]
      if (part[1] == "host") return n == 2 ? "main" : part[2]
      return part[1]
    }
    # The file behind an include, as seen from the folder of who includes it: its place in the tree, or "".
    function found(dir, name, root, i) {
      for (i = 1; i <= n_roots; ++i) {
        root = roots[i] == "." ? dir : roots[i]
        if ((getline line < (root "/" name)) >= 0) { close(root "/" name); return root "/" name }
      }
      return ""
    }
    BEGIN { n_roots = split("., host, sdk/include, plugin_api/include, models", roots, ", ") }
    {
      dir = $1; sub(/\/[^\/]*$/, "", dir)
      name = $3; sub(/^[^"<]*["<]/, "", name); sub(/[">].*$/, "", name)
      to = found(dir, name)
      if (to == "") { print "unknown", name, $1 ":" $2; next }
      if (folder($1) != folder(to)) print folder($1), folder(to), $1 ":" $2
    }'
}

# Lines "from to" out of the table: | `from` | `to`, `to` | ... |
allowed() {
  awk '/^## /{ inside = $0 == "## What each folder includes" } inside && /^\| `/' docs/design.md |
    awk -F'|' '{ gsub(/[` ]/, ""); n = split($3, to, ","); for (i = 1; i <= n; ++i) if (to[i] != "nothing") print $2, to[i] }' |
    LC_ALL=C sort
}

found=$(arrows | LC_ALL=C sort)
seen=$(cut -d' ' -f1,2 <<<"$found" | LC_ALL=C sort -u)
table=$(allowed)
[[ -n $table ]] || { echo "FAILED: docs/design.md has no table of includes"; echo "$seen"; exit 1; }
failed=0
while IFS= read -r arrow; do
  [[ -n $arrow ]] || continue
  echo "FAILED: new include ${arrow/ / -> }: $(grep -m1 "^$arrow " <<<"$found" | cut -d' ' -f3); remove it, or add it" \
    "to the table in docs/design.md"
  failed=1
done < <(LC_ALL=C comm -23 <(echo "$seen") <(echo "$table"))
while IFS= read -r arrow; do
  [[ -n $arrow ]] || continue
  echo "FAILED: the table in docs/design.md lists ${arrow/ / -> }, but no file includes it; remove it"
  failed=1
done < <(LC_ALL=C comm -13 <(echo "$seen") <(echo "$table"))
if ! cycle=$(tsort <<<"$seen" 2>&1 >/dev/null); then
  echo "FAILED: folders include each other in a circle:" "$(sed -n 's/^tsort: \([^ ]*\)$/\1/p' <<<"$cycle" | tr '\n' ' ')"
  failed=1
fi
exit "$failed"
