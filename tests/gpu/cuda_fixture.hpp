// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/cuda_fixture.hpp: the built plugin cuda.so, opened on the driver that place.hpp names.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "ddh/kind/device.h"
#include "ddh/sdk/stream.hpp"
#include "fixtures/harness/fake_host.hpp"
#include "gpu/place.hpp"

namespace ddhost::test {

using Entry = ddh_rc (*)(const ddh_host*, const ddh_module**, ddh_err*) noexcept;

// The plugin's instance; the device is opened by open(). Calls that fail throw ddh::Error.
class CudaPlugin {
 public:
  // `build`: the folder with plugins/cuda.so.
  explicit CudaPlugin(const std::string& driver = driver_file(), bool graphs = false,
                      const std::string& build = build_folder())
      : host_({{"device.driver", driver}, {"device.nvml", "libnvidia-ml-none.so"}, {"device.graphs", graphs}},
              std::make_shared<FakeKv>()) {
    void* const library = dlopen((build + "/plugins/cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) ddh::fail(DDH_UNAVAILABLE, dlerror());
    const auto entry = reinterpret_cast<Entry>(dlsym(library, DDH_ENTRY_SYMBOL));
    ddh::call(entry, host_.get(), &module_);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), "cuda", "device"};
    ddh::call(module_->create, &create, &inst_);
    table = static_cast<const ddh_device_api*>(module_->get_interface(inst_, DDH_DEVICE_IFACE));
  }
  CudaPlugin(const CudaPlugin&) = delete;
  CudaPlugin& operator=(const CudaPlugin&) = delete;
  ~CudaPlugin() { module_->destroy(inst_); }

  [[nodiscard]] int32_t count() const {
    int32_t out = 0;
    ddh::call(table->count, inst_, &out);
    return out;
  }
  [[nodiscard]] ddh_inst* inst() const { return inst_; }
  const ddh_device_api* table = nullptr;

 private:
  FakeHost host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
};

// The GPUs of a driver; 0 without one. They are counted in a process of their own: one that is forked after the driver was
// started can't use it.
inline int gpu_count(const std::string& driver = driver_file()) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(CudaPlugin(driver).count());
    } catch (const ddh::Error&) {
      _exit(0);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

class CudaDevice {
 public:
  explicit CudaDevice(bool graphs = false) : plugin_(driver_file(), graphs) {
    ddh::call(table->open, plugin_.inst(), 0, &context);
    for (ddh_stream*& stream : streams) ddh::call(table->stream->create, context, "test", &stream);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() {
    for (void* block : blocks_) table->release(context, block, DDH_MEM_DEVICE);
    for (ddh_stream* stream : streams) table->stream->destroy(context, stream);
    table->close(plugin_.inst(), context);
  }

  [[nodiscard]] ddh_inst* inst() const { return plugin_.inst(); }
  void* allocate(uint64_t bytes, int32_t memory = DDH_MEM_DEVICE) {
    const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM, bytes, memory, DDH_ALLOC_ZERO, "a test"};
    void* p = nullptr;
    ddh::call(table->allocate, context, &args, &p);
    if (memory == DDH_MEM_DEVICE) blocks_.push_back(p);
    return p;
  }
  // A copy of `values` on the device.
  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* const p = static_cast<T*>(allocate(values.size() * sizeof(T)));
    ddh::call(table->copy->copy, context, p, DDH_MEM_DEVICE, values.data(), DDH_MEM_HOST, values.size() * sizeof(T),
              nullptr);
    return p;
  }
  template <class T>
  std::vector<T> read(const T* p, uint64_t numel, ddh_stream* stream = nullptr) {
    std::vector<T> out(numel);
    ddh::call(table->copy->copy, context, out.data(), DDH_MEM_HOST, p, DDH_MEM_DEVICE, numel * sizeof(T), stream);
    ddh::call(table->stream->synchronize, context, stream);
    return out;
  }

 private:
  CudaPlugin plugin_;
  std::vector<void*> blocks_;

 public:
  const ddh_device_api* const table = plugin_.table;
  void* context = nullptr;
  ddh_stream* streams[2] = {};
};

}  // namespace ddhost::test
