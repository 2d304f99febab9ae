// SPDX-License-Identifier: Apache-2.0
//
// The choice of an engine for reads and writes beside the caller.
#include "ddh/sdk/tier/file_io.hpp"

#include "io_engines.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

std::unique_ptr<IoEngine> make_io_engine(const Host& host, const std::string& io, int fd, uint32_t depth) {
  if (io == "pread") return make_thread_io(fd, depth);
  std::string why;
  try {
    return make_uring_io(fd, depth);
  } catch (const Error& e) {
    why = e.what();
  }
  if (io == "uring")
    fail(DDH_UNAVAILABLE, "io=uring, but io_uring is not available: ", why, "; use io=auto or io=pread");
  host.log(DDH_LOG_WARN, "io_uring is not available (", why, "): files are read and written by threads with pread");
  return make_thread_io(fd, depth);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
