// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/comm.h: checks, counters, and calls of the transport.
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

Comm& comm_of(void* h) {
  seat_of(h).note_ranks();
  return required(services_of(h).comm, "ddh.comm");
}

// A model's collectives never mix with the strategy's: it has its own group, which is created at its first call.
ddh_group* model_group(void* h) {
  RankServices& s = services_of(h);
  if (s.model_group != nullptr) return s.model_group;
  std::vector<int32_t> ranks(static_cast<size_t>(comm_of(h).world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  s.model_group = comm_of(h).group_create("model", ranks.data(), static_cast<uint32_t>(ranks.size()));
  return s.model_group;
}

using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;

constexpr uint64_t kLineBytes = 64;

// The size of a collective's buffer, in terms of `count`.
enum class Extent { kNothing, kPiece, kAllPieces };
// Who needs what this rank sends.
enum class Receivers { kNobody, kEachItsPiece, kAll, kAllTheSum, kAllFromRoot, kOne };
struct Shape {
  const char* name;
  Extent send, recv;
  Receivers receivers;
  bool sums = false;       // it may have an initial value
  bool exchanges = false;  // received pieces have their own counts
};

uint64_t bytes_of(Extent extent, const ddh_coll& c, const uint64_t* counts, int32_t rank, int32_t group_size) {
  const uint64_t width = ddh_dtype_bytes(c.dtype);
  if (extent == Extent::kNothing) return 0;
  if (counts == nullptr) return c.count * width * (extent == Extent::kPiece ? 1 : static_cast<uint64_t>(group_size));
  if (extent == Extent::kPiece) return counts[rank] * width;
  return std::accumulate(counts, counts + group_size, uint64_t{0}) * width;
}

uint64_t round_up_to_line(uint64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

// The transport gets host memory: buffers on a device with its own memory are copied through staging. There the initial
// value of a sum is in the memory of its result.
void call_staged(RankServices& s, const Shape& shape, Collective function, ddh_coll c) {
  const auto is_away = [&](const void* p) { return p != nullptr && !s.memory.is_host_memory(p); };
  const bool send_away = is_away(c.send), recv_away = is_away(c.recv), initial_away = is_away(c.initial);
  if (!send_away && !recv_away && !initial_away) return s.comm->call(PluginCall::kCollective, function, &c);
  int32_t rank = 0, size = 1;
  s.comm->group_info(c.group, &rank, &size, nullptr);
  const uint64_t* const recv_counts = c.recv_counts != nullptr ? c.recv_counts : c.counts;
  const uint64_t send_bytes = send_away ? bytes_of(shape.send, c, c.counts, rank, size) : 0;
  const uint64_t recv_bytes = bytes_of(shape.recv, c, recv_counts, rank, size);
  const uint64_t recv_offset = round_up_to_line(send_bytes);
  const uint64_t initial_offset = recv_offset + (recv_away ? round_up_to_line(recv_bytes) : 0);
  const bool initial_apart = initial_away && !recv_away;
  char* const host = s.staging->begin(nullptr, initial_offset + (initial_apart ? recv_bytes : 0));
  void* const device_recv = c.recv;
  if (send_away) {
    s.staging->fetch(host, c.send, send_bytes, c.stream);
    c.send = host;
  }
  if (recv_away) c.recv = host + recv_offset;
  if (initial_away) {
    char* const at = initial_apart ? host + initial_offset : static_cast<char*>(c.recv);
    s.staging->fetch(at, c.initial, recv_bytes, c.stream);
    c.initial = at;
  }
  s.comm->call(PluginCall::kCollective, function, &c);
  if (recv_away) s.staging->store(device_recv, c.recv, recv_bytes, c.stream);
}

// Whether the transport of the device takes the call: all buffers are in memory that the device reaches, and one is its
// own. Ranks give the same kinds of memory, so they choose the same transport.
bool is_for_device(const RankServices& s, const ddh_coll& c) {
  bool any = false;
  for (const void* p : {c.send, static_cast<const void*>(c.recv), c.initial}) {
    if (p == nullptr) continue;
    const int32_t kind = s.memory.kind_of(p);
    if (kind == DDH_MEM_HOST) return false;
    any = any || kind == DDH_MEM_DEVICE;
  }
  return any;
}

// Checks for all transports.
void check_arguments(const Comm& comm, const Shape& shape, const ddh_coll& c) {
  if (shape.exchanges && (c.counts != nullptr) != (c.recv_counts != nullptr))
    ddh::fail(DDH_INVALID_ARGUMENT, shape.name, " has `counts` or `recv_counts` alone; give both, or neither");
  if (c.initial == nullptr) return;
  if (!shape.sums)
    ddh::fail(DDH_INVALID_ARGUMENT, shape.name, " takes no `initial`; only all_reduce and reduce_scatter do");
  uint32_t caps = 0;
  comm.group_info(c.group, nullptr, nullptr, &caps);
  if ((caps & DDH_COMM_INITIAL) == 0)
    ddh::fail(DDH_UNIMPLEMENTED, "this transport can't start a sum from a value (DDH_COMM_INITIAL); ",
              "set train.reduce_order=micro_first, or choose another with --comm");
}

ddh::SentBytes sent_in(const Comm& comm, const Shape& shape, const ddh_coll& c) {
  const ddh::GroupRanks ranks = comm.ranks_of(c.group);
  const uint64_t width = ddh_dtype_bytes(c.dtype);
  switch (shape.receivers) {
    case Receivers::kNobody:
      return {};
    case Receivers::kAll:
      return ranks.to_each((c.counts != nullptr ? c.counts[ranks.me()] : c.count) * width);
    case Receivers::kAllTheSum:
      return ranks.all_reduce(c.count, width);
    case Receivers::kAllFromRoot:
      return static_cast<size_t>(c.root) == ranks.me() ? ranks.to_each(c.count * width) : ddh::SentBytes{};
    case Receivers::kOne:
      return ranks.to_one(static_cast<size_t>(c.root), c.count * width);
    case Receivers::kEachItsPiece:
      break;
  }
  if (c.counts != nullptr) return ranks.pieces({c.counts, c.counts + ranks.size()}, width);
  return ranks.pieces(std::vector<uint64_t>(ranks.size(), c.count), width);
}

// Makes one collective with a transport. Logical calls and bytes are counted here; the plugin counts transport bytes.
ddh_rc run(void* h, const Shape& shape, DeviceComm::Collective slot, const ddh_coll* args, ddh_err* err) noexcept {
  return guard(err, [&] {
    const Comm& comm = comm_of(h);
    const Collective function = comm.backend()->*slot;
    if (function == nullptr) {
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no ", shape.name, "; choose another with --comm");
    }
    ddh_coll c = checked(args);
    c.struct_size = sizeof c;
    if (c.group == nullptr) c.group = seat_of(h).is_model ? model_group(h) : comm.world();
    check_arguments(comm, shape, c);
    const Comm::Turn turn(comm);
    SpanTopic topic(shape.name, nullptr, c.label);
    if (shape.receivers != Receivers::kOne && shape.receivers != Receivers::kNobody)
      topic.among(comm.members_of(c.group));
    const ClockSpan span(comm.clock(), DDH_SPAN_COMM, topic);
    if (comm.device() != nullptr && comm.device()->has(slot) && is_for_device(services_of(h), c))
      comm.device()->queue(PluginCall::kCollective, slot, c);
    else
      call_staged(services_of(h), shape, function, c);
    comm.clock().count(ddh::str("comm.", shape.name), 1);
    if (c.counts == nullptr)
      comm.clock().count(ddh::str("comm.", shape.name, "_bytes"), c.count * ddh_dtype_bytes(c.dtype));
    comm.count_sent(sent_in(comm, shape, c), shape.name);
  });
}

template <DeviceComm::Collective slot>
ddh_rc collective(void* h, const Shape& shape, const ddh_coll* args, ddh_err* err) noexcept {
  return run(h, shape, slot, args, err);
}

}  // namespace

const ddh_comm_api kCommTable = {
    sizeof(ddh_comm_api),
    0,
    [](void* h, const char* dimension, ddh_group** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::string name = not_null(dimension, "the dimension");
        if (name != "world" && name != "dp") {
          ddh::fail(DDH_NOT_FOUND, "the mesh has no dimension '", name, "'; there are 'world' and 'dp'");
        }
        *out = seat_of(h).is_model ? model_group(h) : comm_of(h).world();
      });
    },
    [](void* h, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = comm_of(h).group_create(name, ranks, n); });
    },
    [](void* h, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err* err) noexcept {
      return guard(err, [&] { comm_of(h).group_info(comm_of(h).group_or_world(group), rank, size, caps); });
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::all_reduce>(
          h, {"all_reduce", Extent::kPiece, Extent::kPiece, Receivers::kAllTheSum, true}, args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::reduce_scatter>(
          h, {"reduce_scatter", Extent::kAllPieces, Extent::kPiece, Receivers::kEachItsPiece, true}, args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::all_gather>(
          h, {"all_gather", Extent::kPiece, Extent::kAllPieces, Receivers::kAll}, args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::broadcast>(
          h, {"broadcast", Extent::kPiece, Extent::kPiece, Receivers::kAllFromRoot}, args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::all_to_all>(
          h, {"all_to_all", Extent::kAllPieces, Extent::kAllPieces, Receivers::kEachItsPiece, false, true}, args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::send>(h, {"send", Extent::kPiece, Extent::kNothing, Receivers::kOne},
                                                     args, err);
    },
    [](void* h, const ddh_coll* args, ddh_err* err) noexcept {
      return collective<&ddh_comm_backend_api::recv>(h, {"recv", Extent::kNothing, Extent::kPiece, Receivers::kNobody},
                                                     args, err);
    },
    [](void* h, ddh_group* group, ddh_err* err) noexcept {
      return guard(err, [&] {
        const Comm& comm = comm_of(h);
        SpanTopic topic("barrier");
        if (group == nullptr) topic.among(comm.members_of(nullptr));  // the transport judges a plugin's own group
        const ClockSpan span(comm.clock(), DDH_SPAN_COMM, topic);
        comm.call(PluginCall::kBarrier, comm.backend()->barrier, comm.group_or_world(group));
      });
    },
};

}  // namespace ddhost::detail
