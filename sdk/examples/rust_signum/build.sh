#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh PREFIX [FOLDER]: builds rust_signum.so in FOLDER (build) with rustc and the installed ddhost's layouts.json.
set -euo pipefail
prefix=$1 folder=${2:-build}
here=$(cd "$(dirname "$0")" && pwd)
json=$prefix/share/ddhost/plugin_api/layouts.json
mkdir -p "$folder"
cp "$here"/{abi,rust_signum}.rs "$folder"
# Constants as u64, sizes of structs as u32; the note has the text of DDH_NOTE_JSON in ddh/abi.h.
awk '
  NR == 1 { split($0, part, "\""); sum = part[4] }
  /^  "DDH_[A-Z0-9_]*": [0-9]+,?$/ { gsub(/[",:]/, ""); value[$1] = $2; print "pub const " $1 ": u64 = " $2 ";" }
  match($0, /^  "ddh_[a-z0-9_]*": \{"bytes": [0-9]+/) {
    gsub(/[",:{]/, ""); print "pub const " toupper($1) ": u32 = " $3 ";"
  }
  END {
    print "pub const HEADER_CHECKSUM: u64 = 0x" sum ";"
    abi = value["DDH_ABI_MAJOR"] "." value["DDH_ABI_MINOR"]
    printf "pub const NOTE: &str = \"{\\\"abi\\\":\\\"%s\\\",\\\"min_host_minor\\\":%d,", abi, value["DDH_ABI_MINOR"]
    printf "\\\"plugins\\\":\\\"optimizer:rust_signum\\\",\\\"headers\\\":\\\"%s\\\",\\\"libraries\\\":[{}]}\\0\";\n", sum
  }' "$json" >"$folder/layouts.rs"
sed -i '1i #![allow(dead_code)]' "$folder/layouts.rs"
rustc --edition 2021 --crate-type cdylib -C opt-level=3 -C strip=symbols -o "$folder/rust_signum.so" "$folder/rust_signum.rs"
echo "$folder/rust_signum.so"
