# SPDX-License-Identifier: Apache-2.0
#
# Tests of the schedules, linked in under entry names of their own, so that sanitizers see both sides.
set(linked "")
foreach(name ${DDHOST_SCHEDULES})
  add_library(ddhost_linked_schedule_${name} OBJECT ${PROJECT_SOURCE_DIR}/plugins/schedules/${name}.cpp)
  target_compile_definitions(ddhost_linked_schedule_${name} PRIVATE DDH_ENTRY_NAME=ddh_entry_schedule_${name})
  set_target_properties(ddhost_linked_schedule_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(ddhost_linked_schedule_${name} PRIVATE ddhost::sdk ddhost::warnings)
  list(APPEND linked ddhost_linked_schedule_${name})
endforeach()
ddhost_add_test(NAME unit_schedule LABELS unit LIBS ddhost_core ${linked}
                SOURCES ${CMAKE_CURRENT_LIST_DIR}/schedule_test.cpp)
