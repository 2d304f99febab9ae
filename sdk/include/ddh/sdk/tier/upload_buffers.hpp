// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/upload_buffers.hpp: buffers in pinned memory, into which files are read, and copies from them to the
// device on a stream of their own. A buffer is used again after its copy, so there are as many as are taken at a time.
#pragma once

#include <memory>
#include <vector>

#include "ddh/sdk/stream.hpp"
#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class UploadBuffers {
 public:
  // `bytes`: the most that a buffer has to hold.
  UploadBuffers(const Host& host, uint64_t bytes);
  UploadBuffers(const UploadBuffers&) = delete;
  UploadBuffers& operator=(const UploadBuffers&) = delete;
  ~UploadBuffers();

  // What each buffer allocates.
  static uint64_t bytes_each(uint64_t bytes) { return Tier::round_up(bytes) + Tier::kAlignment; }
  // A buffer, aligned to Tier::kAlignment. If all are in use, it waits for the copies.
  void* take();
  // Copies from a taken buffer to memory of the device, after the work of the default stream, which waits for the copy.
  void upload(void* buffer, void* dst, uint64_t bytes);

 private:
  const Host& host_;
  const uint64_t bytes_;
  ddh_stream* stream_ = nullptr;
  Event computed_, copied_;
  std::vector<Buffer> blocks_;
  std::vector<void*> free_, copying_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
