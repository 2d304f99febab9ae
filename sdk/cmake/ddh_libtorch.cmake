# SPDX-License-Identifier: Apache-2.0
#
# ddhost::torch: LibTorch for model plugins, as a plain imported target for libc10 and libtorch_cpu. LibTorch's own
# CMake package is not used: it asks for a CUDA toolkit when the library was built with CUDA, and links
# libtorch_cuda, which doubles the start-up time of a CPU run.
#
# Looked for, in this order: DDHOST_LIBTORCH (variable, then environment), .deps/libtorch-wheel/torch of ddhost's checkout
# (to which ./dev setup links a version), CMAKE_PREFIX_PATH. Sets DDHOST_TORCH_FOUND.
# The same file serves this tree and the installed package: find_package(ddhost-sdk COMPONENTS torch).
#
# In a build folder a plugin finds LibTorch by its RUNPATH, as CMake does it for every library. What is installed has no path
# of this machine: ddh_add_plugin says where it looks.
set(DDHOST_TORCH_FOUND FALSE)
set(ddhost_torch_hints "")
if(DDHOST_LIBTORCH)
  list(APPEND ddhost_torch_hints "${DDHOST_LIBTORCH}")
endif()
if(DEFINED ENV{DDHOST_LIBTORCH} AND NOT "$ENV{DDHOST_LIBTORCH}" STREQUAL "")
  list(APPEND ddhost_torch_hints "$ENV{DDHOST_LIBTORCH}")
endif()
if(PROJECT_NAME STREQUAL "ddhost")
  list(APPEND ddhost_torch_hints "${PROJECT_SOURCE_DIR}/.deps/libtorch-wheel/torch")
endif()
foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
  # .../share/cmake/Torch is what torch.utils.cmake_prefix_path and many guides give.
  list(APPEND ddhost_torch_hints "${prefix}" "${prefix}/torch" "${prefix}/../.." "${prefix}/../../..")
endforeach()

foreach(hint IN LISTS ddhost_torch_hints)
  if(EXISTS "${hint}/include/ATen/ATen.h" AND EXISTS "${hint}/lib/libtorch_cpu.so" AND EXISTS "${hint}/lib/libc10.so")
    get_filename_component(DDHOST_TORCH_ROOT "${hint}" REALPATH)
    set(DDHOST_TORCH_FOUND TRUE)
    break()
  endif()
endforeach()

if(NOT DDHOST_TORCH_FOUND)
  set(ddhost_torch_cure "give one with -DDDHOST_LIBTORCH=/path/to/libtorch (the folder with include/ and lib/)")
  if(PROJECT_NAME STREQUAL "ddhost")
    message(WARNING "LibTorch was not found, so models/ is left out and no model can be trained. Run ./dev setup, or "
                    "${ddhost_torch_cure}.")
  else()
    message(STATUS "LibTorch was not found; ${ddhost_torch_cure}")
  endif()
  return()
endif()

# The version header moved in 2.9.
set(ddhost_torch_version_text "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS "${DDHOST_TORCH_ROOT}/include/${header}")
    file(STRINGS "${DDHOST_TORCH_ROOT}/include/${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(APPEND ddhost_torch_version_text "${lines};")
  endif()
endforeach()
foreach(part MAJOR MINOR PATCH)
  if(NOT ddhost_torch_version_text MATCHES "TORCH_VERSION_${part} ([0-9]+)")
    message(FATAL_ERROR "LibTorch in ${DDHOST_TORCH_ROOT} does not tell its version (torch/version.h); "
                        "give another one with -DDDHOST_LIBTORCH=...")
  endif()
  set(ddhost_torch_${part} ${CMAKE_MATCH_1})
endforeach()
message(STATUS "LibTorch ${ddhost_torch_MAJOR}.${ddhost_torch_MINOR}.${ddhost_torch_PATCH} in ${DDHOST_TORCH_ROOT}")

foreach(name c10 torch_cpu)
  add_library(ddhost_${name} SHARED IMPORTED)
  set_target_properties(ddhost_${name} PROPERTIES IMPORTED_LOCATION "${DDHOST_TORCH_ROOT}/lib/lib${name}.so")
endforeach()

add_library(ddhost_torch INTERFACE)
add_library(ddhost::torch ALIAS ddhost_torch)
target_include_directories(ddhost_torch SYSTEM INTERFACE "${DDHOST_TORCH_ROOT}/include"
                           "${DDHOST_TORCH_ROOT}/include/torch/csrc/api/include")
ddh_library(ddhost_torch INTERFACE 1
  NAME LibTorch VERSION "${ddhost_torch_MAJOR}.${ddhost_torch_MINOR}.${ddhost_torch_PATCH}" FILES libtorch libc10
  FOLDER DDHOST_LIBTORCH
  CURE "set DDHOST_LIBTORCH to the folder of a LibTorch (it holds lib/libtorch_cpu.so)"
  THREADS OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS
  LIMITS avx2:ATEN_CPU_CAPABILITY=avx2 avx2:ONEDNN_MAX_CPU_ISA=AVX2 avx2:MKL_ENABLE_INSTRUCTIONS=AVX2
         avx512:ATEN_CPU_CAPABILITY=avx512 avx512:ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI
         avx512:MKL_ENABLE_INSTRUCTIONS=AVX512)
# LibTorch is named directly, and kept when a plugin uses only inline parts of c10. Its own needs (CUDA run-time
# libraries, for a build with CUDA) are its own affair at link time.
target_link_libraries(ddhost_torch INTERFACE ddhost_torch_cpu ddhost_c10)
target_link_options(ddhost_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
