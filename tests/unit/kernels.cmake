# SPDX-License-Identifier: Apache-2.0
#
# Tests of numeric kernels. The optimizers are linked in under entry names of their own.
set(optimizers adagrad adam adamw lamb lion muon sgd)
foreach(name ${optimizers})
  add_library(ddhost_linked_${name} OBJECT ${PROJECT_SOURCE_DIR}/plugins/optimizers/${name}.cpp)
  target_compile_options(ddhost_linked_${name} PRIVATE ${DDH_KERNEL_FLAGS})
  target_compile_definitions(ddhost_linked_${name} PRIVATE DDH_ENTRY_NAME=ddh_entry_${name})
  target_link_libraries(ddhost_linked_${name} PRIVATE ddhost::sdk ddhost::warnings)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/newton_schulz_test.cpp ${CMAKE_CURRENT_LIST_DIR}/options_test.cpp
  PROPERTIES COMPILE_OPTIONS "${DDH_KERNEL_FLAGS}")
ddhost_add_test(NAME unit_kernels LABELS unit LIBS ddhost_core
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp ${CMAKE_CURRENT_LIST_DIR}/exact_norm_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/newton_schulz_test.cpp)
list(TRANSFORM optimizers PREPEND ddhost_linked_)
ddhost_add_test(NAME unit_optimizers LABELS unit LIBS ddhost_core ${optimizers}
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/optimizer_test.cpp ${CMAKE_CURRENT_LIST_DIR}/optimizer_instances_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/options_test.cpp)
