#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# options_page.sh <source> <build> [<plugin>...]   docs/options.md is what `ddhost inspect --markdown` prints. The plugins that
# are given are not part of this build: their sections are not compared.
set -euo pipefail
source=$1 build=$2
shift 2
page=$source/docs/options.md
unset DDHOST_PLUGIN_PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/ddhost" inspect --markdown >"$folder/all" || { echo "FAILED: ddhost inspect --markdown"; exit 1; }

compared() { # the page without the sections of the given plugins
  awk -v absent=" $* " '
    /^## / {
      name = /, plugin `/ ? $0 : ""
      gsub(/^.*, plugin `|`.*$/, "", name)
      left_out = name != "" && index(absent, " " name " ") > 0
    }
    !left_out'
}
compared "$@" <"$folder/all" >"$folder/built"
[[ ! -f $page ]] || compared "$@" <"$page" >"$folder/page"
if ! diff -u --label docs/options.md --label "ddhost inspect --markdown" "$folder/page" "$folder/built" 2>&1; then
  echo "FAILED: docs/options.md differs from the schemas; update it with"
  echo "  env -u DDHOST_PLUGIN_PATH $build/ddhost inspect --markdown > $page"
  [[ $# == 0 ]] || echo "in a build that has the plugins that this one lacks: $*"
  exit 1
fi
echo "$(grep -c '^## ' "$folder/page") sections compared${*:+; not in this build: $*}"
