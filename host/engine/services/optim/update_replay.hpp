// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/update_replay.hpp: an optimizer's call repeated on a copy of a piece of a range. The copy lies at
// another place of flat buffers, and the padding around it is marked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

// A buffer that an optimizer's call gets, for the ranges of one parameter.
struct UpdateBuffer {
  enum class Kind { kMaster, kLowp, kGrad, kSlot, kValue };
  Kind kind;
  const char* base;  // element 0 is at flat_offset 0; NULL if the call gets none
  uint64_t element_bytes;
  bool reads, writes;  // what the header allows the call
  std::string name;    // "the master weights"

  [[nodiscard]] const char* at(uint64_t flat_offset) const { return base + flat_offset * element_bytes; }
};

class UpdateReplay {
 public:
  // `lead`: elements before the range in the copies, a multiple of 64. `mark`: the byte that fills the padding, and
  // memory that the call may not read. The arguments outlive this object.
  UpdateReplay(const ddh_update_args& real, std::span<const UpdateBuffer> buffers, const ddh_range& range,
               uint64_t lead, unsigned char mark);
  UpdateReplay(const UpdateReplay&) = delete;
  UpdateReplay& operator=(const UpdateReplay&) = delete;

  // The arguments for the copies; valid while this object lives.
  [[nodiscard]] ddh_update_args& args() { return args_; }
  [[nodiscard]] float* const* values() const { return values_.data(); }

  // The range's elements of a buffer; empty where the call gets none.
  [[nodiscard]] std::span<const char> result(size_t buffer) const;
  // "writes to the master weights behind the end of its range"; empty: nothing forbidden. `skipped`: the call may write
  // nothing.
  [[nodiscard]] std::string forbidden_write(bool skipped = false) const;

 private:
  struct Copy {
    std::vector<char> memory;
    char* begin = nullptr;  // aligned as the memory of strategies
    std::vector<char> before;
  };
  void make_args(const ddh_update_args& real);

  const std::span<const UpdateBuffer> buffers_;
  const uint64_t lead_;
  ddh_range range_;
  std::vector<Copy> copies_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<float*> values_;
  ddh_optim_shard shard_;
  ddh_update_args args_;
};

}  // namespace ddhost
