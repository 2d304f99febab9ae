// SPDX-License-Identifier: Apache-2.0
//
// nvml.hpp: what NVIDIA's management library measures of a GPU: time at work, memory in use, temperature. It is opened at
// run time; where it is missing, a run goes on without these numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddh/kind/device.h"
#include "ddh/sdk/plugin.hpp"

namespace cuda DDH_HIDDEN {

class Nvml {
 public:
  // Opens `file` and finds the GPU by its UUID. nullopt: there is no such library, or it does not know the GPU.
  static std::optional<Nvml> open(const std::string& file, const uint8_t (&uuid)[16]);

  // Numbers that it does not give are -1, or 0 bytes.
  [[nodiscard]] ddh_device_usage usage() const;

 private:
  // As nvml.h declares them.
  struct Rates {
    unsigned gpu, memory;  // percent
  };
  struct MemoryInfo {
    unsigned long long total, free, used;
  };
  using Handle = void*;
  using InitFn = int();
  using HandleByUuidFn = int(const char* uuid, Handle* out);
  using RatesFn = int(Handle device, Rates* out);
  using MemoryFn = int(Handle device, MemoryInfo* out);
  using TemperatureFn = int(Handle device, int sensor, unsigned* out);

  Handle device_ = nullptr;
  RatesFn* rates_ = nullptr;
  MemoryFn* memory_ = nullptr;
  TemperatureFn* temperature_ = nullptr;
};

}  // namespace DDH_HIDDEN
