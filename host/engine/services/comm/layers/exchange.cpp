// SPDX-License-Identifier: Apache-2.0
#include "engine/services/comm/layers/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "ddh/sdk/collective.hpp"

namespace ddhost::layers {

void Layer::call(Slot slot, const char* name, ddh_coll c) const {
  if (api->*slot == nullptr)
    ddh::fail(DDH_UNIMPLEMENTED, "this transport has no ", name, "; choose another with --comm or comm.between");
  c.group = group;
  c.stream = nullptr;
  ddh::call(api->*slot, inst, &c);
}

void Exchange::add(Side& side, int32_t rank, std::byte* data, uint64_t bytes) {
  if (bytes == 0) return;
  const auto at = std::lower_bound(members_.begin(), members_.end(), rank);
  side.parts.push_back({static_cast<size_t>(at - members_.begin()), data, bytes});
}

Bytes Exchange::laid_out(Side& side) const {
  std::stable_sort(side.parts.begin(), side.parts.end(), [](const Part& a, const Part& b) { return a.peer < b.peer; });
  Bytes out{std::vector<uint64_t>(members_.size()), side.parts.empty() ? nullptr : side.parts.front().data};
  uint64_t total = 0;
  for (const Part& part : side.parts) {
    if (part.data != side.parts.front().data + total) out.data = side.scratch;
    out.of_rank[part.peer] += part.bytes;
    total += part.bytes;
  }
  if (out.data == side.scratch && total > side.capacity)
    ddh::fail(DDH_INTERNAL, "a message of ", total, " bytes between hosts does not fit into ", side.capacity);
  return out;
}

uint64_t Exchange::run(const char* label) {
  const Bytes out = laid_out(out_), in = laid_out(in_);
  uint64_t sent = 0;
  for (const Part& part : out_.parts) {
    if (out.data == out_.scratch) std::memcpy(out.data + sent, part.data, part.bytes);
    sent += part.bytes;
  }
  ddh_coll c = ddh::collective(DDH_U8, label);
  c.send = out.data;
  c.recv = in.data;
  c.counts = out.of_rank.data();
  c.recv_counts = in.of_rank.data();
  layer_.call(&ddh_comm_backend_api::all_to_all, "all_to_all", c);
  uint64_t at = 0;
  for (const Part& part : in_.parts) {
    if (in.data == in_.scratch) std::memcpy(part.data, in.data + at, part.bytes);
    at += part.bytes;
  }
  out_.parts.clear();
  in_.parts.clear();
  return sent;
}

}  // namespace ddhost::layers
