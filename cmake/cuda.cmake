# SPDX-License-Identifier: Apache-2.0
#
# Finds what the GPU parts are built with: nvcc and cuda.h. Neither is needed to run them, and no CUDA library is linked.
#
#   DDHOST_CUDA_FOUND                  whether the GPU parts are built; without it the configure step says so
#   ddhost::cuda_headers               the include folder of cuda.h
#   ddhost_add_ptx(target a.cu ...)    compiles kernels to PTX and adds each to the target as the array <name>_ptx
#
# The places, in this order: DDHOST_NVCC (a file; no other is taken instead), PATH, CUDA_HOME, /usr/local/cuda, and the
# PyPI wheels in .deps. `./dev setup --cuda` looks in the same places.
# The same file serves this tree and the installed package: find_package(ddhost-sdk COMPONENTS cuda).
set(DDHOST_NVCC "" CACHE FILEPATH "nvcc, for the GPU parts; empty: it is searched for")
set(DDHOST_CUDA ON CACHE BOOL "build the GPU parts where nvcc is found")
set(DDHOST_CUDA_FOUND FALSE)

# Kernels give the bits of the CPU: products and sums are not fused, division and roots are exact, denormals are kept.
set(DDHOST_NVCC_FLAGS -std=c++20 --expt-relaxed-constexpr -arch=compute_80 -fmad=false -prec-div=true -prec-sqrt=true
    -ftz=false)

# The oldest toolkit: cuFuncGetParamInfo of the driver came with it.
set(DDHOST_OLDEST_CUDA 12.4)
# Takes the first nvcc that works, is new enough, and has cuda.h in its toolkit: one in PATH may be left over from a
# toolkit that is gone.
if(DDHOST_CUDA)
  if(DDHOST_NVCC)
    set(candidates "${DDHOST_NVCC}")
  else()
    find_program(nvcc_in_path nvcc PATHS ENV PATH NO_DEFAULT_PATH NO_CACHE)
    file(GLOB candidates "${PROJECT_SOURCE_DIR}/.deps/cuda-wheels/nvidia/cu*/bin/nvcc")
    list(PREPEND candidates /usr/local/cuda/bin/nvcc)
    if(NOT "$ENV{CUDA_HOME}" STREQUAL "")
      list(PREPEND candidates "$ENV{CUDA_HOME}/bin/nvcc")
    endif()
    if(nvcc_in_path)
      list(PREPEND candidates "${nvcc_in_path}")
    endif()
  endif()
  foreach(candidate IN LISTS candidates)
    if(DDHOST_CUDA_FOUND OR NOT EXISTS "${candidate}")
      continue()
    endif()
    execute_process(COMMAND "${candidate}" --version OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed)
    if(failed OR NOT said MATCHES "release ([0-9]+\\.[0-9]+)")
      continue()
    elseif(CMAKE_MATCH_1 VERSION_LESS DDHOST_OLDEST_CUDA)
      message(STATUS "passed over ${candidate}: it is of CUDA ${CMAKE_MATCH_1}; the GPU parts need "
                     "${DDHOST_OLDEST_CUDA} or newer")
      continue()
    endif()
    get_filename_component(nvcc_home "${candidate}" REALPATH)
    get_filename_component(nvcc_home "${nvcc_home}" DIRECTORY)
    get_filename_component(nvcc_home "${nvcc_home}" DIRECTORY)
    find_path(cuda_include cuda.h HINTS "${nvcc_home}/include" "${nvcc_home}/targets/x86_64-linux/include"
              NO_DEFAULT_PATH NO_CACHE)
    if(cuda_include)
      set(nvcc "${candidate}")
      set(DDHOST_CUDA_INCLUDE "${cuda_include}")
      set(DDHOST_CUDA_FOUND TRUE)
    endif()
    unset(cuda_include)
  endforeach()
endif()

if(NOT DDHOST_CUDA)
  return()
endif()
if(NOT DDHOST_CUDA_FOUND AND DDHOST_NVCC)
  message(FATAL_ERROR "DDHOST_NVCC is ${DDHOST_NVCC}, which is not there, does not run, has no cuda.h beside it, or is "
                      "older than CUDA ${DDHOST_OLDEST_CUDA}. Give another nvcc, or clear it with -DDDHOST_NVCC= to have one "
                      "searched for.")
endif()
if(NOT DDHOST_CUDA_FOUND AND NOT PROJECT_NAME STREQUAL "ddhost")
  message(STATUS "no CUDA toolkit (nvcc and cuda.h): kernels can't be compiled. Give DDHOST_NVCC.")
  return()
endif()
if(NOT DDHOST_CUDA_FOUND)
  message(STATUS "no CUDA toolkit (nvcc and cuda.h): left out are the device cuda, the kernels of optimizers, and the "
                 "tests with the label gpu. Give DDHOST_NVCC, or set DDHOST_CUDA=OFF to hide this message.")
  return()
endif()
message(STATUS "GPU parts: ${nvcc}, headers in ${DDHOST_CUDA_INCLUDE}")
if(NOT TARGET ddhost_cuda_headers)  # a project may call find_package in several folders
  add_library(ddhost_cuda_headers INTERFACE)
  add_library(ddhost::cuda_headers ALIAS ddhost_cuda_headers)
  target_include_directories(ddhost_cuda_headers SYSTEM INTERFACE "${DDHOST_CUDA_INCLUDE}")
endif()

# The text of <name>.cu's PTX is the NUL-terminated array <name>_ptx of the target (an assembly file holds it).
function(ddhost_add_ptx target)
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME_WE)
    get_filename_component(source "${source}" ABSOLUTE)
    set(ptx "${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx")
    add_custom_command(
      OUTPUT "${ptx}" DEPENDS "${source}" DEPFILE "${ptx}.d" VERBATIM
      COMMAND "${nvcc}" ${DDHOST_NVCC_FLAGS} -ptx -MD -MF "${ptx}.d"
              "-I$<JOIN:$<TARGET_PROPERTY:ddhost::sdk,INTERFACE_INCLUDE_DIRECTORIES>,;-I>"
              -I "${CMAKE_CURRENT_SOURCE_DIR}" -o "${ptx}" "${source}" COMMAND_EXPAND_LISTS
      COMMENT "PTX of ${name}.cu")
    set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/${name}_ptx.cpp")
    file(CONFIGURE OUTPUT "${wrapper}" @ONLY CONTENT [=[
// Made by ddhost_add_ptx.
__asm__(
    ".section .rodata\n.balign 8\n.hidden @name@_ptx\n.globl @name@_ptx\n"
    "@name@_ptx:\n.incbin \"@ptx@\"\n.byte 0\n.previous\n");
]=])
    set_source_files_properties("${wrapper}" PROPERTIES OBJECT_DEPENDS "${ptx}")
    target_sources(${target} PRIVATE "${wrapper}")
  endforeach()
endfunction()
