# SPDX-License-Identifier: Apache-2.0
#
# Tests of the transports, linked in under entry names of their own, so that sanitizers see both sides.
set(same_host ${PROJECT_SOURCE_DIR}/plugins/comm/same_host)
file(GLOB engine CONFIGURE_DEPENDS ${same_host}/*.cpp)
list(FILTER engine EXCLUDE REGEX "/(loop|shm)\\.cpp$")
add_library(ddhost_linked_same_host OBJECT ${engine})
set_target_properties(ddhost_linked_same_host PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_link_libraries(ddhost_linked_same_host PRIVATE ddhost::sdk ddhost::warnings ddhost::kernels_flags)
foreach(name loop shm)
  ddhost_link_plugin(NAME ${name} SOURCES ${same_host}/${name}.cpp)
endforeach()
ddhost_add_test(NAME unit_comm LABELS unit LIBS ddhost_linked_same_host ddhost_linked_loop ddhost_linked_shm
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/comm_algebra_test.cpp ${CMAKE_CURRENT_LIST_DIR}/comm_shared_test.cpp
          ${CMAKE_CURRENT_LIST_DIR}/comm_faults_test.cpp)
