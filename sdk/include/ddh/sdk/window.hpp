// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/window.hpp: windows and exchanges (ddh/service/window.h) as objects, one per flat space.
#pragma once

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The parameters of one flat space: this rank's segment, and the full view while it is open.
class Window {
 public:
  Window(const Host& host, ddh_group* group, const FlatSpace& space, uint32_t flags) : host_(&host) {
    const ddh_window_args args{sizeof(ddh_window_args), space.dtype,   group, space.cut.segment_numel.data(),
                               space.name.c_str(),      DDH_TAG_PARAM, flags};
    call(host.window->create, host.h, &args, &window_);
  }
  Window(Window&& other) noexcept : host_(other.host_), window_(std::exchange(other.window_, nullptr)) {}
  Window& operator=(Window&&) = delete;
  ~Window() { host_->window->destroy(host_->h, window_); }

  // Of the space's dtype, as the view is.
  [[nodiscard]] void* segment() const { return host_->window->segment(host_->h, window_); }
  void write_begin() { call(host_->window->write_begin, host_->h, window_, kInline); }
  void commit() { call(host_->window->commit, host_->h, window_, kInline); }
  void* open(void* backing = nullptr) {
    void* view = nullptr;
    call(host_->window->open, host_->h, window_, backing, kInline, &view);
    return view;
  }
  void close() { call(host_->window->close, host_->h, window_, kInline); }

 private:
  static constexpr ddh_stream* kInline = nullptr;
  const Host* host_;
  ddh_window* window_ = nullptr;
};

// Full-size gradient buffers, one per rank, and their sums over ranks.
class Exchange {
 public:
  Exchange(const Host& host, ddh_group* group, const std::string& name, uint64_t numel) : host_(&host) {
    const ddh_exchange_args args{sizeof(ddh_exchange_args), 0, group, numel, name.c_str()};
    call(host.window->exchange_create, host.h, &args, &exchange_);
  }
  Exchange(Exchange&& other) noexcept : host_(other.host_), exchange_(std::exchange(other.exchange_, nullptr)) {}
  Exchange& operator=(Exchange&&) = delete;
  ~Exchange() { host_->window->exchange_destroy(host_->h, exchange_); }

  [[nodiscard]] float* buffer() const { return host_->window->exchange_buffer(host_->h, exchange_); }
  void write_begin() { call(host_->window->exchange_write_begin, host_->h, exchange_, kInline); }
  void ready() { call(host_->window->exchange_ready, host_->h, exchange_, kInline); }
  // `dst`: this rank's segment; nullptr = its place in the buffer. `ranges`: what the segment holds.
  void reduce(const FlatSpace& space, float* dst, const std::vector<ddh_range>& ranges, uint32_t flags) {
    const ddh_reduce_args args{sizeof(ddh_reduce_args),
                               flags,
                               space.cut.segment_numel.data(),
                               dst,
                               ranges.data(),
                               static_cast<uint32_t>(ranges.size()),
                               0};
    call(host_->window->exchange_reduce, host_->h, exchange_, &args, kInline);
  }
  void wait() { call(host_->window->exchange_wait, host_->h, exchange_, kInline); }

 private:
  static constexpr ddh_stream* kInline = nullptr;
  const Host* host_;
  ddh_exchange* exchange_ = nullptr;
};

// Zeroes what lies between parameters, where a buffer held another space before; on the default stream.
inline void zero_padding(const Host& host, const FlatSpace& space, float* base) {
  for (const PlacedParam& p : space.params) {
    const uint64_t padding = round_up_to_grid(p.numel) - p.numel;
    if (padding == 0) continue;
    call(host.flatops->fill, host.h, base + p.offset + p.numel, DDH_F32, padding, 0.0, nullptr);
  }
}

// What grads_ready does: the gradients that this use of a unit has made final go to `grads`, to be summed; in micro_first
// order only the last micro-batch's, onto which the others were added.
template <class Grads>
void hand_over(const ddh_unit_use& use, const ddh_attach_args& args, const ModelLayout& layout, UnitViews& views,
               Grads& grads) {
  const bool last = static_cast<uint32_t>(use.micro_batch) + 1 == args.grad_accum_steps;
  if (args.reduce_order == DDH_MICRO_FIRST && !last) return;
  for (const size_t s : layout.trained_spaces(use.unit, use.program)) {
    grads.ready(s, last);
    views.forget_gradients(layout.spaces[s]);
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
