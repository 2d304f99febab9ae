// SPDX-License-Identifier: Apache-2.0
//
// same_host/distance.hpp: how far the cores of a group's ranks are from each other, by the time in which a core gets a line
// that another has just written. Cores that share a cache take less than 100 ns, those of different dies or sockets more. In a
// virtual machine the system's description of the processor does not say so, and cores may move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace same_host {

enum class BypassCaches : uint8_t { where_far, always, never };
// Of the option comm.bypass_caches.
inline BypassCaches bypass_named(std::string_view name) {
  return name == "always" ? BypassCaches::always : name == "never" ? BypassCaches::never : BypassCaches::where_far;
}

class PeerDistance {
 public:
  // Reads a line that a peer has written since this core last read it.
  void sample(const void* line);
  // Whether a third of the last samples were far. Others were taken while both ranks were on one core.
  [[nodiscard]] bool is_far() const { return is_far_; }

 private:
  std::array<bool, 7> is_far_sample_{};  // the last ones
  size_t samples_ = 0;
  bool is_far_ = false;
};

// Copies into staging, whose readers are other cores. A large copy may bypass the caches: a far core gets a line sooner from
// memory than a modified one from this core's cache. Where they share a cache, that is the faster way.
void stage_bytes(std::byte* to, const std::byte* from, uint64_t n, bool bypasses_caches);

}  // namespace same_host
