// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/guard_bytes.hpp: bytes behind a block of memory that nobody may write. If they have changed, someone
// wrote beyond the block's end.
#pragma once

#include <cstdint>
#include <optional>

namespace ddhost {

inline constexpr uint64_t kGuardBytes = 256;

// Writes the guard at `end`, the end of a block.
void write_guard(void* end) noexcept;
// The same in memory that was zero-filled and that several ranks map. Each rank calls it, in any order. Bytes that
// are not zero any more stay as they are.
void write_shared_guard(void* end) noexcept;
// The distance of the first changed byte from the end of the block; nullopt: the guard is whole.
std::optional<uint64_t> changed_guard_byte(const void* end) noexcept;

}  // namespace ddhost
