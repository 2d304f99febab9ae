# SPDX-License-Identifier: Apache-2.0
#
# Tests of devices. sim is linked in under an entry name of its own, so that sanitizers see both sides.
file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/device/sim/*.cpp)
add_library(ddhost_linked_sim OBJECT ${sim_sources})
target_compile_definitions(ddhost_linked_sim PRIVATE DDH_ENTRY_NAME=ddh_entry_sim)
set_target_properties(ddhost_linked_sim PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_link_libraries(ddhost_linked_sim PUBLIC ddhost::sdk Threads::Threads PRIVATE ddhost::warnings
                                                                                    ddhost::kernels_flags)
ddhost_add_test(NAME unit_sim LABELS unit LIBS ddhost_core ddhost_linked_sim
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/sim_device_test.cpp ${CMAKE_CURRENT_LIST_DIR}/sim_mistakes_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/sim_offload_test.cpp ${CMAKE_CURRENT_LIST_DIR}/windows_device_test.cpp)
