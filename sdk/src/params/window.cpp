// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges: calls of ddh/service/window.h.
#include "ddh/sdk/params/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

Window::Window(const Host& host, ddh_group* group, const FlatSpace& space, uint32_t flags) : host_(&host) {
  const ddh_window_args args{sizeof(ddh_window_args), space.dtype,   group, space.cut.segment_numel.data(),
                             space.name.c_str(),      DDH_TAG_PARAM, flags};
  call(host.window->create, host.h, &args, &window_);
}

void Window::write_begin() { call(host_->window->write_begin, host_->h, window_, kInline); }

void Window::commit() { call(host_->window->commit, host_->h, window_, kInline); }

void* Window::open(void* backing) {
  void* view = nullptr;
  call(host_->window->open, host_->h, window_, backing, kInline, &view);
  return view;
}

void Window::close() { call(host_->window->close, host_->h, window_, kInline); }

Exchange::Exchange(const Host& host, ddh_group* group, const std::string& name, uint64_t numel) : host_(&host) {
  const ddh_exchange_args args{sizeof(ddh_exchange_args), 0, group, numel, name.c_str()};
  call(host.window->exchange_create, host.h, &args, &exchange_);
  later_ = (host.window->caps(host.h, group) & DDH_COMM_LATER) != 0;
}

void Exchange::write_begin() { call(host_->window->exchange_write_begin, host_->h, exchange_, kInline); }

void Exchange::ready() { call(host_->window->exchange_ready, host_->h, exchange_, kInline); }

void Exchange::reduce(const std::vector<uint64_t>& segment_numel, float* dst, const std::vector<ddh_range>& ranges,
                      uint32_t flags) {
  const ddh_reduce_args args{sizeof(ddh_reduce_args),
                             flags,
                             segment_numel.data(),
                             dst,
                             ranges.data(),
                             static_cast<uint32_t>(ranges.size()),
                             0};
  call(host_->window->exchange_reduce, host_->h, exchange_, &args, kInline);
}

void Exchange::wait() { call(host_->window->exchange_wait, host_->h, exchange_, kInline); }

void zero_padding(const Host& host, const FlatSpace& space, float* base) {
  for (const PlacedParam& p : space.params) {
    const uint64_t padding = round_up_to_grid(p.numel) - p.numel;
    if (padding == 0 || p.in_blocks) continue;
    call(host.flatops->fill, host.h, base + (p.offset - space.blocks_numel) + p.numel, DDH_F32, padding, 0.0, nullptr);
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
