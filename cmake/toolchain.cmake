# SPDX-License-Identifier: Apache-2.0
#
# Compiler and linker flags of all targets; folders set none.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
# Assertions stay on in the default build: they cost nothing beside the matrix products.
# Level 1 has functions and lines, but no variables, and compiles in four fifths of the time of level 2.
set(DDHOST_DEBUG_INFO 1 CACHE STRING "level of debug information, 0 to 3; use 2 for a debugger")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g${DDHOST_DEBUG_INFO}")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g${DDHOST_DEBUG_INFO}")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

# Installed files contain no path of this machine, neither in debug information nor in assertions.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=." "-ffile-prefix-map=${PROJECT_BINARY_DIR}=./build")

find_program(DDHOST_CCACHE ccache)
if(DDHOST_CCACHE)
  # Precompiled headers hit the cache only with this sloppiness.
  set(launcher "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${DDHOST_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
endif()

# mold if it supports the linker options of our plugins, else the compiler's default.
include(CheckCXXSourceCompiles)
if(NOT DEFINED CACHE{DDHOST_HAVE_MOLD})
  set(CMAKE_REQUIRED_FLAGS "-shared -fPIC")
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=mold
      "-Wl,--version-script,${CMAKE_CURRENT_LIST_DIR}/../sdk/cmake/ddh_plugin.map" -Wl,-z,defs -Wl,--exclude-libs,ALL
      -Wl,--unresolved-symbols=ignore-in-shared-libs -Wl,--build-id)
  check_cxx_source_compiles("extern \"C\" int ddh_plugin_entry_0() { return 0; }" DDHOST_HAVE_MOLD)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()
# Not with sanitizers: they pad notes, and mold puts all notes behind each other, where the next is then not found.
if(DDHOST_HAVE_MOLD AND NOT DDHOST_SANITIZE)
  add_link_options(-fuse-ld=mold -Wl,--build-id) # with ld an id is the default
endif()

if(DDHOST_SANITIZE)
  # Instrumented code takes long to compile: a file of the host 23 s with g++ -O1, 15 s with -O0, 9 s with clang -O0. Fuzzers,
  # and threads that wait for each other, need the speed.
  set(level 1)
  if(DDHOST_SANITIZE STREQUAL "address,undefined")
    set(level 0)
  endif()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O${level} -g1")
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O${level} -g1")
  add_compile_options(-fsanitize=${DDHOST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DDHOST_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND DDHOST_SANITIZE MATCHES "address" AND NOT DDHOST_SANITIZE MATCHES "fuzzer")
    # One run-time library for the program and its plugins, as g++ has it.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
                    OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(runtime "${runtime}" DIRECTORY)
    add_link_options(-shared-libasan "-Wl,-rpath,${runtime}")
  endif()
endif()

# Numeric kernels of the host and of tests.
include(ddh_kernel_flags)
add_library(ddhost_kernels_flags INTERFACE)
add_library(ddhost::kernels_flags ALIAS ddhost_kernels_flags)
target_compile_options(ddhost_kernels_flags INTERFACE ${DDH_KERNEL_FLAGS})
