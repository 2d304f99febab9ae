// SPDX-License-Identifier: Apache-2.0
#include "nccl/windows.hpp"

#include <cuda.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "ddh/sdk/plugin.hpp"
#include "driver/for_nccl.hpp"

namespace standin {
namespace {

struct Given {
  std::mutex mutex;
  std::map<void*, uint64_t> bytes_of;
  std::multiset<void*> windows;  // of all communicators
};
Given& given() {
  static Given& given = *std::unique_ptr<Given>(new Given).release();  // never destroyed, like the driver
  return given;
}

char* bytes(const void* p) { return static_cast<char*>(const_cast<void*>(p)); }

template <class... Parts>
nccl::Result fault(const Parts&... parts) {
  ddhost_standin_fault(ddh::str("NCCL: ", parts...).c_str());
  return nccl::kInvalidUsage;
}

}  // namespace

nccl::Result allocate_memory(void** out, uint64_t bytes) {
  CUdeviceptr p = 0;
  if (cuMemAlloc(&p, bytes) != CUDA_SUCCESS) return nccl::kUnhandledCudaError;
  *out = reinterpret_cast<void*>(p);  // NOLINT(performance-no-int-to-ptr): the driver's addresses are integers
  const std::lock_guard lock(given().mutex);
  given().bytes_of[*out] = bytes;
  return nccl::kSuccess;
}

nccl::Result free_memory(void* p) {
  const std::lock_guard lock(given().mutex);
  if (given().bytes_of.count(p) == 0) return fault("ncclMemFree is given memory that ncclMemAlloc did not give");
  if (given().windows.count(p) > 0) return fault("ncclMemFree is given memory that is still a window");
  given().bytes_of.erase(p);
  cuMemFree(reinterpret_cast<CUdeviceptr>(p));
  return nccl::kSuccess;
}

Windows::~Windows() { remove_all(); }

nccl::Result Windows::begin(void* p, uint64_t bytes, nccl::Window* out) {
  *out = nullptr;
  if (begun_) return fault("a window is registered while another is");
  const std::lock_guard lock(given().mutex);
  const auto block = given().bytes_of.find(p);
  if (block == given().bytes_of.end() || bytes > block->second || bytes_of_.count(p) > 0)
    return fault("a window of ", bytes, " bytes is not in memory of ncclMemAlloc, or is registered twice");
  begun_ = Begun{p, bytes, out};
  Member& me = board_->members[rank_];
  me.window_bytes[++count_ % 2] = bytes;  // a peer may be one registration ahead
  me.windows.store(count_, std::memory_order_release);
  return nccl::kInProgress;
}

nccl::Result Windows::settle() {
  if (!begun_) return nccl::kSuccess;
  for (int r = 0; r < size_; ++r)
    if (board_->members[r].windows.load(std::memory_order_acquire) < count_) return nccl::kInProgress;
  for (int r = 0; r < size_; ++r) {
    const uint64_t theirs = board_->members[r].window_bytes[count_ % 2];
    if (theirs != begun_->bytes)
      return fault("rank ", r, " registers a window of ", theirs, " bytes, and rank ", rank_, " one of ",
                   begun_->bytes);
  }
  const bool has_none = std::getenv("DDHOST_STANDIN_NCCL_NO_WINDOWS") != nullptr;
  const Begun now = *std::exchange(begun_, std::nullopt);
  if (has_none) return nccl::kSuccess;  // *out stays null
  *now.out = static_cast<nccl::Window>(now.p);
  bytes_of_[now.p] = now.bytes;
  const std::lock_guard lock(given().mutex);
  given().windows.insert(now.p);
  return nccl::kSuccess;
}

nccl::Result Windows::remove(nccl::Window window) {
  if (bytes_of_.erase(window) == 0) return fault("a window that was not registered is deregistered");
  const std::lock_guard lock(given().mutex);
  given().windows.erase(given().windows.find(window));
  return nccl::kSuccess;
}

void Windows::remove_all() {
  while (!bytes_of_.empty()) remove(static_cast<nccl::Window>(bytes_of_.begin()->first));
}

bool Windows::holds(const void* p, uint64_t n) const {
  const auto next = bytes_of_.upper_bound(const_cast<void*>(p));
  return next != bytes_of_.begin() && bytes(p) + n <= bytes(std::prev(next)->first) + std::prev(next)->second;
}

bool Windows::is_left_by(const void* p, uint64_t n) const {
  auto window = bytes_of_.upper_bound(const_cast<void*>(p));
  if (window == bytes_of_.begin()) return false;
  --window;
  char* const end = bytes(window->first) + window->second;
  if (bytes(p) >= end || bytes(p) + n <= end) return false;
  (void)fault("a call uses ", n, " bytes of a window that ends after ", end - bytes(p));
  return true;
}

}  // namespace standin
