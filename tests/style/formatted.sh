#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# formatted.sh <source folder>: clang-format 14 has nothing to change (another version would format otherwise: skipped).
set -euo pipefail
cd "$1"
version=$(clang-format --version 2>/dev/null || true)
[[ $version == *"version 14."* ]] || { echo "skipped: clang-format 14 is not here (${version:-none})"; exit 77; }
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.c' '*.cpp' |
  xargs -0 -r clang-format --dry-run --Werror || { echo "FAILED: run ./dev fmt"; exit 1; }
