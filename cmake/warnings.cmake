# SPDX-License-Identifier: Apache-2.0
#
# ddhost::warnings: the warnings for our own code. Headers of dependencies are SYSTEM and exempt.
add_library(ddhost_warnings INTERFACE)
add_library(ddhost::warnings ALIAS ddhost_warnings)
target_compile_options(ddhost_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                       $<$<BOOL:${DDHOST_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports the insides of nlohmann::json with it, which no SYSTEM include silences.
  target_compile_options(ddhost_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
