// SPDX-License-Identifier: Apache-2.0
#include "plan/device_choice.hpp"

#include <algorithm>

#include "ddh/abi.h"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

constexpr const char* kCpu = "cpu";  // the device that is linked into the program

}  // namespace

DeviceChoice choose_device(const Config& config, const Registry& registry, int gpus) {
  const std::string &wish = config.text("device.plugin"), &gpu = config.text("device.gpu");
  if (wish != "auto") return {wish, "", id_of(wish) == gpu};
  if (gpus == 0) return {kCpu, "no GPU is visible"};
  const std::string visible = ddh::str(gpus, gpus == 1 ? " GPU is visible" : " GPUs are visible");
  const bool is_given = config.find("device.gpu")->source != "default";
  if (!is_given && !registry.knows(DDH_KIND_DEVICE, gpu))
    return {kCpu, ddh::str(visible, ", but there is no device '", gpu, "'")};
  return {gpu, visible, true};
}

int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device, int gpus) {
  if (nproc && (*nproc < 1 || *nproc > kMaxRanks))
    ddh::fail(DDH_OUT_OF_RANGE, "run.nproc (--nproc) is ", *nproc, "; start 1 to ", kMaxRanks, " ranks");
  if (nproc) return static_cast<int>(*nproc);
  return gpus > 0 && device.is_gpu ? std::min(gpus, kMaxRanks) : 2;
}

}  // namespace ddhost
