# SPDX-License-Identifier: Apache-2.0
#
# ddh_add_plugin(NAME zero1 SOURCES zero1.cpp [LIBS ddhost::torch ...] [OUTPUT_DIRECTORY dir])
#
# Makes NAME.so, a ddhost plugin, in <build>/plugins (or OUTPUT_DIRECTORY), with the link rules that let plugins of
# different makers live in one process:
#   hidden visibility + version script   exactly one exported symbol, ddh_plugin_entry_0 (checked after the link)
#   -fno-gnu-unique                      no symbol is merged across libraries (GNU)
#   -Wl,-z,defs                          what is missing is an error now, not at load
#   --exclude-libs,ALL                   static libraries stay private
#   --build-id                           the ranks compare builds at start
# and with the flags under which a kernel gives the same bits at every width of vectors (ddh_kernel_flags.cmake).
# -ffast-math is refused: loading such a library would switch the host's threads to flush-to-zero.
# A plugin that links ddhost::torch finds LibTorch, once installed, in lib/ of the folder that DDHOST_LIBTORCH names when
# it is loaded, or in <prefix>/lib/ddhost/libtorch/lib (a link to a LibTorch will do).
# The same file serves this tree and the installed package: find_package(ddhost-sdk).
include_guard(DIRECTORY) # its variables are those of a folder, and find_package may be called in several
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
set(DDH_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")
include("${DDH_CMAKE_DIR}/ddh_kernel_flags.cmake")

function(ddh_add_plugin)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;OUTPUT_DIRECTORY" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "ddh_add_plugin(NAME name SOURCES files... [LIBS targets...] [OUTPUT_DIRECTORY dir]); "
                        "got: ${ARGN}")
  endif()
  set(installed FALSE) # with ddhost itself; what has a folder of its own is for tests
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins")
    if(PROJECT_NAME STREQUAL "ddhost")
      set(installed TRUE)
    endif()
  endif()
  set(target "ddh_plugin_${arg_NAME}")

  add_library(${target} MODULE ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME "${arg_NAME}" SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY "${arg_OUTPUT_DIRECTORY}"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LINK_DEPENDS "${DDH_CMAKE_DIR}/ddh_plugin.map")
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>
                         ${DDH_KERNEL_FLAGS})
  # A plugin that is C alone needs the headers of the ABI, and no C++ library.
  set(cxx_sources ${arg_SOURCES})
  list(FILTER cxx_sources EXCLUDE REGEX "\\.c$")
  set(api ddhost::plugin_api)
  if(cxx_sources)
    set(api ddhost::sdk)
    target_compile_features(${target} PRIVATE cxx_std_20)
  endif()
  target_link_libraries(${target} PRIVATE ${api} $<TARGET_NAME_IF_EXISTS:ddhost::warnings> ${arg_LIBS})
  target_link_options(${target} PRIVATE "-Wl,--version-script,${DDH_CMAKE_DIR}/ddh_plugin.map" -Wl,-z,defs
                      -Wl,--exclude-libs,ALL -Wl,--build-id)

  if(arg_LIBS MATCHES "OpenMP::OpenMP_C")
    ddh_openmp_library(${target} PRIVATE "${OpenMP_CXX_VERSION}")
  endif()
  if("ddhost::torch" IN_LIST arg_LIBS)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../libtorch/lib")
  endif()

  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DNM=${CMAKE_NM}" "-DREADELF=${CMAKE_READELF}" "-DFILE=$<TARGET_FILE:${target}>"
            -P "${DDH_CMAKE_DIR}/ddh_check_plugin.cmake")
  # At the end of the folder, when options of the target and of its sources are all set.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL ddh_refuse_fast_math [[${target}]])")
  if(installed)
    install(TARGETS ${target} LIBRARY DESTINATION lib/ddhost/plugins)
  endif()
endfunction()

# ddh_library(target PRIVATE|INTERFACE slot NAME name [VERSION v] [FILES beginnings...] [FOLDER variable] [CURE text]
#             [THREADS variables...] [LIMITS word:VARIABLE=value...])
#
# Names a library of another maker that `target`, or what links it, is built with: the fields of ddh_library (ddh/abi.h). The
# slot is its number in DDH_LIBRARY_<slot>, 1 to 8; LibTorch has 1 and OpenMP 2.
function(ddh_library target scope slot)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "NAME;VERSION;FOLDER;CURE" "FILES;THREADS;LIMITS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME)
    message(FATAL_ERROR "ddh_library(target PRIVATE|INTERFACE slot NAME name ...); got: ${ARGN}")
  endif()
  if("${ARGN}" MATCHES "[\"\\>$]" OR arg_CURE MATCHES ";")
    message(FATAL_ERROR "ddh_library(${target} ...): leave out quotes, backslashes, semicolons, > and $; got: ${ARGN}")
  endif()
  list(JOIN arg_FILES " " files)
  list(JOIN arg_THREADS " " threads)
  list(JOIN arg_LIMITS " " limits)
  set(fields "")
  foreach(field IN ITEMS "${arg_NAME}" "${arg_VERSION}" "${files}" "${arg_FOLDER}" "${arg_CURE}" "${threads}" "${limits}")
    list(APPEND fields "\"${field}\"")
  endforeach()
  list(JOIN fields "," fields)
  target_compile_definitions(${target} ${scope} "$<$<COMPILE_LANGUAGE:C,CXX>:DDH_LIBRARY_${slot}=(${fields})>")
endfunction()

# OpenMP starts as many threads as there are cores, so the host must set its variable.
function(ddh_openmp_library target scope version)
  ddh_library(${target} ${scope} 2 NAME OpenMP VERSION "${version}" FILES libgomp libomp THREADS OMP_NUM_THREADS)
endfunction()

# Stops the configure step when a plugin is compiled with -ffast-math or what implies it.
function(ddh_refuse_fast_math target)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  get_directory_property(folder_options COMPILE_OPTIONS)
  get_target_property(target_options ${target} COMPILE_OPTIONS)
  set(flags "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_C_FLAGS_${type}} ${CMAKE_CXX_FLAGS_${type}} "
            "${folder_options} ${target_options}")
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    get_source_file_property(more "${source}" COMPILE_FLAGS)
    string(APPEND flags " ${options} ${more}")
  endforeach()
  if("${flags}" MATCHES "-(ffast-math|Ofast|funsafe-math-optimizations)")
    message(FATAL_ERROR "${target}: -${CMAKE_MATCH_1} is refused in plugins: loading the library would switch the host's "
                        "threads to flush-to-zero. Take the parts that you need, such as -fno-math-errno.")
  endif()
endfunction()
