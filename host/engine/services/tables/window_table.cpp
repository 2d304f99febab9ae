// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/window.h: windows and exchanges.
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

Windows& windows_of(void* h) { return required(services_of(h).windows, "ddh.window"); }

void own(void* h, const void* handle, const char* kind, const char* name) {
  services_of(h).handles.add(handle, seat_of(h).shown, kind, name);
}

}  // namespace

const ddh_window_api kWindowTable = {
    sizeof(ddh_window_api),
    0,
    [](void* h, const ddh_window_args* args, ddh_window** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const ddh_window_args mine = checked(args);
        if (ddh_dtype_bytes(mine.dtype) == 0)
          ddh::fail(DDH_UNIMPLEMENTED, "dtype ", mine.dtype, " of a window is unknown to this host");
        if ((mine.flags & ~DDH_WINDOW_PERMANENT) != 0)
          ddh::fail(DDH_UNIMPLEMENTED, "flags ", mine.flags, " of a window are unknown to this host");
        check_tag(mine.tag);
        not_null(mine.segment_numel, "segment_numel");
        ddh_window*& window = *not_null(out, "out");
        window = windows_of(h).create(mine, seat_of(h).shown);
        own(h, window, "window", mine.name);
      });
    },
    [](void* h, ddh_window* w) noexcept {
      guard(nullptr, [&] {
        if (w != nullptr && services_of(h).handles.take(w, seat_of(h).shown, "window")) windows_of(h).destroy(w);
      });
    },
    [](void*, ddh_window* w) noexcept -> void* { return w == nullptr ? nullptr : w->segment(); },
    [](void*, ddh_window* w, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { not_null(w, "the window")->write_begin(stream); });
    },
    [](void* h, ddh_window* w, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] {
        not_null(w, "the window")->commit(stream);
        services_of(h).clock.count("comm.publish", 1);
      });
    },
    [](void*, ddh_window* w, void* backing, ddh_stream* stream, void** view, ddh_err* err) noexcept {
      return guard(err, [&] { *not_null(view, "view") = not_null(w, "the window")->open(backing, stream); });
    },
    [](void*, ddh_window* w, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { not_null(w, "the window")->close(stream); });
    },
    [](void* h, const ddh_exchange_args* args, ddh_exchange** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const ddh_exchange_args mine = checked(args);
        if (mine.numel > kMaxWindowNumel)
          ddh::fail(DDH_OUT_OF_RANGE, "an exchange of ", mine.numel, " elements is above the limit of 2^44");
        ddh_exchange*& exchange = *not_null(out, "out");
        exchange = windows_of(h).create_exchange(mine, seat_of(h).shown);
        own(h, exchange, "exchange", mine.name);
      });
    },
    [](void* h, ddh_exchange* x) noexcept {
      guard(nullptr, [&] {
        if (x != nullptr && services_of(h).handles.take(x, seat_of(h).shown, "exchange")) windows_of(h).destroy(x);
      });
    },
    [](void*, ddh_exchange* x) noexcept -> float* { return x == nullptr ? nullptr : x->buffer(); },
    [](void*, ddh_exchange* x, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { not_null(x, "the exchange")->write_begin(stream); });
    },
    [](void*, ddh_exchange* x, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] {
        not_null(x, "the exchange")->set_ready(true);
        x->ready(stream);
      });
    },
    [](void* h, ddh_exchange* x, const ddh_reduce_args* args, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] {
        RankServices& s = services_of(h);
        required(s.step, "ddh.optim").note_exchange();
        const ddh_reduce_args mine = checked(args);
        check_ranges(mine.ranges, mine.n_ranges);
        not_null(x, "the exchange")->set_ready(false);
        x->reduce(mine, required(s.step, "ddh.optim"), stream);
        s.clock.count("comm.reduce", 1);
      });
    },
    [](void*, ddh_exchange* x, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { not_null(x, "the exchange")->wait(stream); });
    },
    [](void* h, ddh_group* group) noexcept -> uint32_t {
      uint32_t caps = 0;
      guard(nullptr, [&] { caps = windows_of(h).caps(group); });
      return caps;
    },
};

}  // namespace ddhost::detail
