// SPDX-License-Identifier: Apache-2.0
#include "engine/services/memory/staging.hpp"

namespace ddhost {

char* Staging::begin(void* at, uint64_t bytes) {
  if (device().is_host_memory()) return static_cast<char*>(at);
  wait();
  if (bytes > bytes_) {
    memory_.release(std::exchange(block_, nullptr));
    bytes_ = 0;
    block_ = memory_.allocate(DDH_TAG_COMM, bytes, "staging of the device's memory", DDH_MEM_PINNED);
    bytes_ = bytes;
  }
  return static_cast<char*>(block_);
}

void Staging::fetch(void* host, const void* device_place, uint64_t bytes, ddh_stream* stream) {
  if (device().is_host_memory() || bytes == 0) return;
  device().copy(host, DDH_MEM_PINNED, device_place, DDH_MEM_DEVICE, bytes, stream);
  device().synchronize(stream);
  device().touch(host, bytes, DDH_ACCESS_READ | DDH_ACCESS_WRITE, "the host's use of staging memory");
}

void Staging::store(void* device_place, const void* host, uint64_t bytes, ddh_stream* stream) {
  if (device().is_host_memory() || bytes == 0) return;
  device().copy(device_place, DDH_MEM_DEVICE, host, DDH_MEM_PINNED, bytes, stream);
  if (!stored_) stored_.emplace(device());
  stored_->set(stream);
  storing_ = true;
}

void Staging::claim(void* at, uint64_t bytes, ddh_stream* stream) {
  if (device().is_host_memory() || bytes == 0) return;
  device().synchronize(stream);
  device().touch(at, bytes, DDH_ACCESS_READ | DDH_ACCESS_WRITE, "the host's sum in pinned memory");
}

void Staging::wait() {
  if (!storing_) return;
  stored_->order(nullptr);
  device().synchronize(nullptr);
  storing_ = false;
}

const char* Staging::readable(const void* p, uint64_t bytes, ddh_stream* stream) {
  if (device().is_host_memory()) return static_cast<const char*>(p);
  if (memory_.is_host_memory(p)) {  // it may be pinned, and queued work may still write it
    device().synchronize(stream);
    device().touch(p, bytes, DDH_ACCESS_READ, "the host's reading of pinned memory");
    return static_cast<const char*>(p);
  }
  char* const host = begin(nullptr, bytes);
  fetch(host, p, bytes, stream);
  return host;
}

}  // namespace ddhost
