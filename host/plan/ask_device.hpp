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

struct PresentDevices {
  std::string plugin;   // its id
  int count = 0;        // ddh_device_api.present; 0 where the plugin has no such function
  std::string problem;  // why it could not be asked; empty: it could
};

// The devices of the plugins in `file`. A child process loads it, because this one loads no library.
std::vector<PresentDevices> ask_present(const std::filesystem::path& file, InterfaceLookup lookup);

// The text of ddh_device_api.instruction_set; empty where the device has no such function. `limit`: the value of DDHOST_CPU.
// Error: the device refuses the limit. The plugin is loaded or linked, and is called in this process.
std::string instruction_set_of(const Plugin& device, const std::string& limit);

}  // namespace ddhost
