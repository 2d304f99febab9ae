# SPDX-License-Identifier: Apache-2.0
#
# optimizer_bench: built on request, cmake --build build --target optimizer_bench. Needs tests/unit/kernels.cmake.
add_executable(optimizer_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/optimizer_bench.cpp)
target_link_libraries(optimizer_bench PRIVATE ddhost_core ddhost_linked_adamw ddhost::sdk ddhost::warnings)
