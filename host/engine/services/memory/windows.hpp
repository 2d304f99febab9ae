// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/windows.hpp: windows and exchanges (ddh/service/window.h has the contract and the table of
// handshakes). There are two implementations: over pages that all ranks map (windows_shared.cpp), and over collectives
// (windows_copy.cpp, exchanges_copy.cpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/comm/comm.hpp"
#include "engine/services/memory/memory.hpp"
#include "engine/services/memory/staging.hpp"

namespace ddhost {

// Receives final gradients, for the norm of the step.
class NormSink {
 public:
  virtual ~NormSink() = default;
  // The parts of `ranges` in [begin, begin + numel) of a flat buffer; grad[i] is element begin + i.
  virtual void add_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) = 0;
  // Whether add_device_gradient is possible.
  [[nodiscard]] virtual bool sums_on_device() const = 0;
  // The same in memory of the device, in the order of `stream`, without a copy to the host.
  virtual void add_device_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges,
                                   ddh_stream* stream) = 0;
};

constexpr uint64_t kMaxWindowNumel = uint64_t{1} << 44;  // 64 TiB in fp32

// The segments of a flat space, as one rank uses them.
struct Segments {
  std::vector<uint64_t> numel;  // per rank of the group
  uint64_t my_offset = 0, my_numel = 0, total = 0;
  Segments() = default;
  Segments(const uint64_t* segment_numel, int32_t rank, int32_t group_size) { set(segment_numel, rank, group_size); }
  void set(const uint64_t* segment_numel, int32_t rank, int32_t group_size);
};

}  // namespace ddhost

// The types of the opaque handles of ddh/service/window.h. Shared pages exist only on devices with inline streams, so
// that implementation ignores streams.
struct ddh_window {
  virtual ~ddh_window() = default;
  virtual void* segment() = 0;
  virtual void write_begin(ddh_stream* stream) = 0;
  virtual void commit(ddh_stream* stream) = 0;
  virtual void* open(void* backing, ddh_stream* stream) = 0;
  virtual void close(ddh_stream* stream) = 0;
  [[nodiscard]] virtual bool is_open() const = 0;
  // All ranks have closed the current epoch; decide of a step guarantees it.
  virtual void all_closed() = 0;
};

struct ddh_exchange {
  virtual ~ddh_exchange() = default;
  // Each `ready` is followed by one `reduce`: another order would sum values that a peer still writes.
  void set_ready(bool ready) {
    if (ready == is_ready_)
      ddh::fail(DDH_FAILED_PRECONDITION, ready
                                             ? "an exchange is made ready twice; reduce it in between"
                                             : "an exchange is reduced before it is ready; call exchange_ready first");
    is_ready_ = ready;
  }
  virtual float* buffer() = 0;
  virtual void write_begin(ddh_stream* stream) = 0;
  virtual void ready(ddh_stream* stream) = 0;
  virtual void reduce(const ddh_reduce_args& args, ddhost::NormSink& norm, ddh_stream* stream) = 0;
  virtual void wait(ddh_stream* stream) = 0;

 private:
  bool is_ready_ = false;
};

namespace ddhost {

struct WindowSettings {
  bool copy = false;      // never share pages, even if the transport could; required if the device has its own memory
  bool poison = false;    // fill released views with NaN
  uint32_t reduce_block;  // ranks per block of the ordered sum over all ranks; a smaller group is one block
  bool round_to_bf16 = false;  // round each rank's contribution to a sum (precision.reduce_dtype)
};

// Operations between ranks, in a profile.
inline constexpr const char *kPublish = "publish", *kGather = "gather", *kReduceOperation = "reduce";

// `owner`: the plugin that creates it, for sentences.
std::unique_ptr<ddh_window> make_shared_window(const Comm& comm, Memory& memory, const ddh_window_args& args,
                                               const std::string& owner);
std::unique_ptr<ddh_exchange> make_shared_exchange(const Comm& comm, Memory& memory, const ddh_exchange_args& args,
                                                   const WindowSettings& settings, const std::string& owner);
// What this rank sends in a reduction.
ddh::SentBytes sent_in_reduction(const ddh::GroupRanks& ranks, const Segments& segments, const ddh_reduce_args& args);
// Throws if the flags of a reduction contradict each other.
void require_reducible(const ddh_reduce_args& args, const std::string& exchange);

std::unique_ptr<ddh_window> make_copy_window(const Comm& comm, Memory& memory, Staging& staging,
                                             const ddh_window_args& args, bool poison, const std::string& owner);
std::unique_ptr<ddh_exchange> make_copy_exchange(const Comm& comm, Memory& memory, Staging& staging,
                                                 const ddh_exchange_args& args, const WindowSettings& settings,
                                                 const std::string& owner);
// Ranks per block of a sum in this group; a transport with DDH_COMM_ORDERED_SUM uses the same.
uint32_t reduce_block_in(const Comm& comm, ddh_group* group, const WindowSettings& settings);

// Creates and owns windows and exchanges, with the implementation that transport and settings allow.
class Windows {
 public:
  Windows(const Comm& comm, Memory& memory, Staging& staging, WindowSettings settings)
      : comm_(comm), memory_(memory), staging_(staging), settings_(settings) {}

  [[nodiscard]] uint32_t caps(ddh_group* group) const;
  // `owner`: the plugin, "strategy 'zero1'".
  ddh_window* create(const ddh_window_args& args, const std::string& owner = "");
  void destroy(ddh_window* w);
  ddh_exchange* create_exchange(const ddh_exchange_args& args, const std::string& owner = "");
  void destroy(ddh_exchange* x);

  [[nodiscard]] bool any_open() const {
    for (const auto& w : windows_) {
      if (w->is_open()) return true;
    }
    return false;
  }
  // No rank has an open view, so writes need not wait for the marks of the current epochs.
  void all_closed() {
    for (const auto& w : windows_) w->all_closed();
  }
  [[nodiscard]] const Comm& comm() const { return comm_; }
  [[nodiscard]] Memory& memory() const { return memory_; }

 private:
  // Throws if ranks cut a window at different places; they would overwrite each other's segments. [collective]
  void require_same_segments(const ddh_window_args& args) const;

  const Comm& comm_;
  Memory& memory_;
  Staging& staging_;
  WindowSettings settings_;
  std::vector<std::unique_ptr<ddh_window>> windows_;
  std::vector<std::unique_ptr<ddh_exchange>> exchanges_;
};

}  // namespace ddhost
