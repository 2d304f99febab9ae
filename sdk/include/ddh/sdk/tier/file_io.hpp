// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/file_io.hpp: reads and writes of one file that go on beside the caller: with io_uring, or by two threads with
// pread and pwrite where that is not to be had (containers often forbid it).
//
// io_uring is compiled in where DDH_WITH_LIBURING is defined (link liburing).
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct IoOp {
  bool is_write = false;
  void* buffer = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

// Tags name the operations under way: 0 .. depth - 1, each for one at a time.
class IoEngine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Result {
    int64_t bytes = 0;  // moved, perhaps fewer than asked for; or -errno
    Time end{};         // when it was seen to be done
  };
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine() = default;  // nothing is under way
  [[nodiscard]] virtual std::string name() const = 0;
  virtual void start(uint32_t tag, const IoOp& op) = 0;
  virtual Result finish(uint32_t tag) = 0;  // waits
  // Buffers that many operations will use; a hint.
  virtual void register_buffers(std::span<const iovec>) {}
};

// `io`: "uring", "pread" or "auto" (uring, else pread with a warning). Throws where "uring" can't be had.
std::unique_ptr<IoEngine> make_io_engine(const Host& host, const std::string& io, int fd, uint32_t depth);

}  // namespace DDH_HIDDEN
}  // namespace ddh
