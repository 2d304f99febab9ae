// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nvml/api.cpp: the functions of libnvidia-ml.so.1 that the device plugin calls, for the GPUs of the
// stand-in for the driver. The number of the GPU is in its UUID. Instances of GPUs (MIG) have names of another kind.
#include <cstdint>
#include <cstdio>

extern "C" {

struct nvmlRates {
  unsigned gpu, memory;
};
struct nvmlMemory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  unsigned byte = 0;
  if (std::sscanf(uuid, "GPU-%2x", &byte) != 1 || byte == 0 || byte > 0x80) return 6;  // not found
  *out = reinterpret_cast<void*>(static_cast<uintptr_t>(byte));
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, nvmlRates* out) {
  *out = {40 + static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)), 7};
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, nvmlMemory* out) {
  *out = {1000, 400, 600};
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* out) {
  *out = 60 + static_cast<unsigned>(reinterpret_cast<uintptr_t>(device));
  return sensor == 0 ? 0 : 2;  // invalid argument
}

}  // extern "C"
