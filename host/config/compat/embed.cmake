# SPDX-License-Identifier: Apache-2.0
#
# Puts the tables of other programs' names into the program, so that it needs no file beside it. Sets
# DDHOST_COMPAT_SOURCE to the source that holds them.
set(DDHOST_COMPAT_TABLES "")
foreach(program deepspeed accelerate huggingface torch)
  set(table "${CMAKE_CURRENT_LIST_DIR}/${program}.json")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}")
  file(READ "${table}" text)
  string(APPEND DDHOST_COMPAT_TABLES "      read_compat_table(\"${program}.json\", R\"table(${text})table\"),\n")
endforeach()
set(DDHOST_COMPAT_SOURCE "${CMAKE_CURRENT_BINARY_DIR}/compat_tables.cpp")
configure_file("${CMAKE_CURRENT_LIST_DIR}/tables.cpp.in" "${DDHOST_COMPAT_SOURCE}" @ONLY)
