// SPDX-License-Identifier: Apache-2.0
//
// host/device/cpu/pages.hpp: blocks of the host's memory, straight from the system.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace ddhost::cpu {

// Thread-safe.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();  // releases what is left

  // A zero-filled block that begins on a page. Throws ddh::Error with the system's reason.
  void* allocate(uint64_t bytes);
  void release(void* p);

 private:
  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> mapped_bytes_;
};

}  // namespace ddhost::cpu
