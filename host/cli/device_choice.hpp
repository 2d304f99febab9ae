// SPDX-License-Identifier: Apache-2.0
//
// cli/device_choice.hpp: what device.plugin=auto means on this machine, and the number of ranks that follows from it.
#pragma once

#include <optional>
#include <string>

#include "config/config.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct DeviceChoice {
  std::string plugin;  // a value of device.plugin other than auto
  std::string reason;  // "no GPU is visible"; empty: the user named the device
};

// With `gpus` visible GPUs, auto is device.gpu if there is a plugin of that name, else the CPU. Loads no plugin.
DeviceChoice choose_device(const Config& config, const Registry& registry, int gpus);

// run.nproc; by default one rank for each visible GPU, and 2 on the CPU.
int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device, int gpus);

}  // namespace ddhost
