// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/file_io.hpp: asynchronous reads and writes of one file: with io_uring, or with pread and pwrite on two
// threads if io_uring is not available (containers often forbid it).
//
// io_uring is compiled in if DDH_WITH_LIBURING is defined (link liburing).
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

// A tag, 0 .. depth - 1, identifies one operation that is in flight.
class IoEngine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Result {
    int64_t bytes = 0;  // bytes moved, perhaps fewer than requested; or -errno
    Time end{};         // time of completion
  };
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine() = default;  // no operation may be in flight
  [[nodiscard]] virtual std::string name() const = 0;
  virtual void start(uint32_t tag, const IoOp& op) = 0;
  virtual Result finish(uint32_t tag) = 0;  // waits
  // A hint: buffers that many operations will use.
  virtual void register_buffers(std::span<const iovec>) {}
};

// `io`: "uring", "pread" or "auto" (uring, else pread with a warning). Throws if "uring" is not available.
std::unique_ptr<IoEngine> make_io_engine(const Host& host, const std::string& io, int fd, uint32_t depth);

}  // namespace DDH_HIDDEN
}  // namespace ddh
