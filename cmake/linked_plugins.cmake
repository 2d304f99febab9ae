# SPDX-License-Identifier: Apache-2.0
#
# Plugins that are linked into a program instead of being loaded from a file.
#
#   ddhost_link_plugin(NAME gpt SOURCES plugin.cpp [LIBS targets...] [IN_HOST])
#     makes the object library ddhost_linked_<name>, whose entry is ddh_entry_<name>. IN_HOST: it is part of the host.
#   ddhost_write_linked_plugins(target)
#     makes the static library `target`: all plugins with IN_HOST, and their list (plugin/linked.hpp).
#
# Compiled with the flags of ddh_add_plugin, so that both forms of a plugin compute the same bits.
function(ddhost_link_plugin)
  cmake_parse_arguments(PARSE_ARGV 0 arg "IN_HOST" "NAME" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "ddhost_link_plugin(NAME name SOURCES files... [LIBS targets...] [IN_HOST]); got: ${ARGN}")
  endif()
  set(target "ddhost_linked_${arg_NAME}")
  add_library(${target} OBJECT ${arg_SOURCES})
  target_compile_definitions(${target} PRIVATE DDH_ENTRY_NAME=ddh_entry_${arg_NAME})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${target} PRIVATE ddhost::warnings ddhost::kernels_flags PUBLIC ddhost::sdk ${arg_LIBS})
  if(arg_IN_HOST)
    set_property(GLOBAL APPEND PROPERTY DDHOST_LINKED_PLUGINS ${arg_NAME})
  endif()
endfunction()

function(ddhost_write_linked_plugins target)
  get_property(names GLOBAL PROPERTY DDHOST_LINKED_PLUGINS)
  set(declarations "")
  set(entries "")
  set(objects "")
  foreach(name IN LISTS names)
    string(APPEND declarations
      "ddh_rc ddh_entry_${name}(const ddh_host* host, const ddh_module** out, ddh_err* err) noexcept;\n")
    string(APPEND entries "      {\"${name}\", &ddh_entry_${name}},\n")
    list(APPEND objects $<TARGET_OBJECTS:ddhost_linked_${name}>)
  endforeach()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/linked_plugins.cpp")
  file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT [=[
// Made by cmake/linked_plugins.cmake.
#include "plugin/linked.hpp"

extern "C" {
@declarations@}

namespace ddhost {

const std::vector<LinkedPlugin>& linked_plugins() {
  static const std::vector<LinkedPlugin> all = {
@entries@  };
  return all;
}

}  // namespace ddhost
]=])
  add_library(${target} STATIC "${file}" ${objects})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/host")
  target_link_libraries(${target} PRIVATE ddhost::sdk ddhost::warnings)
endfunction()
