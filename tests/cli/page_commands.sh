# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests that run the commands of a page, which source it with $source and $build set: a folder beside the program, as the
# pages have it, and the commands.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
mkdir "$folder/build"
cd "$folder/build"
ln -s "$source/configs" ../configs
ln -s "$build/ddhost" ddhost

commands_of() { # page of docs
  awk '/^```/ { code = !code; next } code && /^\.\/ddhost/' "$source/docs/$1"
}
