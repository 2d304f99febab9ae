// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/tier/upload_buffers.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

UploadBuffers::UploadBuffers(const Host& host, uint64_t bytes)
    : host_(host), bytes_(bytes), computed_(host), copied_(host) {
  call(host_.stream->create, host_.h, "uploads from files", &stream_);
}

UploadBuffers::~UploadBuffers() {
  ErrorBuffer ignored;  // a failure of the device was already reported
  host_.stream->synchronize(host_.h, stream_, ignored.get());
  host_.stream->destroy(host_.h, stream_);
}

void* UploadBuffers::take() {
  if (free_.empty() && !copying_.empty()) {
    call(host_.stream->synchronize, host_.h, stream_);
    free_.swap(copying_);
  }
  if (free_.empty()) {
    blocks_.emplace_back(host_, DDH_TAG_PARAM, bytes_each(bytes_), "parameters read from files", 0, DDH_MEM_PINNED);
    const auto address = reinterpret_cast<uintptr_t>(blocks_.back().data());
    free_.push_back(static_cast<char*>(blocks_.back().data()) + (Tier::round_up(address) - address));
  }
  void* const out = free_.back();
  free_.pop_back();
  return out;
}

void UploadBuffers::upload(void* buffer, void* dst, uint64_t bytes) {
  computed_.record(nullptr);
  computed_.wait(stream_);
  call(host_.copy->copy, host_.h, dst, DDH_MEM_DEVICE, buffer, DDH_MEM_PINNED, bytes, stream_);
  copied_.record(stream_);
  copied_.wait(nullptr);
  copying_.push_back(buffer);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
