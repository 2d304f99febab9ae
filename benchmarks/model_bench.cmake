# SPDX-License-Identifier: Apache-2.0
#
# model_bench: built on request, cmake --build build --target model_bench.
if(TARGET ddhost_linked_gpt)
  add_executable(model_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/model_bench.cpp)
  target_include_directories(model_bench PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(model_bench PRIVATE ddhost_linked_gpt ${ddhost_gpt_parts} ddhost::sdk ddhost::warnings)
endif()
