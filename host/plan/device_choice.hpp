// SPDX-License-Identifier: Apache-2.0
//
// plan/device_choice.hpp: what device.plugin=auto means on this machine, and the number of ranks that follows from it.
#pragma once

#include <optional>
#include <string>

#include "config/config.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct DeviceChoice {
  std::string plugin;   // a value of device.plugin other than auto
  std::string reason;   // "no GPU is visible"; empty: the user named the device
  bool is_gpu = false;  // it is device.gpu, by name or by path
};

// With `gpus` visible GPUs, auto is device.gpu, or the CPU where there is no plugin of its default name. A name that the
// user gave is taken in any case, and so is a plugin that can't be used: the run is then refused, and is not on the CPU
// by mistake. Loads no plugin.
DeviceChoice choose_device(const Config& config, const Registry& registry, int gpus);

// run.nproc; by default one rank for each visible GPU on device.gpu, and 2 on every other device.
int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device, int gpus);

}  // namespace ddhost
