// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/device_norm.hpp: sums of squares of values that stay on the device (ddh.flatops exact_squares): of
// gradients for their norm, and of what an optimizer shows for norms of parameters. The device adds the squares of each
// range to words of its own; the host fetches all words with one wait. The sum is exact, so it has the bits of a sum on
// the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ddh/service/optim.h"
#include "engine/numerics/exact_norm.hpp"
#include "engine/services/device.hpp"
#include "engine/services/memory/memory.hpp"

namespace ddhost {

class DeviceNorm {
 public:
  // Whether the device has memory of its own, and sums squares.
  [[nodiscard]] static bool is_possible(const Device& device);

  DeviceNorm(Device& device, Memory& memory) : device_(device), memory_(memory), ready_(device) {}
  DeviceNorm(const DeviceNorm&) = delete;
  DeviceNorm& operator=(const DeviceNorm&) = delete;
  ~DeviceNorm();

  // Queues the sums for the parts of `ranges` in [begin, begin + numel) of a flat buffer; grad[i] is element begin + i,
  // in memory of the device or pinned.
  void add(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges, ddh_stream* stream);
  // Waits for the default stream, with or without sums. Adds the sums to `norm`, and forgets them.
  void finish(GradientNorm& norm);
  // Waits if there are sums, and calls take(words, param, param_offset) for each range: DDH_SQUARES_WORDS words.
  void finish(const std::function<void(const uint64_t* words, int32_t param, uint64_t param_offset)>& take);
  // Forgets the sums: the step was given up.
  void clear();

 private:
  static constexpr size_t kSlots = 256;  // of a chunk
  struct Slot {
    int32_t param;
    uint64_t param_offset;
  };
  struct Chunk {
    uint64_t *words, *host;  // kSlots * DDH_SQUARES_WORDS, on the device and in pinned memory
  };
  [[nodiscard]] uint64_t* words_of(size_t slot);
  void reset(size_t n_slots);
  StreamMark& mark_of(ddh_stream* stream);

  Device& device_;
  Memory& memory_;
  std::vector<Chunk> chunks_;
  uint64_t* empty_ = nullptr;  // a chunk of words without a sum, in pinned memory
  std::vector<Slot> slots_;    // used in this step
  StreamMark ready_;           // the words are empty
  std::vector<std::pair<ddh_stream*, std::unique_ptr<StreamMark>>> used_by_;
};

}  // namespace ddhost
