# SPDX-License-Identifier: Apache-2.0
#
# The libraries of the host and of the tests; all come as Debian packages (./dev setup installs them). A missing
# one is named with its package.
function(ddhost_require FOUND WHAT PACKAGE)
  if(NOT ${FOUND})
    message(FATAL_ERROR "${WHAT} was not found. On Debian: apt-get install ${PACKAGE} (or run ./dev setup).")
  endif()
endfunction()

find_package(Threads REQUIRED)

find_package(Boost 1.74 QUIET)
ddhost_require(Boost_FOUND "Boost 1.74 or newer (Boost.DLL)" libboost-dev)

find_package(nlohmann_json 3.10 QUIET)
ddhost_require(nlohmann_json_FOUND "nlohmann-json 3.10 or newer" nlohmann-json3-dev)

find_package(spdlog 1.9 QUIET)
ddhost_require(spdlog_FOUND "spdlog 1.9 or newer" libspdlog-dev)

find_package(CLI11 2.1 QUIET)
ddhost_require(CLI11_FOUND "CLI11 2.1 or newer" libcli11-dev)

# For configuration files of other programs. Linked statically, so that the program needs no further library to run.
find_path(DDHOST_YAML_INCLUDE yaml-cpp/eventhandler.h)
find_library(DDHOST_YAML_LIBRARY NAMES libyaml-cpp.a)
ddhost_require(DDHOST_YAML_INCLUDE "yaml-cpp 0.7 or newer (its headers)" libyaml-cpp-dev)
ddhost_require(DDHOST_YAML_LIBRARY "yaml-cpp 0.7 or newer (its static library)" libyaml-cpp-dev)
add_library(ddhost_yaml INTERFACE)
add_library(ddhost::yaml ALIAS ddhost_yaml)
target_include_directories(ddhost_yaml SYSTEM INTERFACE "${DDHOST_YAML_INCLUDE}")
target_link_libraries(ddhost_yaml INTERFACE "${DDHOST_YAML_LIBRARY}")

find_package(Protobuf 3.12 QUIET) # for the monitor tensorboard
ddhost_require(Protobuf_LITE_LIBRARY "protobuf 3.12 or newer (its library)" libprotobuf-dev)
ddhost_require(Protobuf_PROTOC_EXECUTABLE "protobuf's compiler, protoc" protobuf-compiler)

find_library(DDHOST_SQLITE_LIBRARY NAMES sqlite3) # for the monitor sqlite
find_path(DDHOST_SQLITE_INCLUDE sqlite3.h)
ddhost_require(DDHOST_SQLITE_LIBRARY "SQLite 3 (its library)" libsqlite3-dev)
ddhost_require(DDHOST_SQLITE_INCLUDE "SQLite 3 (its header)" libsqlite3-dev)

# For the checksums of checkpoints; its header holds all of it, and nothing is linked.
find_path(DDHOST_XXHASH_INCLUDE xxhash.h)
ddhost_require(DDHOST_XXHASH_INCLUDE "xxHash 0.8 or newer (its header)" libxxhash-dev)

# HMAC-SHA-256 for runs on several hosts. Linked statically where that is installed, so that the program needs no such file.
find_library(DDHOST_CRYPTO_LIBRARY NAMES libcrypto.a crypto)
find_path(DDHOST_CRYPTO_INCLUDE openssl/hmac.h)
ddhost_require(DDHOST_CRYPTO_LIBRARY "OpenSSL's libcrypto" libssl-dev)
ddhost_require(DDHOST_CRYPTO_INCLUDE "OpenSSL's libcrypto (its header)" libssl-dev)
add_library(ddhost_crypto INTERFACE)
add_library(ddhost::crypto ALIAS ddhost_crypto)
target_include_directories(ddhost_crypto SYSTEM INTERFACE "${DDHOST_CRYPTO_INCLUDE}")
target_link_libraries(ddhost_crypto INTERFACE "${DDHOST_CRYPTO_LIBRARY}" Threads::Threads ${CMAKE_DL_LIBS})

# Pictures of `ddhost data peek`. Linked statically where that is installed, as above.
find_library(DDHOST_PNG_LIBRARY NAMES libpng16.a libpng.a png16 png)
find_library(DDHOST_ZLIB_LIBRARY NAMES libz.a z)
find_path(DDHOST_PNG_INCLUDE png.h)
ddhost_require(DDHOST_PNG_LIBRARY "libpng 1.6" libpng-dev)
ddhost_require(DDHOST_PNG_INCLUDE "libpng 1.6 (its header)" libpng-dev)
ddhost_require(DDHOST_ZLIB_LIBRARY "zlib" zlib1g-dev)
add_library(ddhost_png INTERFACE)
add_library(ddhost::png ALIAS ddhost_png)
target_include_directories(ddhost_png SYSTEM INTERFACE "${DDHOST_PNG_INCLUDE}")
target_link_libraries(ddhost_png INTERFACE "${DDHOST_PNG_LIBRARY}" "${DDHOST_ZLIB_LIBRARY}" m)

