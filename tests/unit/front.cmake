# SPDX-License-Identifier: Apache-2.0
#
# The front half of the host: configuration, plugins, launch.
add_subdirectory(../fakes "${CMAKE_BINARY_DIR}/tests/fakes-build")
ddhost_add_test(NAME unit_config LABELS unit LIBS ddhost_core SOURCES compat_test.cpp config_service_test.cpp config_test.cpp
                option_tables_test.cpp prepare_test.cpp schema_test.cpp)
ddhost_add_test(NAME unit_loader LABELS unit LIBS ddhost_core SOURCES loader_test.cpp elf_note_test.cpp)
ddhost_add_test(NAME unit_launch LABELS unit LIBS ddhost_core TIMEOUT 60 SOURCES launch_test.cpp kv_test.cpp watchdog_test.cpp)
add_dependencies(unit_loader ddhost_fakes)
add_dependencies(unit_config ddh_plugin_ddp ddh_plugin_zero1 ddh_plugin_zero2 ddh_plugin_zero3 ddh_plugin_fsdp
                 ddh_plugin_zero3_offload)
