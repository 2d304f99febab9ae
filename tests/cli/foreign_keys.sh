#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# foreign_keys.sh <source> <build>   docs/from-FORMAT.md are what `ddhost convert --keys FORMAT` prints.
set -euo pipefail
source=$1 build=$2
failed=0
for table in "$source"/plugins/names/files/*.json; do
  format=$(basename "$table" .json)
  page=$source/docs/from-$format.md
  if ! diff -u --label "docs/from-$format.md" --label "ddhost convert --keys $format" "$page" \
    <("$build/ddhost" convert --keys "$format"); then
    echo "FAILED: docs/from-$format.md differs from the table; update it with"
    echo "  $build/ddhost convert --keys $format > $page"
    failed=1
  fi
done
exit "$failed"
