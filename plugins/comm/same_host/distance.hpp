// SPDX-License-Identifier: Apache-2.0
//
// same_host/distance.hpp: how far the cores of a group's ranks are from each other, by the time in which a core gets a line
// that another has just written: on a Zen 4 40 ns in one die, and 130 between two. In a virtual machine the system's
// description of the processor does not say so, and cores may move.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace same_host {

enum class BypassCaches : uint8_t { automatic, always, never };
// Of the option comm.bypass_caches.
inline BypassCaches bypass_named(std::string_view name) {
  return name == "always" ? BypassCaches::always : name == "never" ? BypassCaches::never : BypassCaches::automatic;
}

// Of a copy into staging that may bypass the caches, at least.
inline constexpr uint64_t kLargeCopyBytes = uint64_t{16} << 10;

class PeerDistance {
 public:
  // Nanoseconds in which this core gets a line that a peer has written since this core last read it. Without the time of
  // the clock. 0: not known on this processor.
  static int64_t time_of(const void* line);
  void add(int64_t ns);
  // Whether at least a third of the last samples were far, of three or more. The others may have been taken while both
  // ranks were on one core, or after a third rank had got the line.
  [[nodiscard]] bool is_far() const { return is_far_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t samples() const { return samples_; }

 private:
  std::array<bool, 7> is_far_sample_{};  // the last ones
  uint64_t samples_ = 0;
  std::atomic<bool> is_far_{false};  // a message may be sent by another thread than collectives
};

// Copies into staging, whose readers are other cores. A copy past the caches is the faster way if these are far: they get a
// line sooner from memory than a modified one from this core's cache. Cores that share a cache get it sooner from there.
void stage_bytes(std::byte* to, const std::byte* from, uint64_t n, bool bypasses_caches);

}  // namespace same_host
