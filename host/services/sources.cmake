# SPDX-License-Identifier: Apache-2.0
# What plugins get from the host: services/interfaces.hpp lists the tables.
target_sources(
  ddhost_core
  PRIVATE services/interfaces.cpp
          services/interfaces_comm.cpp
          services/interfaces_device.cpp
          services/memory.cpp
          services/param_init.cpp
          services/step.cpp
          services/windows.cpp
          services/windows_copy.cpp
          services/windows_shared.cpp)