# For the transport mpi.
set(MPI_CXX_SKIP_MPICXX TRUE) # MPI's old classes for C++
find_package(MPI 3.1 QUIET COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "no MPI 3.1 was found: the transport mpi is not built (Debian: apt-get install libopenmpi-dev openmpi-bin)")
endif()

if(DDHOST_WITH_TORCH) # for models of images
  find_package(ZLIB QUIET)
  ddhost_require(ZLIB_FOUND "zlib" zlib1g-dev)
  find_package(PNG QUIET)
  ddhost_require(PNG_FOUND "libpng" libpng-dev)
  find_package(JPEG QUIET)
  ddhost_require(JPEG_FOUND "libjpeg-turbo" libjpeg62-turbo-dev)
  # For video files. Only headers are needed: the libraries are opened at run time. version_major.h came with FFmpeg 5.1.
  find_path(DDHOST_FFMPEG_INCLUDE libavformat/version_major.h)
  find_path(DDHOST_SWSCALE_INCLUDE libswscale/version_major.h)
  set(DDHOST_FFMPEG_FOUND FALSE)
  if(DDHOST_FFMPEG_INCLUDE AND DDHOST_SWSCALE_INCLUDE)
    set(DDHOST_FFMPEG_FOUND TRUE)
  else()
    message(STATUS "the headers of FFmpeg 5.1 or newer were not found: videos are read as folders of frames alone (Debian: "
                   "apt-get install libavformat-dev libswscale-dev)")
  endif()
endif()
if(DDHOST_WITH_TORCH OR DDHOST_TESTS)
  # For the words of byte-pair encoding.
  find_library(DDHOST_PCRE2_LIBRARY NAMES pcre2-8)
  find_path(DDHOST_PCRE2_INCLUDE pcre2.h)
  ddhost_require(DDHOST_PCRE2_LIBRARY "PCRE2" libpcre2-dev)
  ddhost_require(DDHOST_PCRE2_INCLUDE "PCRE2 (its header)" libpcre2-dev)
  add_library(ddhost_pcre2 INTERFACE)
  add_library(ddhost::pcre2 ALIAS ddhost_pcre2)
  target_include_directories(ddhost_pcre2 SYSTEM INTERFACE "${DDHOST_PCRE2_INCLUDE}")
  target_link_libraries(ddhost_pcre2 INTERFACE "${DDHOST_PCRE2_LIBRARY}")
endif()

# ddhost::onednn computes the matrix products of LibTorch models; without it (DDHOST_ONEDNN_FOUND false) LibTorch does.
# oneDNN's CMake package is not used, because Debian's requires OpenCL. Files that use it must be compiled without
# LibTorch's include folder, which has another dnnl.h: use a separate object library.
set(DDHOST_ONEDNN_FOUND FALSE)
find_library(DDHOST_ONEDNN_LIBRARY dnnl)
find_path(DDHOST_ONEDNN_INCLUDE dnnl.hpp)
if(DDHOST_ONEDNN_LIBRARY AND DDHOST_ONEDNN_INCLUDE)
  set(DDHOST_ONEDNN_FOUND TRUE)
  add_library(ddhost_onednn SHARED IMPORTED GLOBAL)
  add_library(ddhost::onednn ALIAS ddhost_onednn)
  set_target_properties(ddhost_onednn PROPERTIES IMPORTED_LOCATION "${DDHOST_ONEDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DDHOST_ONEDNN_INCLUDE}")
endif()

# ddhost::uring gives the SDK's file tier (sdk/src/tier/uring_io.cpp) its io_uring; without it the target is empty and files
# are read with pread. Linked statically, so that a plugin loads on machines without the library. The installed package
# has no path of this machine: it looks for liburing again.
find_library(DDHOST_URING_LIBRARY NAMES liburing.a uring)
find_path(DDHOST_URING_INCLUDE liburing.h)
add_library(ddhost_uring INTERFACE)
add_library(ddhost::uring ALIAS ddhost_uring)
set_target_properties(ddhost_uring PROPERTIES EXPORT_NAME uring)
set(DDHOST_URING_FOUND FALSE)
if(DDHOST_URING_LIBRARY AND DDHOST_URING_INCLUDE)
  set(DDHOST_URING_FOUND TRUE)
  target_compile_definitions(ddhost_uring INTERFACE $<BUILD_INTERFACE:DDH_WITH_LIBURING>)
  target_include_directories(ddhost_uring SYSTEM INTERFACE "$<BUILD_INTERFACE:${DDHOST_URING_INCLUDE}>")
  target_link_libraries(ddhost_uring INTERFACE "$<BUILD_INTERFACE:${DDHOST_URING_LIBRARY}>")
else()
  message(STATUS "liburing was not found: offloading to files will use pread (Debian: apt-get install liburing-dev)")
endif()
target_link_libraries(ddhost_uring INTERFACE Threads::Threads)

if(DDHOST_TESTS)
  find_path(DDHOST_CATCH2_INCLUDE catch2/catch.hpp)
  ddhost_require(DDHOST_CATCH2_INCLUDE "Catch2 version 2 (catch2/catch.hpp)" catch2)
endif()
