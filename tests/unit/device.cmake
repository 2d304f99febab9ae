# SPDX-License-Identifier: Apache-2.0
#
# Tests of devices. sim is linked in under an entry name of its own, so that sanitizers see both sides.
file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/device/sim/*.cpp)
ddhost_link_plugin(NAME sim SOURCES ${sim_sources} LIBS Threads::Threads)
ddhost_add_test(NAME unit_sim LABELS unit LIBS ddhost_core ddhost_linked_sim
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/sim_device_test.cpp ${CMAKE_CURRENT_LIST_DIR}/sim_mistakes_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/sim_offload_test.cpp ${CMAKE_CURRENT_LIST_DIR}/windows_device_test.cpp)
