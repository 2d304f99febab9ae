// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/device.hpp: the C++ base classes of a device. Device is the plugin; OpenDevice is one device that a rank has open.
// Each virtual function is the slot of that name in ddh/kind/device.h, ddh/service/stream.h, copy.h, flatops.h or kernels.h,
// which document it: units, memory, threads. Failures are thrown.
#pragma once

#include <memory>

#include "ddh/kind/device.h"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Functions are named as their slots; a prefix says the table where the slot's name alone does not.
class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  virtual ~OpenDevice() = default;

  [[nodiscard]] virtual ddh_device_info info() = 0;
  [[nodiscard]] virtual void* allocate(const ddh_alloc_args& args) = 0;
  virtual void release(void* p, int32_t memory) = 0;

  // Handles are the device's own and not NULL. The default stream is NULL; nothing that is destroyed is NULL.
  [[nodiscard]] virtual ddh_stream* stream_create(const char* name) = 0;
  virtual void stream_destroy(ddh_stream* stream) = 0;
  [[nodiscard]] virtual ddh_event* event_create() = 0;
  virtual void event_destroy(ddh_event* event) = 0;
  virtual void record(ddh_event* event, ddh_stream* stream) = 0;
  virtual void wait(ddh_stream* stream, ddh_event* event) = 0;
  virtual void synchronize(ddh_stream* stream) = 0;
  [[nodiscard]] virtual void* native(ddh_stream*) { return nullptr; }
  // `fn` returns its error by itself: a device that runs it in this call throws that error (ddh::call).
  virtual void run(ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n_accesses,
                   const char* name) = 0;
  virtual void touch(const ddh_access* /*accesses*/, uint32_t /*n_accesses*/, const char* /*name*/) {}

  virtual void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
                    ddh_stream* stream) = 0;

  virtual void fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* stream) = 0;
  virtual void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
                    ddh_stream* stream) = 0;
  virtual void scale(float* dst, uint64_t numel, double factor, ddh_stream* stream) = 0;
  virtual void add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) = 0;

  // With DeviceParts::sums.
  virtual void exact_squares(const float* src, uint64_t numel, uint64_t* words, ddh_stream* stream);
  virtual void ordered_sum(float* dst, const float* const* srcs, uint32_t n_srcs, uint32_t reduce_block, uint32_t flags,
                           uint64_t numel, ddh_stream* stream);

  // With DeviceParts::graphs.
  virtual void capture_begin(ddh_stream* stream, const char* name);
  [[nodiscard]] virtual ddh_graph* capture_end(ddh_stream* stream);
  virtual void capture_discard(ddh_stream* stream);  // capture_end without a result
  virtual void graph_launch(ddh_graph* graph, ddh_stream* stream);
  virtual void graph_destroy(ddh_graph* graph);

  // With DeviceParts::kernels.
  [[nodiscard]] virtual const char* kernel_format() { return nullptr; }
  [[nodiscard]] virtual ddh_kernel* kernel_find(const void* image, const char* name, uint64_t arg_bytes);
  virtual void kernel_launch(ddh_kernel* kernel, uint32_t blocks, uint32_t threads, const void* arg,
                             const ddh_access* accesses, uint32_t n_accesses, ddh_stream* stream);

  // With DeviceParts::usage.
  [[nodiscard]] virtual ddh_device_usage usage();

  // With DeviceParts::peak.
  [[nodiscard]] virtual ddh_device_peak peak(int32_t dtype);
};

// What a device can beyond that which every device can. The slots of all else are NULL.
struct DeviceParts {
  bool sums = false, graphs = false, kernels = false, usage = false, peak = false, present = false,
       instruction_set = false;
};

// Its tables are part of it: a device is closed before its plugin is destroyed.
class Device : public Instance {
 public:
  explicit Device(const ddh_create& create, DeviceParts parts = {});

  [[nodiscard]] virtual int32_t count() { return 1; }
  // With DeviceParts::present and DeviceParts::instruction_set.
  [[nodiscard]] virtual int32_t present();
  [[nodiscard]] virtual std::string instruction_set(const char* limit);
  // Of this rank. Error: DDH_UNAVAILABLE if there is no such device.
  [[nodiscard]] virtual std::unique_ptr<OpenDevice> open(int32_t index) = 0;
  virtual void close(std::unique_ptr<OpenDevice> device) noexcept { device.reset(); }

  [[nodiscard]] const void* interface(std::string_view id) const override;

 private:
  friend struct DeviceSlots;
  std::string instruction_set_;  // of the last call
  const ddh_stream_api streams_;
  const ddh_copy_api copy_;
  const ddh_flatops_api flatops_;
  const ddh_kernels_api kernels_;
  const ddh_device_api device_;  // points to the others
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
