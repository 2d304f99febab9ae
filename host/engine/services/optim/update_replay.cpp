// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/update_replay.hpp"

#include <algorithm>
#include <cstring>

#include "ddh/sdk/layout.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kAlignment = 256;

}  // namespace

UpdateReplay::UpdateReplay(const ddh_update_args& real, std::span<const UpdateBuffer> buffers, const ddh_range& range,
                           uint64_t lead, unsigned char mark)
    : buffers_(buffers), lead_(lead), range_(range), copies_(buffers.size()), shard_(*real.shard), args_(real) {
  range_.flat_offset = lead;
  const uint64_t total = lead + ddh::round_up_to_grid(range.numel) + DDH_GRID;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const UpdateBuffer& buffer = buffers[i];
    if (buffer.base == nullptr) continue;
    Copy& copy = copies_[i];
    const uint64_t bytes = total * buffer.element_bytes;
    copy.memory.assign(bytes + kAlignment, static_cast<char>(mark));
    const auto address = reinterpret_cast<uintptr_t>(copy.memory.data());
    copy.begin = copy.memory.data() + (kAlignment - address % kAlignment) % kAlignment;
    if (buffer.reads)
      std::memcpy(copy.begin + lead * buffer.element_bytes, buffer.at(range.flat_offset),
                  range.numel * buffer.element_bytes);
    copy.before.assign(copy.begin, copy.begin + bytes);
  }
  make_args(real);
}

void UpdateReplay::make_args(const ddh_update_args& real) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    char* const p = copies_[i].begin;
    switch (buffers_[i].kind) {
      case UpdateBuffer::Kind::kMaster:
        shard_.master = reinterpret_cast<float*>(p);
        break;
      case UpdateBuffer::Kind::kLowp:
        shard_.lowp = p;
        break;
      case UpdateBuffer::Kind::kGrad:
        grads_.push_back(reinterpret_cast<const float*>(p));
        break;
      case UpdateBuffer::Kind::kSlot:
        slots_.push_back(p);
        break;
      case UpdateBuffer::Kind::kValue:  // element 0 belongs to the range's first
        values_.push_back(reinterpret_cast<float*>(p) + lead_);
        break;
    }
  }
  shard_.ranges = &range_;
  shard_.n_ranges = 1;
  shard_.grads = grads_.data();
  shard_.slots = real.shard->slots == nullptr ? nullptr : slots_.data();
  args_.shard = &shard_;
}

std::span<const char> UpdateReplay::result(size_t buffer) const {
  const char* const begin = copies_[buffer].begin;
  if (begin == nullptr) return {};
  const uint64_t bytes = buffers_[buffer].element_bytes;
  return {begin + lead_ * bytes, range_.numel * bytes};
}

std::string UpdateReplay::forbidden_write(bool skipped) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Copy& copy = copies_[i];
    if (copy.begin == nullptr) continue;
    const uint64_t end = lead_ + range_.numel;
    const bool may_write = buffers_[i].writes && !skipped;
    for (auto before = copy.before.begin(); before != copy.before.end(); ++before) {
      const auto offset = before - copy.before.begin();
      before = std::mismatch(before, copy.before.end(), copy.begin + offset).first;
      if (before == copy.before.end()) break;
      const uint64_t element = static_cast<uint64_t>(before - copy.before.begin()) / buffers_[i].element_bytes;
      const std::string& name = buffers_[i].name;
      if (element < lead_) return "writes to " + name + " before the beginning of its range";
      if (element >= end) return "writes to " + name + " behind the end of its range";
      if (!may_write)
        return ddh::str("writes element ", range_.param_offset + element - lead_, " of ", name,
                        skipped ? " in a step that is skipped" : "");
    }
  }
  return "";
}

}  // namespace ddhost
