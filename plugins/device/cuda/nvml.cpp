// SPDX-License-Identifier: Apache-2.0
#include "nvml.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <type_traits>

namespace cuda DDH_HIDDEN {
namespace {

constexpr int kSuccess = 0, kSensorOfGpu = 0;

// "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
std::string uuid_text(const uint8_t (&uuid)[16]) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof uuid; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += two;
  }
  return text;
}

}  // namespace

std::optional<Nvml> Nvml::open(const std::string& file, const uint8_t (&uuid)[16]) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto take = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  InitFn* init = nullptr;
  HandleByUuidFn* handle_by_uuid = nullptr;
  Nvml nvml;
  const bool has_all = take(init, "nvmlInit_v2") && take(handle_by_uuid, "nvmlDeviceGetHandleByUUID") &&
                       take(nvml.rates_, "nvmlDeviceGetUtilizationRates") &&
                       take(nvml.memory_, "nvmlDeviceGetMemoryInfo") &&
                       take(nvml.temperature_, "nvmlDeviceGetTemperature");
  if (!has_all || init() != kSuccess) return std::nullopt;
  if (handle_by_uuid(uuid_text(uuid).c_str(), &nvml.device_) != kSuccess) return std::nullopt;
  return nvml;
}

ddh_device_usage Nvml::usage() const {
  Rates rates{};
  MemoryInfo memory{};
  unsigned celsius = 0;
  ddh_device_usage out{sizeof out, -1, -1, 0, 0};
  if (rates_(device_, &rates) == kSuccess) out.busy_percent = static_cast<int32_t>(rates.gpu);
  if (temperature_(device_, kSensorOfGpu, &celsius) == kSuccess) out.celsius = static_cast<int32_t>(celsius);
  if (memory_(device_, &memory) == kSuccess) out.used_bytes = memory.used;
  return out;
}

}  // namespace DDH_HIDDEN
