#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# docs.sh <source folder>: checks every page. Prose has at most 100 columns and table rows at most 160. Links lead to files,
# and source files that are named in backticks exist. docs/design.md has a line for each folder of the host.
set -euo pipefail
cd "$1"
failed=0
fail() { echo "FAILED: $*"; failed=1; }

exists() { # a path as pages name it: from the repository, or below one of these folders
  local root
  for root in . tests host host/engine sdk/include sdk/include/ddh/sdk plugin_api/include; do
    [[ ! -e $root/$1 ]] || return 0
  done
  return 1
}

pages=$(git ls-files --cached --others --exclude-standard -- '*.md' ':!CHANGELOG.md' ':!tests/data')
[[ -n $pages ]] || fail "git lists no page"
while read -r page; do
  while read -r place; do
    fail "$place has more than 100 columns"
  done < <(awk -v page="$page" '
    /^ *```/ { code = !code }
    !code && !/^\|/ && length($0) > 100 && / .* / { print page ":" FNR }' "$page")
  while read -r place; do
    fail "$place is a table row of more than 160 columns"
  done < <(awk -v page="$page" '/^ *```/ { code = !code } !code && /^\|/ && length($0) > 160 { print page ":" FNR }' "$page")
  while read -r link; do
    [[ -e $(dirname "$page")/$link ]] || fail "$page links to $link, which is not there"
  done < <(awk '/^ *```/ { code = !code } !code' "$page" | grep -o '](\([^)#]*\))' |
    sed 's/](\(.*\))/\1/' | grep -v '^http' | grep -v '^$' | sort -u)
  while read -r file; do
    exists "$file" || fail "$page names $file, which is not there"
  done < <(grep -oE '`[a-z_0-9/]+/[a-z_0-9]+\.(cpp|hpp|h|sh|cmake)`' "$page" | tr -d '`' | sort -u)
done <<<"$pages"

while read -r folder; do # "engine/services/comm": `comm/` in the row of its folder counts too
  grep -qE "^\| \`.*\`?($folder|$(basename "$folder"))/\`" docs/design.md ||
    fail "docs/design.md has no line for the folder host/$folder"
done < <(git ls-files --cached --others --exclude-standard host | sed -n 's|^host/\(.*\)/[^/]*$|\1|p' | sort -u)
exit "$failed"
