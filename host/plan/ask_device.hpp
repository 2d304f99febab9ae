// SPDX-License-Identifier: Apache-2.0
//
// plan/ask_device.hpp: what a device plugin tells before a run: how many devices are present, and the instructions of its
// kernels. No device is opened.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plugin/registry.hpp"

namespace ddhost {

struct DeviceAnswer {
  std::string plugin{};        // its id
  int present = 0;             // ddh_device_api.present; 0 where the plugin has no such function
  std::string instructions{};  // ddh_device_api.instruction_set; empty where the plugin has no such function
  std::string problem{};       // why it could not be asked; empty: it could
};

// Asks the devices of the plugins in `file`, in a child process that loads it. `limit`: the value of DDHOST_CPU.
std::vector<DeviceAnswer> ask_devices(const std::filesystem::path& file, InterfaceLookup lookup,
                                      const std::string& limit);

// The instructions of a device that is linked into this program, which is asked in this process; empty where it names none.
// Error: it refuses the limit.
std::string instructions_of_linked(const Plugin& device, const std::string& limit);

}  // namespace ddhost
