// SPDX-License-Identifier: Apache-2.0
#include "engine/services/memory/guard_bytes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace ddhost {
namespace {

// No byte is zero, and neighbours differ, so that a block of equal values is never taken for it.
constexpr std::array<unsigned char, kGuardBytes> kPattern = [] {
  std::array<unsigned char, kGuardBytes> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(0x5b + 7 * (i % 32));
  return bytes;
}();

}  // namespace

void write_guard(void* end) noexcept { std::memcpy(end, kPattern.data(), kPattern.size()); }

void write_shared_guard(void* end) noexcept {
  auto* const bytes = static_cast<unsigned char*>(end);
  for (size_t i = 0; i < kPattern.size(); ++i) {
    unsigned char expected = 0;
    std::atomic_ref(bytes[i]).compare_exchange_strong(expected, kPattern[i]);
  }
}

std::optional<uint64_t> changed_guard_byte(const void* end) noexcept {
  const auto* const bytes = static_cast<const unsigned char*>(end);
  const auto* const at = std::mismatch(kPattern.begin(), kPattern.end(), bytes).second;
  if (at == bytes + kPattern.size()) return std::nullopt;
  return static_cast<uint64_t>(at - bytes);
}

}  // namespace ddhost
