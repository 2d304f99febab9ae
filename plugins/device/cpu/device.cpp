// SPDX-License-Identifier: Apache-2.0
//
// cpu: the built-in device. Its memory is host memory, and every stream runs inline.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ddh/sdk/device.hpp"
#include "ddh/sdk/kernels/flat.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/memory/pages.hpp"
#include "instruction_set.hpp"
#include "peak_flops.hpp"

namespace cpu {
namespace {

class OpenCpu final : public ddh::OpenDevice {
 public:
  ddh_device_info info() override {
    const uint64_t bytes =
        static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    return {sizeof(ddh_device_info), 0, bytes, std::min(bytes, ddh::free_memory().bytes), "cpu", "", {}};
  }
  void* allocate(const ddh_alloc_args& args) override { return pages_.allocate(args.bytes); }
  void release(void* p, int32_t) override { pages_.release(p); }

  // Inline work is done when its call returns, so handles only need to be non-NULL.
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

  void copy(void* dst, int32_t, const void* src, int32_t, uint64_t bytes, ddh_stream*) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
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

  ddh_device_peak peak(int32_t dtype) override {
    const PeakFlops of_a_core = measured_peak_flops(dtype == DDH_BF16);
    return {sizeof(ddh_device_peak), of_a_core.dtype, of_a_core.per_s};
  }

 private:
  ddh::Pages pages_;
};

class Cpu final : public ddh::Device {
 public:
  explicit Cpu(const ddh_create& create) : Device(create, {.peak = true, .instruction_set = true}) {}
  std::string instruction_set(const char* limit) override { return cpu::instruction_set(limit); }
  std::unique_ptr<ddh::OpenDevice> open(int32_t index) override {
    if (index != 0) ddh::fail(DDH_UNAVAILABLE, "there is one device 'cpu', with index 0, not ", index);
    return std::make_unique<OpenCpu>();
  }
};

}  // namespace
}  // namespace cpu

DDH_CXX_PLUGIN(cpu::Cpu, device, "cpu", DDHOST_VERSION, "the CPU, with host memory and inline streams", nullptr,
               nullptr, DDH_CAP_IN_PROCESS | DDH_CAP_HOST_MEMORY);
