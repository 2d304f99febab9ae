# SPDX-License-Identifier: Apache-2.0
#
# Tests of numeric kernels. The optimizers are linked in under entry names of their own.
set(kernel_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
set(optimizers adagrad adam adamw lamb lion muon sgd)
foreach(name ${optimizers})
  ddhost_link_plugin(NAME ${name} SOURCES ${PROJECT_SOURCE_DIR}/plugins/optimizers/${name}.cpp)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/newton_schulz_test.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
ddhost_add_test(NAME unit_kernels LABELS unit LIBS ddhost_core
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cpp ${CMAKE_CURRENT_LIST_DIR}/exact_norm_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/newton_schulz_test.cpp)
list(TRANSFORM optimizers PREPEND ddhost_linked_)
ddhost_add_test(NAME unit_optimizers LABELS unit LIBS ddhost_core ${optimizers}
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/optimizer_test.cpp ${CMAKE_CURRENT_LIST_DIR}/optimizer_instances_test.cpp)
