// SPDX-License-Identifier: Apache-2.0
//
// The shared block of a group: marks, the call that each rank is in, small payloads, and staging.
//
//   | Control | per rank: marks | per rank: two call slots | per rank: two staging halves | per rank: one channel buffer |
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "marks.hpp"

namespace same_host {

constexpr uint32_t kUserMarks = 4096;    // for windows, exchanges and plugins
constexpr uint64_t kInlineBytes = 1024;  // payloads up to this travel with the call
constexpr uint64_t kReasonBytes = 512;

// Marks of the collectives. A round is one exchange of data; rounds are counted per group.
enum InternalMark : uint32_t {
  kPublished,  // this rank's data of a round is available
  kSummed,     // this rank's slice of the sum is available
  kConsumed,   // this rank no longer reads a round
  kInternalMarks
};

enum CallKind : uint32_t {
  kNoCall,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kRegionCreate,
};

// The call that a rank is in. Ranks compare these to detect different calls.
struct Call {
  uint32_t kind;  // CallKind
  int32_t dtype, op, root;
  uint64_t count;
  uint64_t counts_hash;  // of counts[], 0 = none; all_to_all, whose counts differ by rank: 1
  // The place of a buffer in a region that all ranks map: region number + 1, and the offset.
  uint64_t send_region, send_offset, recv_region, recv_offset;
  uint32_t has_initial;  // all_reduce: the sum starts from a value
};

struct alignas(64) CallSlot {
  Call call;
  alignas(64) std::array<std::byte, kInlineBytes> payload;
};

struct alignas(64) Control {
  std::atomic<uint32_t> aborted;  // 0 no, 1 being written, 2 yes
  int32_t abort_rank;
  std::array<char, kReasonBytes> abort_reason;
};

// Offsets of the parts in a group's block.
struct ControlLayout {
  int32_t size;            // ranks of the group
  uint64_t staging_bytes;  // of one half
  uint32_t lines_per_rank = 0;
  uint64_t marks_offset = 0, pids_offset = 0, calls_offset = 0, staging_offset = 0, channels_offset = 0, bytes = 0;

  ControlLayout(int32_t group_size, uint64_t staging) : size(group_size), staging_bytes(staging) {
    const auto n = static_cast<uint64_t>(size);
    // Point to point: for each peer one mark counts sent chunks and one counts received chunks.
    lines_per_rank = kInternalMarks + 2 * static_cast<uint32_t>(size) + kUserMarks;
    pids_offset = sizeof(Control);
    marks_offset = align(pids_offset + n * sizeof(std::atomic<int64_t>));
    calls_offset = marks_offset + n * lines_per_rank * sizeof(MarkLine);
    staging_offset = align(calls_offset + n * 2 * sizeof(CallSlot));
    channels_offset = staging_offset + n * 2 * staging_bytes;
    bytes = channels_offset + n * staging_bytes;
  }
  // Marks, staging and channel.
  [[nodiscard]] uint64_t bytes_per_rank() const { return bytes / static_cast<uint64_t>(size); }
  static uint64_t align(uint64_t offset) { return (offset + 63) / 64 * 64; }
};

}  // namespace same_host
