# SPDX-License-Identifier: Apache-2.0
#
# Puts the tables of other programs' names (plugins/names/*.json) and files (plugins/names/files/*.json), and the default
# plugins (configs/defaults.json), into the program, so that it needs no file beside it. Sets DDHOST_EMBEDDED_SOURCE to the
# source that holds them.
file(GLOB tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/plugins/names/*.json")
set(DDHOST_NAME_TABLES "")
foreach(table IN LISTS tables)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}")
  file(READ "${table}" text)
  get_filename_component(name "${table}" NAME)
  string(APPEND DDHOST_NAME_TABLES "      read_compat_table(\"${name}\", R\"table(${text})table\"),\n")
endforeach()
file(GLOB tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/plugins/names/files/*.json")
set(DDHOST_FILE_TABLES "")
foreach(table IN LISTS tables)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}")
  file(READ "${table}" text)
  get_filename_component(name "${table}" NAME)
  string(APPEND DDHOST_FILE_TABLES "      read_foreign_table(\"${name}\", R\"table(${text})table\"),\n")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/configs/defaults.json")
file(READ "${PROJECT_SOURCE_DIR}/configs/defaults.json" DDHOST_DEFAULTS)
set(DDHOST_EMBEDDED_SOURCE "${CMAKE_CURRENT_BINARY_DIR}/embedded.cpp")
configure_file("${CMAKE_CURRENT_LIST_DIR}/embedded.cpp.in" "${DDHOST_EMBEDDED_SOURCE}" @ONLY)
# The table of DeepSpeed's keys is longer than the standard asks of every compiler.
set_source_files_properties("${DDHOST_EMBEDDED_SOURCE}" PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
