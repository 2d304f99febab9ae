#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# skipped.sh <test program>: a test without its data is Skipped for ctest, with the reason in its output; one that fails
# four times is not.
set -euo pipefail
unset DDHOST_DATA
fail() { echo "FAILED: $*"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
  for name in without with both fails; do
    case $name in
      without) cases='without its data' ;;
      with) cases='with its data' ;;
      both) cases='*its data' ;;
      fails) cases='without its data,four failures' ;;
    esac
    echo "add_test($name \"$1\" \"$cases\")"
    echo "set_tests_properties($name PROPERTIES SKIP_RETURN_CODE 4)"
  done
} >"$work/CTestTestfile.cmake"
(cd "$work" && ctest -V) >"$work/out" 2>&1 && fail "ctest passed a test that fails"
says() { grep -qE "$1" "$work/out" || { cat "$work/out"; fail "$2"; }; }
says '#1: without .*\*\*\*Skipped' "a test without its data is not reported as Skipped"
says "skipped: there is no 'none/such.safetensors' in tests/data; set DDHOST_DATA" "the reason is missing"
says '#2: with .*   Passed' "a test with its data did not pass"
says 'data: /.*/tests/data/' "a test does not say which data it took"
says '#3: both .*\*\*\*Skipped' "a program of which one case was skipped counts as passed"
says '#4: fails .*\*\*\*Failed' "four failures count as a skip"
echo "skipped, passed, skipped, failed, as they should be"
