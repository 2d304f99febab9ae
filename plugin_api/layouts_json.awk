# SPDX-License-Identifier: Apache-2.0
#
# layouts_json.awk: tests/abi/layout.golden as JSON, for bindings of other languages. -v checksum=...: of the headers.
function add(list, entry) { return list (list == "" ? "" : ",") "\n  " entry }
/^DDH_[A-Z0-9_]+ = / {
  constants = add(constants, sprintf("\"%s\": %s", $1, $3))
  next
}
match($0, /^[a-z0-9_]+\.[a-z0-9_]+: offset [0-9]+, [0-9]+ bytes: /) {
  split($1, name, /[.:]/)
  fields = add(fields, sprintf("  {\"name\": \"%s\", \"offset\": %d, \"bytes\": %d, \"declaration\": \"%s\"}", name[2], $3,
                               $4, substr($0, RLENGTH + 1)))
  next
}
function end_struct() {
  if (struct != "") structs = add(structs, sprintf("\"%s\": {\"bytes\": %d, \"fields\": [%s]}", struct, bytes, fields))
  fields = ""
}
/^[a-z0-9_]+: [0-9]+ bytes/ {
  end_struct()
  struct = substr($1, 1, length($1) - 1)
  bytes = $2
}
END {
  end_struct()
  printf "{\"header_checksum\": \"%s\",\n \"constants\": {%s\n },\n \"structs\": {%s\n }\n}\n", checksum, constants, structs
}
