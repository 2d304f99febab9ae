// SPDX-License-Identifier: Apache-2.0
//
// context.hpp: an opened GPU: its primary context, memory, streams, loaded kernels.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddh/sdk/device.hpp"
#include "driver.hpp"
#include "nvml.hpp"

namespace cuda DDH_HIDDEN {

struct Kernel {
  CUfunction function = nullptr;
  uint64_t arg_bytes = 0;
};

// Every function makes the GPU's context the thread's own first, because any thread may call.
class Context final : public ddh::OpenDevice {
 public:
  struct Settings {
    std::string nvml;     // the file of NVIDIA's management library
    bool graphs = false;  // begin_capture is possible
  };
  Context(const Driver& driver, const Settings& settings, int32_t index);
  ~Context() override;

  ddh_device_info info() override;
  // Without the management library it throws UNIMPLEMENTED.
  ddh_device_usage usage() override;
  void* allocate(const ddh_alloc_args& args) override;
  void release(void* p, int32_t memory) override;

  ddh_stream* stream_create(const char* name) override;
  void stream_destroy(ddh_stream* stream) override;
  ddh_event* event_create() override;
  void event_destroy(ddh_event* event) override;
  void record(ddh_event* event, ddh_stream* stream) override;
  void wait(ddh_stream* stream, ddh_event* event) override;
  void synchronize(ddh_stream* stream) override;  // throws errors of host functions on a stream
  void* native(ddh_stream* stream) override { return stream_of(stream); }
  void run(ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
           const char* name) override;

  void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
            ddh_stream* stream) override;

  // Flat operations: each is a kernel of flat_kernels.cu (flat.cpp).
  void fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* stream) override;
  void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
            ddh_stream* stream) override;
  void scale(float* dst, uint64_t numel, double factor, ddh_stream* stream) override;
  void add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) override;
  void exact_squares(const float* src, uint64_t numel, uint64_t* words, ddh_stream* stream) override;
  void ordered_sum(float* dst, const float* const* srcs, uint32_t n_srcs, uint32_t reduce_block, uint32_t flags,
                   uint64_t numel, ddh_stream* stream) override;

  // Until capture_end, work on this stream is recorded. Calls of this thread that a graph can't replay are refused, and
  // what it gives back is freed after the capture.
  [[nodiscard]] bool has_graphs() const { return graphs_; }
  [[nodiscard]] bool has_captured() const { return has_captured_; }
  void capture_begin(ddh_stream* stream, const char* name) override;
  ddh_graph* capture_end(ddh_stream* stream) override;
  void capture_discard(ddh_stream* stream) override;
  void graph_launch(ddh_graph* graph, ddh_stream* stream) override;
  void graph_destroy(ddh_graph* graph) override;

  const char* kernel_format() override { return "ptx"; }
  ddh_kernel* kernel_find(const void* image, const char* name, uint64_t arg_bytes) override;
  void kernel_launch(ddh_kernel* kernel, uint32_t blocks, uint32_t threads, const void* arg, const ddh_access*,
                     uint32_t, ddh_stream* stream) override {
    launch(*reinterpret_cast<const Kernel*>(kernel), blocks, threads, arg, stream);
  }

 private:
  struct Job;
  struct RetainContext {};
  // Without its streams. The other constructor creates them; if that fails, the destructor gives back the context.
  Context(const Driver& driver, const Settings& settings, int32_t index, RetainContext);
  void enter() const;
  // NULL is the default stream: an own one, which is not ordered with the other streams of the process.
  [[nodiscard]] CUstream stream_of(ddh_stream* stream) const {
    return stream == nullptr ? main_ : reinterpret_cast<CUstream>(stream);
  }
  CUstream create_stream();
  void set_zero(void* dst, uint64_t bytes, ddh_stream* stream);
  // A kernel of an image, which is loaded at its first use.
  const Kernel& find(const char* image, const char* name, uint64_t arg_bytes);
  void launch(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* arg, ddh_stream* stream);
  // A flat operation, whose work is `work` elements.
  template <class Args>
  void launch_flat(ddh_stream* stream, const char* name, const Args& args, uint64_t work);
  template <class T>
  void fill_with(ddh_stream* stream, const char* name, void* dst, uint64_t numel, T value);
  template <class To, class From>
  void cast_with(ddh_stream* stream, const char* name, void* dst, const void* src, uint64_t numel);
  // Loads all kernels of flat operations: inside of a capture CUDA loads none.
  void load_flat_kernels();
  template <class Args>
  void load_flat(std::initializer_list<const char*> names);
  void check_capability() const;
  [[nodiscard]] bool is_own_block(const void* p);
  // Memory of this device or of a library. The context is the thread's own.
  [[nodiscard]] bool is_device_memory(const void* p);
  void check_kind(const char* side, const void* p, int32_t said);
  // Whether this thread is inside of a capture.
  [[nodiscard]] bool is_capturing() const { return capturing_.load() == std::this_thread::get_id(); }
  // Refuses `call` inside of a capture.
  void refuse_capture(const char* call) const;
  // Calls free() now, or after the capture: in a capture CUDA refuses it.
  template <class Free>
  void free_outside_capture(Free&& free);
  // Does nothing outside of a capture of this thread.
  void leave_capture() noexcept;
  [[nodiscard]] CUmodule load(const char* image) const;
  void fail_once(const ddh::Error& error);

  const Driver& driver_;
  const int32_t index_;
  const bool graphs_;
  bool has_captured_ = false;  // a capture has begun
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream main_ = nullptr;
  CUstream zeroing_ = nullptr;  // zero-fills new blocks without waiting for other work
  std::string name_;
  CUuuid uuid_{};
  std::optional<Nvml> nvml_;
  std::mutex mutex_;
  std::map<const char*, uint64_t> device_blocks_;  // begin, bytes
  std::map<const char*, CUmodule> modules_;        // by image
  std::map<std::pair<const char*, std::string>, std::unique_ptr<Kernel>> kernels_;
  std::mutex failure_mutex_;
  std::optional<ddh::Error> failure_;       // the first of a host function
  std::atomic<std::thread::id> capturing_;  // the thread inside of a capture; no thread: the default id
  // The members below are used by that thread.
  std::string capture_;                             // name
  std::vector<std::function<void()>> to_be_freed_;  // after the capture
};

}  // namespace DDH_HIDDEN
