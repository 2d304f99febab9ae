// SPDX-License-Identifier: Apache-2.0
//
// own_memory: a device with memory of its own, of device.capacity_bytes for each rank, and streams that run inline: work
// is done when the call returns. The memory is the machine's, but the host does not know this: it copies what it needs to
// see, as it does on an accelerator. An author of a device replaces the bodies of the functions here.
//
//   ddhost --device ./own_memory.so device.capacity_bytes=100000000
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "ddh/sdk/device.hpp"
#include "ddh/sdk/kernels/flat.hpp"
#include "ddh/sdk/options.hpp"
#include "memory.hpp"

namespace own_memory {
namespace {

// The two places where a caller could confuse the host's memory and the device's.
void require_place(const Memory& memory, const void* p, uint64_t bytes, int32_t said, const char* side) {
  if (memory.is_device(p, bytes) == (said == DDH_MEM_DEVICE)) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "a copy of ", bytes, " bytes ", side, " memory that is ",
            said == DDH_MEM_DEVICE ? "not the device's" : "the device's",
            ", against its DDH_MEM_*; state the kind of each pointer, and stay within its block");
}

// One device of one rank.
class OpenMemory final : public ddh::OpenDevice {
 public:
  OpenMemory(int32_t index, uint64_t capacity_bytes) : index_(index), memory_(capacity_bytes) {}

  ddh_device_info info() override {
    return {sizeof(ddh_device_info), index_, memory_.capacity_bytes(), memory_.free_bytes(), "own_memory", "", {}};
  }
  void* allocate(const ddh_alloc_args& args) override { return memory_.allocate(args); }
  void release(void* p, int32_t) override { memory_.release(p); }

  // A stream that runs inline has nothing to store, so handles only need to be non-NULL.
  ddh_stream* stream_create(const char*) override { return reinterpret_cast<ddh_stream*>(this); }
  void stream_destroy(ddh_stream*) override {}
  ddh_event* event_create() override { return reinterpret_cast<ddh_event*>(this); }
  void event_destroy(ddh_event*) override {}
  void record(ddh_event*, ddh_stream*) override {}
  void wait(ddh_stream*, ddh_event*) override {}
  void synchronize(ddh_stream*) override {}
  void run(ddh_stream*, ddh_stream_fn fn, void* arg, const ddh_access*, uint32_t, const char*) override {
    ddh::call(fn, arg);
  }

  void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, ddh_stream*) override {
    if (bytes == 0) return;
    require_place(memory_, dst, bytes, dst_memory, "to");
    require_place(memory_, src, bytes, src_memory, "from");
    std::memcpy(dst, src, bytes);
  }

  // ddh/sdk/kernels/flat.hpp computes with the bits that every device must give.
  void fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream*) override {
    ddh::flat::fill(dst, dtype, numel, value);
  }
  void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel, ddh_stream*) override {
    ddh::flat::cast(dst, dst_dtype, src, src_dtype, numel);
  }
  void scale(float* dst, uint64_t numel, double factor, ddh_stream*) override {
    ddh::flat::scale(dst, numel, static_cast<float>(factor));
  }
  void add(float* dst, const float* src, uint64_t numel, ddh_stream*) override { ddh::flat::add(dst, src, numel); }

 private:
  const int32_t index_;
  Memory memory_;
};

class OwnMemory final : public ddh::Device {
 public:
  // Without other DeviceParts: no kernels of plugins, no graphs, no measurements; the host sums from copies.
  explicit OwnMemory(const ddh_create& create)
      : Device(create, {.present = true}), capacity_bytes_(static_cast<uint64_t>(options.i64("capacity_bytes"))) {}

  // Ranks share the device: rank r opens device r modulo this number.
  int32_t count() override { return std::max(1, present()); }
  // For device.plugin=auto: what the system shows without a driver, such as files in /dev. Here the user says it.
  int32_t present() override {
    const char* const count = std::getenv("OWN_MEMORY_DEVICES");
    return count == nullptr ? 0 : std::max(0, std::atoi(count));
  }
  // A missing or wrong device is an error here, not in the constructor: `ddhost list` must work without it.
  std::unique_ptr<ddh::OpenDevice> open(int32_t index) override {
    if (index < 0 || index >= count()) ddh::fail(DDH_UNAVAILABLE, "there is no device 'own_memory' with index ", index);
    return std::make_unique<OpenMemory>(index, capacity_bytes_);
  }

 private:
  const uint64_t capacity_bytes_;
};

constexpr ddh::Option kOptions[] = {
    {"capacity_bytes", "integer", "1073741824", R"("minimum": 1, "x-unit": "bytes")",
     "memory of the device, for each rank"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace
}  // namespace own_memory

// Without DDH_CAP_HOST_MEMORY: the host reaches device memory through copies. DDH_CAP_HOST_REACHABLE: functions of
// ddh_stream.run may access it, so optimizers without kernels work.
DDH_CXX_PLUGIN(own_memory::OwnMemory, device, "own_memory", "0.1.0", "memory of its own, streams that run inline",
               ddh::kSchemaOf<own_memory::kOptions>, own_memory::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_HOST_REACHABLE);
