// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/window.hpp: windows and exchanges (ddh/service/window.h) as objects, one per flat space.
#pragma once

#include "ddh/sdk/params/unit_views.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The parameters of one flat space: this rank's segment, and the full view while it is open.
class Window {
 public:
  Window(const Host& host, ddh_group* group, const FlatSpace& space, uint32_t flags);
  Window(Window&& other) noexcept : host_(other.host_), window_(std::exchange(other.window_, nullptr)) {}
  Window& operator=(Window&&) = delete;
  ~Window() { host_->window->destroy(host_->h, window_); }

  // This rank's segment; like the view, it has the space's dtype.
  [[nodiscard]] void* segment() const { return host_->window->segment(host_->h, window_); }
  // Between write_begin and commit this rank writes its segment. commit publishes it.
  void write_begin();
  void commit();
  // The full view: every rank's committed segment. `backing`: memory for a copy, on transports that copy. Valid until
  // close. [collective] on a transport that copies.
  void* open(void* backing = nullptr);
  void close();

 private:
  static constexpr ddh_stream* kInline = nullptr;
  const Host* host_;
  ddh_window* window_ = nullptr;
};

// Full-size gradient buffers, one per rank, and their sums over ranks.
class Exchange {
 public:
  Exchange(const Host& host, ddh_group* group, const std::string& name, uint64_t numel);
  Exchange(Exchange&& other) noexcept
      : host_(other.host_), exchange_(std::exchange(other.exchange_, nullptr)), later_(other.later_) {}
  Exchange& operator=(Exchange&&) = delete;
  ~Exchange() { host_->window->exchange_destroy(host_->h, exchange_); }

  [[nodiscard]] float* buffer() const { return host_->window->exchange_buffer(host_->h, exchange_); }
  // Between write_begin and ready this rank writes its buffer of numel fp32 elements.
  void write_begin();
  void ready();
  // Sums this rank's segment over the ranks' buffers. `dst`: the destination; nullptr: the segment in the buffer.
  // `ranges`: the parameters in the segment. `flags`: DDH_REDUCE_*. wait waits for the other ranks' segments.
  // [collective]
  void reduce(const std::vector<uint64_t>& segment_numel, float* dst, const std::vector<ddh_range>& ranges,
              uint32_t flags);
  void reduce(const FlatSpace& space, float* dst, const std::vector<ddh_range>& ranges, uint32_t flags) {
    reduce(space.cut.segment_numel, dst, ranges, flags);
  }
  void wait();
  // Whether DDH_REDUCE_LATER has an effect. It pays to reduce as soon as the buffer is ready then.
  [[nodiscard]] bool reduces_later() const { return later_; }

 private:
  static constexpr ddh_stream* kInline = nullptr;
  const Host* host_;
  ddh_exchange* exchange_ = nullptr;
  bool later_ = false;
};

// Zeroes the padding between parameters in a buffer that held another space before, on the default stream. `base`: the
// gradients after FlatSpace::blocks_numel.
void zero_padding(const Host& host, const FlatSpace& space, float* base);

inline bool is_last_micro_batch(const ddh_unit_use& use, const ddh_attach_args& args) {
  return static_cast<uint32_t>(use.micro_batch) + 1 == args.grad_accum_steps;
}

// Implements grads_ready: marks the gradients that this use of a unit has completed as ready in `grads`. In micro_first
// order only the last micro-batch does this, after the others were added to it.
template <class Grads>
void hand_over(const ddh_unit_use& use, const ddh_attach_args& args, const ModelLayout& layout, UnitViews& views,
               Grads& grads) {
  const bool last = is_last_micro_batch(use, args);
  if (args.reduce_order == DDH_MICRO_FIRST && !last) return;
  for (size_t s = 0; s < layout.spaces.size(); ++s) {
    if (!layout.spaces[s].is_ready_after(use.unit, use.program)) continue;
    grads.ready(s, last);
    views.forget_gradients(layout.spaces[s]);
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
