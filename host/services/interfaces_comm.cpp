// SPDX-License-Identifier: Apache-2.0
//
// Tables of ddh.comm and ddh.window: checks, counters, and the way to the transport.
#include <algorithm>
#include <cstring>

#include "services/interfaces.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

Comm& comm_of(void* h) { return required(services_of(h).comm, "ddh.comm"); }
Windows& windows_of(void* h) { return required(services_of(h).windows, "ddh.window"); }

using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;

// One collective through the transport: logical calls and bytes are counted here, transport bytes by the plugin.
ddh_rc run(void* h, const char* name, Collective function, const ddh_coll* args, ddh_err* err) noexcept {
  return guard(err, [&] {
    const Comm& comm = comm_of(h);
    if (function == nullptr) {
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no ", name, "; choose another with --comm");
    }
    if (args->struct_size < DDH_COLL_MIN_SIZE)
      ddh::fail(DDH_INVALID_ARGUMENT, "ddh_coll.struct_size is ", args->struct_size);
    ddh_coll c{};
    std::memcpy(&c, args, std::min<size_t>(args->struct_size, sizeof c));
    c.struct_size = sizeof c;
    c.group = comm.group_or_world(args->group);
    const ClockSpan span(comm.clock(), DDH_SPAN_COMM);
    ddh::call(function, comm.inst(), &c);
    comm.clock().count(ddh::str("comm.", name), 1);
    if (c.counts == nullptr) comm.clock().count(ddh::str("comm.", name, "_bytes"), c.count * ddh_dtype_bytes(c.dtype));
  });
}

template <Collective ddh_comm_backend::*slot>
ddh_rc collective(void* h, const char* name, const ddh_coll* args, ddh_err* err) noexcept {
  Collective function = nullptr;
  const ddh_rc rc = guard(err, [&] { function = comm_of(h).backend()->*slot; });
  return rc == DDH_OK ? run(h, name, function, args, err) : rc;
}

}  // namespace

const ddh_comm kCommTable = {
    sizeof(ddh_comm),
    0,
    [](void* h, const char* dimension, ddh_group** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::string name = dimension;
        if (name != "world" && name != "dp") {
          ddh::fail(DDH_NOT_FOUND, "the mesh has no dimension '", name, "'; there are 'world' and 'dp'");
        }
        *out = comm_of(h).world();
      });
    },
    [](void* h, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::call(comm_of(h).backend()->group_create, comm_of(h).inst(), name, ranks, n, out); });
    },
    [](void* h, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err* err) noexcept {
      return guard(err, [&] { comm_of(h).group_info(comm_of(h).group_or_world(group), rank, size, caps); });
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::all_reduce>(h, "all_reduce", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::reduce_scatter>(h, "reduce_scatter", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::all_gather>(h, "all_gather", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::broadcast>(h, "broadcast", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::all_to_all>(h, "all_to_all", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::send>(h, "send", args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend::recv>(h, "recv", args, err);
    },
    [](void* h, ddh_group* group, ddh_err* err) noexcept {
      return guard(err, [&] {
        const Comm& comm = comm_of(h);
        const ClockSpan span(comm.clock(), DDH_SPAN_COMM);
        ddh::call(comm.backend()->barrier, comm.inst(), comm.group_or_world(group));
      });
    },
};

const ddh_window kWindowTable = {
    sizeof(ddh_window),
    0,
    [](void* h, const ddh_window_args* args, ddh_window_t** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        if (ddh_dtype_bytes(args->dtype) == 0)
          ddh::fail(DDH_UNIMPLEMENTED, "dtype ", args->dtype, " of a window is unknown to this host");
        check_tag(args->tag);
        *out = windows_of(h).create(*args);
      });
    },
    [](void* h, ddh_window_t* w) noexcept { guard(nullptr, [&] { windows_of(h).destroy(w); }); },
    [](void*, ddh_window_t* w) noexcept { return w->segment(); },
    [](void*, ddh_window_t* w, ddh_stream_t*, ddh_err* err) noexcept { return guard(err, [&] { w->write_begin(); }); },
    [](void* h, ddh_window_t* w, ddh_stream_t*, ddh_err* err) noexcept {
      return guard(err, [&] {
        w->commit();
        services_of(h).clock.count("comm.publish", 1);
      });
    },
    [](void*, ddh_window_t* w, void* backing, ddh_stream_t*, void** view, ddh_err* err) noexcept {
      return guard(err, [&] { *view = w->open(backing); });
    },
    [](void*, ddh_window_t* w, ddh_stream_t*, ddh_err* err) noexcept { return guard(err, [&] { w->close(); }); },
    [](void* h, const ddh_exchange_args* args, ddh_exchange_t** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = windows_of(h).create_exchange(*args); });
    },
    [](void* h, ddh_exchange_t* x) noexcept { guard(nullptr, [&] { windows_of(h).destroy(x); }); },
    [](void*, ddh_exchange_t* x) noexcept { return x->buffer(); },
    [](void*, ddh_exchange_t* x, ddh_stream_t*, ddh_err* err) noexcept {
      return guard(err, [&] { x->write_begin(); });
    },
    [](void*, ddh_exchange_t* x, ddh_stream_t*, ddh_err* err) noexcept { return guard(err, [&] { x->ready(); }); },
    [](void* h, ddh_exchange_t* x, const ddh_reduce_args* args, ddh_stream_t*, ddh_err* err) noexcept {
      return guard(err, [&] {
        RankServices& s = services_of(h);
        x->reduce(*args, required(s.step, "ddh.optim"));
        s.clock.count("comm.reduce", 1);
      });
    },
    [](void*, ddh_exchange_t* x, ddh_stream_t*, ddh_err* err) noexcept { return guard(err, [&] { x->wait(); }); },
    [](void* h, ddh_group* group) noexcept -> uint32_t {
      uint32_t caps = 0;
      guard(nullptr, [&] { caps = windows_of(h).caps(group); });
      return caps;
    },
};

}  // namespace ddhost::detail
