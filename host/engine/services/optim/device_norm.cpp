// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/device_norm.hpp"

#include <algorithm>

namespace ddhost {
namespace {

constexpr size_t kWords = DDH_SQUARES_WORDS;

}  // namespace

bool DeviceNorm::is_possible(const Device& device) {
  return !device.is_host_memory() && DDH_CAN(&device.flatops(), ddh_flatops_api, exact_squares);
}

DeviceNorm::~DeviceNorm() {
  for (const Chunk& chunk : chunks_) {
    memory_.release(chunk.words);
    memory_.release(chunk.host);
  }
  memory_.release(empty_);
}

// Takes the next slot's words from a chunk; a new chunk is filled in the order of the default stream.
uint64_t* DeviceNorm::words_of(size_t slot) {
  constexpr uint64_t kBytes = kSlots * kWords * sizeof(uint64_t);
  if (slot / kSlots == chunks_.size()) {
    const auto allocate = [&](int32_t kind) {
      return static_cast<uint64_t*>(memory_.allocate(DDH_TAG_COMM, kBytes, "sums of squares", kind));
    };
    if (empty_ == nullptr) {
      empty_ = allocate(DDH_MEM_PINNED);
      for (size_t i = kWords - 1; i < kSlots * kWords; i += kWords) empty_[i] = UINT64_MAX;
    }
    chunks_.push_back({allocate(DDH_MEM_DEVICE), allocate(DDH_MEM_PINNED)});
    device_.copy(chunks_.back().words, DDH_MEM_DEVICE, empty_, DDH_MEM_PINNED, kBytes, nullptr);
    ready_.set(nullptr);
  }
  return chunks_[slot / kSlots].words + slot % kSlots * kWords;
}

StreamMark& DeviceNorm::mark_of(ddh_stream* stream) {
  const auto at = std::find_if(used_by_.begin(), used_by_.end(), [&](const auto& use) { return use.first == stream; });
  if (at != used_by_.end()) return *at->second;
  used_by_.emplace_back(stream, std::make_unique<StreamMark>(device_));
  return *used_by_.back().second;
}

void DeviceNorm::add(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges,
                     ddh_stream* stream) {
  const uint64_t end = begin + numel;
  bool any = false;
  for (const ddh_range& range : ranges) {
    const uint64_t from = std::max(begin, range.flat_offset);
    const uint64_t to = std::min(end, range.flat_offset + range.numel);
    if (from >= to) continue;
    uint64_t* const words = words_of(slots_.size());
    slots_.push_back({range.param, range.param_offset + (from - range.flat_offset)});
    ready_.order(stream);
    device_.call()(PluginCall::kDeviceWork, device_.flatops().exact_squares, device_.context(), grad + (from - begin),
                   to - from, words, stream);
    any = true;
  }
  if (any) mark_of(stream).set(stream);
}

// Queued on the default stream, after all uses.
void DeviceNorm::reset(size_t n_slots) {
  for (size_t c = 0; c * kSlots < n_slots; ++c)
    device_.copy(chunks_[c].words, DDH_MEM_DEVICE, empty_, DDH_MEM_PINNED,
                 std::min(kSlots, n_slots - c * kSlots) * kWords * sizeof(uint64_t), nullptr);
  ready_.set(nullptr);
  slots_.clear();
  used_by_.clear();
}

void DeviceNorm::finish(GradientNorm& norm) {
  if (slots_.empty()) return device_.synchronize(nullptr);
  finish([&](const uint64_t* words, int32_t param, uint64_t offset) { norm.add_words(words, param, offset); });
}

void DeviceNorm::finish(const std::function<void(const uint64_t*, int32_t, uint64_t)>& take) {
  if (slots_.empty()) return;
  for (const auto& [stream, mark] : used_by_) mark->order(nullptr);
  const std::vector<Slot> slots = slots_;
  for (size_t c = 0; c * kSlots < slots.size(); ++c)
    device_.copy(chunks_[c].host, DDH_MEM_PINNED, chunks_[c].words, DDH_MEM_DEVICE,
                 std::min(kSlots, slots.size() - c * kSlots) * kWords * sizeof(uint64_t), nullptr);
  reset(slots.size());
  device_.synchronize(nullptr);
  for (size_t i = 0; i < slots.size(); ++i)
    take(chunks_[i / kSlots].host + i % kSlots * kWords, slots[i].param, slots[i].param_offset);
}

void DeviceNorm::clear() {
  if (slots_.empty()) return;
  for (const auto& [stream, mark] : used_by_) mark->order(nullptr);
  reset(slots_.size());
}

}  // namespace ddhost
