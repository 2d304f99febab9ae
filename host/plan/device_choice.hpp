// SPDX-License-Identifier: Apache-2.0
//
// plan/device_choice.hpp: what device.plugin=auto means on this machine, and the number of ranks that follows from it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "launch/launch.hpp"
#include "plan/ask_device.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct DeviceChoice {
  std::string plugin;  // a value of device.plugin other than auto
  std::string reason;  // why auto is this device: "3 devices of 'cuda' are present"; empty: the user named the device
  int present = 0;     // devices of it; 0: not known
  std::vector<std::string> warnings{};  // sentences: what could not be asked, so that auto does not take it
};

// Asks a file of devices; tests replace it.
using AskDevices = std::function<std::vector<DeviceAnswer>(const std::filesystem::path&)>;

// `auto` is the device plugin that has devices here, or the linked one (the CPU) where none has. A device that can't be asked,
// or a library that can't be read, is not taken, and gives a warning. A name that the user gave is taken in any case; it is
// asked only if `nproc` is not given. Error: several plugins have devices. Loads no plugin into this process. `base`: of a
// relative path.
DeviceChoice choose_device(const Config& config, const Registry& registry, const std::filesystem::path& base,
                           const AskDevices& ask);

// The device that is linked into this program. Error: there is none.
std::string linked_device(const Registry& registry);

// Ranks that `ddhost plan` can plan.
constexpr int kMostPlanned = 1 << 20;

// run.nproc, from 1 to `most`; by default one rank for each device that is present, and 2 on a device that does not count
// its own.
int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device, int most = kMaxRanks);

}  // namespace ddhost
