// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/memory/staging.hpp"

#include <bit>
#include <cstring>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// At least `bytes`, with room for somewhat larger data later.
void make_room(const Host& host, Buffer& memory, uint64_t bytes, const char* name) {
  if (memory.bytes() < bytes) memory = Buffer(host, DDH_TAG_DATA, std::bit_ceil(bytes), name, 0, DDH_MEM_PINNED);
}

}  // namespace

void HostWait::until_or_fault(Event& event) noexcept {
  try {
    until(event);
  } catch (const Error&) {  // after a fault nothing runs any more
  }
}

PinnedUploads::~PinnedUploads() {
  for (Block& block : blocks_)
    if (!block.is_read) wait_.until_or_fault(block.copied);
}

void PinnedUploads::queue(const std::vector<Part>& parts, ddh_stream* stream) {
  uint64_t bytes = 0;
  for (const Part& part : parts) bytes += aligned(part.bytes);
  if (bytes == 0) return;
  Block& block = blocks_[next_];
  if (!block.is_read) wait_.until(block.copied);
  make_room(host_, block.memory, bytes, "a batch on its way");
  next_ = 1 - next_;
  auto* at = static_cast<char*>(block.memory.data());
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    std::memcpy(at, part.from, part.bytes);
    call(host_.copy->copy, host_.h, part.to, DDH_MEM_DEVICE, at, DDH_MEM_PINNED, part.bytes, stream);
    block.is_read = false;
    block.copied.record(stream);  // after each copy, because the next one may fail
    at += aligned(part.bytes);
  }
}

void PinnedResult::send(const void* from, uint64_t bytes, ddh_stream* stream) {
  if (is_on_its_way_) wait_.until(sent_);
  make_room(host_, memory_, bytes, "results");
  call(host_.copy->copy, host_.h, memory_.data(), DDH_MEM_PINNED, from, DDH_MEM_DEVICE, bytes, stream);
  is_on_its_way_ = true;
  sent_.record(stream);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
