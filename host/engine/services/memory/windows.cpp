// SPDX-License-Identifier: Apache-2.0
#include "engine/services/memory/windows.hpp"

#include <algorithm>

namespace ddhost {

void Segments::set(const uint64_t* segment_numel, int32_t rank, int32_t group_size) {
  numel.assign(segment_numel, segment_numel + group_size);
  total = 0;
  for (int32_t r = 0; r < group_size; ++r) {
    if (r == rank) my_offset = total;
    if (__builtin_add_overflow(total, numel[static_cast<size_t>(r)], &total) || total > kMaxWindowNumel)
      ddh::fail(DDH_OUT_OF_RANGE, "the segments of a window have more than 2^44 elements together; fix the strategy");
  }
  my_numel = numel[static_cast<size_t>(rank)];
}

ddh::SentBytes sent_in_reduction(const ddh::GroupRanks& ranks, const Segments& segments, const ddh_reduce_args& args) {
  ddh::SentBytes sent = ranks.pieces(segments.numel.data(), segments.total, sizeof(float));
  if ((args.flags & DDH_REDUCE_TO_ALL) != 0) sent += ranks.to_each(segments.my_numel * sizeof(float));
  return sent;
}

void require_reducible(const ddh_reduce_args& args, const std::string& exchange) {
  constexpr uint32_t kKnown = DDH_REDUCE_ADD | DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL | DDH_REDUCE_LATER;
  if ((args.flags & ~kKnown) != 0)
    ddh::fail(DDH_UNIMPLEMENTED, "flags ", args.flags, " of a reduction of exchange '", exchange,
              "' are unknown to this host");
  if ((args.flags & DDH_REDUCE_ADD) != 0 && args.dst == nullptr) {
    ddh::fail(DDH_INVALID_ARGUMENT, "a reduction of exchange '", exchange,
              "' adds to its own source; DDH_REDUCE_ADD needs a separate dst");
  }
}

uint32_t reduce_block_in(const Comm& comm, ddh_group* group, const WindowSettings& settings) {
  if (comm.group_or_world(group) == comm.world()) return settings.reduce_block;
  int32_t size = 1;
  comm.group_info(group, nullptr, &size, nullptr);
  return static_cast<uint32_t>(size);
}

uint32_t Windows::caps(ddh_group* group) const {
  uint32_t caps = 0;
  comm_.group_info(comm_.group_or_world(group), nullptr, nullptr, &caps);
  const bool shared = comm_.shared() != nullptr && !settings_.copy && (caps & DDH_COMM_SHARED_VIEW) != 0;
  const bool later = !shared && comm_.thread() != nullptr && memory_.device().is_host_memory();
  return (caps & ~(DDH_COMM_SHARED_VIEW | DDH_COMM_LATER)) | (shared ? DDH_COMM_SHARED_VIEW : 0) |
         (later ? DDH_COMM_LATER : 0);
}

void Windows::require_same_segments(const ddh_window_args& args) const {
  int32_t size = 1;
  comm_.group_info(comm_.group_or_world(args.group), nullptr, &size, nullptr);
  if (size == 1) return;
  const auto n = static_cast<size_t>(size);
  std::vector<uint64_t> all(n * n);  // row r: the segments that rank r gave
  comm_.all_gather_bytes(args.segment_numel, all.data(), n * sizeof(uint64_t), "segments of a window", args.group);
  for (size_t r = 1; r < n; ++r) {
    for (size_t segment = 0; segment < n; ++segment) {
      const uint64_t of_first = all[segment], of_r = all[r * n + segment];
      if (of_r == of_first) continue;
      ddh::fail(DDH_INVALID_ARGUMENT, "segment ", segment, " of window '", args.name == nullptr ? "unnamed" : args.name,
                "' has ", of_r, " elements on rank ", r, " of the group and ", of_first,
                " on rank 0; give the same segment_numel on every rank");
    }
  }
}

ddh_window* Windows::create(const ddh_window_args& args, const std::string& owner) {
  require_same_segments(args);
  const bool shared = (caps(args.group) & DDH_COMM_SHARED_VIEW) != 0;
  windows_.push_back(shared ? make_shared_window(comm_, memory_, args, owner)
                            : make_copy_window(comm_, memory_, staging_, args, settings_.poison, owner));
  return windows_.back().get();
}

ddh_exchange* Windows::create_exchange(const ddh_exchange_args& args, const std::string& owner) {
  const bool shared = (caps(args.group) & DDH_COMM_SHARED_VIEW) != 0;
  exchanges_.push_back(shared ? make_shared_exchange(comm_, memory_, args, settings_, owner)
                              : make_copy_exchange(comm_, memory_, staging_, args, settings_, owner));
  return exchanges_.back().get();
}

void Windows::destroy(ddh_window* w) {
  std::erase_if(windows_, [w](const auto& mine) { return mine.get() == w; });
}

void Windows::destroy(ddh_exchange* x) {
  std::erase_if(exchanges_, [x](const auto& mine) { return mine.get() == x; });
}

}  // namespace ddhost
