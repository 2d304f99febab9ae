# SPDX-License-Identifier: Apache-2.0
#
# boundary_bench: built on request, cmake --build build --target boundary_bench.
if(TARGET ddhost_linked_gpt AND TARGET ddhost_linked_shm)
  add_library(ddhost_linked_zero1 OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/plugins/strategies/zero1.cpp)
  target_compile_definitions(ddhost_linked_zero1 PRIVATE DDH_ENTRY_NAME=ddh_entry_zero1)
  target_link_libraries(ddhost_linked_zero1 PRIVATE ddhost::sdk ddhost::warnings)
  add_executable(boundary_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/boundary_bench.cpp)
  set_target_properties(boundary_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  target_compile_definitions(boundary_bench PRIVATE DDHOST_BUILD_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(boundary_bench PRIVATE ddhost_core spdlog::spdlog ddhost_linked_zero1 ddhost_linked_adamw
    ddhost_linked_shm ddhost_linked_same_host ddhost_linked_gpt ${DDHOST_GPT_PARTS} ddhost::sdk ddhost::warnings)
endif()
