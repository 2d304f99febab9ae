// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nccl/windows.hpp: memory of ncclMemAlloc, and the symmetric windows of a communicator. A window must lie
// in such memory and have the same size on every rank; its memory is freed after it was deregistered. Any mistake is a
// fault of the driver, with a sentence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "nccl/board.hpp"

namespace standin {

nccl::Result allocate_memory(void** out, uint64_t bytes);
nccl::Result free_memory(void* p);

class Windows {
 public:
  Windows(Board* board, int size, int rank) : board_(board), size_(size), rank_(rank) {}
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  // Begins to register; settle sets *out when every rank has begun.
  nccl::Result begin(void* p, uint64_t bytes, nccl::Window* out);
  // kInProgress while a rank has not begun.
  nccl::Result settle();
  nccl::Result remove(nccl::Window window);
  void remove_all();
  [[nodiscard]] bool empty() const { return bytes_of_.empty(); }
  [[nodiscard]] bool holds(const void* p, uint64_t bytes) const;
  // Whether a buffer begins in a window and ends after it.
  [[nodiscard]] bool is_left_by(const void* p, uint64_t bytes) const;

 private:
  struct Begun {
    void* p;
    uint64_t bytes;
    nccl::Window* out;
  };
  Board* const board_;
  const int size_, rank_;
  uint64_t count_ = 0;  // of registrations that have begun
  std::optional<Begun> begun_;
  std::map<void*, uint64_t> bytes_of_;
};

}  // namespace standin
