// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/plugins/device/sim/sim_fixture.hpp: the device sim, linked in under an entry name of its own, opened
// behind its C tables.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <vector>

#include "ddh/kind/device.h"
#include "ddh/sdk/stream.hpp"
#include "fixtures/harness/fake_host.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_sim(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

struct SimOptions {
  int64_t capacity_bytes = 1 << 20;
  int64_t delay_us = 0, jitter_us = 0, seed = 0;
  bool check = true;
  int64_t quarantine_bytes = 1 << 16;
};

// The order in which work really runs must not matter.
inline SimOptions any_delay(int64_t seed) {
  return {.delay_us = GENERATE(0, 300), .jitter_us = GENERATE(0, 200), .seed = seed};
}

// An opened device. Calls that fail throw ddh::Error.
class SimDevice {
 public:
  explicit SimDevice(const SimOptions& options = {})
      : host_({{"device.capacity_bytes", options.capacity_bytes},
               {"device.delay_us", options.delay_us},
               {"device.jitter_us", options.jitter_us},
               {"device.seed", options.seed},
               {"device.check", int64_t{options.check}},
               {"device.quarantine_bytes", options.quarantine_bytes}},
              std::make_shared<FakeKv>()) {
    ddh::call(ddh_entry_sim, host_.get(), &module_);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), "sim", "device"};
    ddh::call(module_->create, &create, &inst_);
    table = static_cast<const ddh_device_api*>(module_->get_interface(inst_, DDH_DEVICE_IFACE));
    ddh::call(table->open, inst_, 0, &context);
  }
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;
  ~SimDevice() {
    close();
    module_->destroy(inst_);
  }
  void close() {
    if (context == nullptr) return;
    for (ddh_event* event : std::exchange(events_, {})) table->stream->event_destroy(context, event);
    table->close(inst_, std::exchange(context, nullptr));
  }

  float* allocate(const char* name, uint64_t numel, int32_t memory = DDH_MEM_DEVICE, uint32_t flags = DDH_ALLOC_ZERO) {
    const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM, numel * sizeof(float), memory, flags, name};
    void* p = nullptr;
    ddh::call(table->allocate, context, &args, &p);
    return static_cast<float*>(p);
  }
  void release(void* p, int32_t memory = DDH_MEM_DEVICE) { table->release(context, p, memory); }

  ddh_stream* stream(const char* name) {
    ddh_stream* out = nullptr;
    ddh::call(table->stream->create, context, name, &out);
    return out;
  }
  ddh_event* event() {
    ddh_event* out = nullptr;
    ddh::call(table->stream->event_create, context, &out);
    events_.push_back(out);
    return out;
  }
  void record(ddh_event* event, ddh_stream* stream) { ddh::call(table->stream->record, context, event, stream); }
  void wait(ddh_stream* stream, ddh_event* event) { ddh::call(table->stream->wait, context, stream, event); }
  void synchronize(ddh_stream* stream) { ddh::call(table->stream->synchronize, context, stream); }

  void fill(float* dst, uint64_t numel, double value, ddh_stream* stream) {
    ddh::call(table->flatops->fill, context, dst, DDH_F32, numel, value, stream);
  }
  void add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) {
    ddh::call(table->flatops->add, context, dst, src, numel, stream);
  }
  void copy(float* dst, int32_t dst_memory, const float* src, int32_t src_memory, uint64_t numel, ddh_stream* stream) {
    ddh::call(table->copy->copy, context, dst, dst_memory, src, src_memory, numel * sizeof(float), stream);
  }
  void touch(const float* data, uint64_t numel, const char* name) {
    const ddh::Accesses accesses = ddh::Accesses().reads(data, numel * sizeof(float));
    ddh::call(table->stream->touch, context, accesses.data(), accesses.size(), name);
  }
  template <class Body>
  void run(ddh_stream* stream, const ddh::Accesses& accesses, const char* name, Body body) {
    ddh::run_on_stream(*table->stream, context, stream, accesses, name, std::move(body));
  }
  // The values that a block of the device holds when `stream` has passed.
  std::vector<float> read(const float* src, uint64_t numel, ddh_stream* stream = nullptr) {
    std::vector<float> out(numel);
    copy(out.data(), DDH_MEM_HOST, src, DDH_MEM_DEVICE, numel, stream);
    synchronize(stream);
    return out;
  }
  [[nodiscard]] ddh_inst* inst() const { return inst_; }
  [[nodiscard]] std::vector<std::string> log() const { return host_.log(); }

  const ddh_device_api* table = nullptr;
  void* context = nullptr;

 private:
  FakeHost host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
  std::vector<ddh_event*> events_;
};

}  // namespace ddhost::test
