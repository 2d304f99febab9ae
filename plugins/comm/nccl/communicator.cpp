// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <thread>
#include <utility>

namespace nccl DDH_HIDDEN {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPause{50}, kSpin{30};  // most calls are done within kSpin

bool is_failure(Result result) { return result != kSuccess && result != kInProgress; }

}  // namespace

Communicator::Communicator(const Library& library, Membership membership, const UniqueId& id)
    : library_(library), membership_(std::move(membership)) {
  Config config;
  config.blocking = 0;
  config.cta_policy = membership_.cta_policy;
  const std::lock_guard lock(use_);
  const Result result = library_.CommInitRankConfig(&comm_, size(), id, rank(), &config);
  try {
    settle("connecting the ranks", result);
  } catch (...) {
    if (comm_ != nullptr) library_.CommAbort(comm_);
    throw;
  }
}

Communicator::~Communicator() {
  if (comm_ != nullptr) library_.CommAbort(comm_);
}

std::string Communicator::sentence_of(Result result, const char* call) const {
  return ddh::str("NCCL's ", call, " failed in group '", name(), "': ", library_.text_of(result, comm_));
}

void Communicator::check(Result result, const char* call) const {
  if (is_failure(result)) ddh::fail(DDH_UNAVAILABLE, sentence_of(result, call));
}

std::string Communicator::note(Result result, const char* call) {
  if (!is_failure(result)) return {};
  std::string sentence = sentence_of(result, call);
  if (not_given_back_.empty()) not_given_back_ = sentence;
  return sentence;
}

void Communicator::settle(const char* what, Result result) {
  const Clock::time_point begin = Clock::now(), end = begin + membership_.deadline;
  while (result == kInProgress) {
    if (aborting_) return require_healthy();
    const Clock::time_point now = Clock::now();
    if (now > end)
      ddh::fail(
          DDH_DEADLINE_EXCEEDED, "NCCL was not done with ", what, " in group '", name(), "' of ", size(),
          " ranks after ", membership_.deadline.count(),
          " ms; a rank is missing or has stopped, or the GPUs can't reach each other: NCCL_DEBUG=INFO shows more");
    if (now > begin + kSpin) std::this_thread::sleep_for(kPause);
    const Result polled = library_.CommGetAsyncError(comm_, &result);
    if (polled != kSuccess) result = polled;
  }
  check(result, what);
}

void Communicator::require_healthy() const {
  const std::lock_guard lock(reason_mutex_);
  if (aborting_) ddh::fail(DDH_UNAVAILABLE, reason_);
}

void Communicator::queue(const char* what, const std::function<void(Comm)>& body) {
  const std::lock_guard lock(use_);
  require_healthy();
  check(library_.GroupStart(), "ncclGroupStart");
  try {
    body(comm_);
  } catch (...) {
    library_.GroupEnd();
    throw;
  }
  settle(what, library_.GroupEnd());
}

std::string Communicator::find_failure() {
  const std::unique_lock lock(use_, std::try_to_lock);  // a call in progress finds it itself
  if (!lock.owns_lock() || comm_ == nullptr || aborting_) return {};
  Result result = kSuccess;
  const Result polled = library_.CommGetAsyncError(comm_, &result);
  if (polled != kSuccess) result = polled;
  if (!is_failure(result)) return {};
  return ddh::str("NCCL reports an error in group '", name(), "': ", library_.text_of(result, comm_),
                  "; a rank or its network has failed, and its own message says why");
}

void Communicator::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (aborting_) return;
    reason_ = reason;
    aborting_ = true;
  }
  const std::lock_guard lock(use_);
  if (comm_ != nullptr) library_.CommAbort(comm_);
  comm_ = nullptr;
}

void Communicator::finalize() {
  const std::lock_guard lock(use_);
  require_healthy();
  for (const auto& [p, handle] : handles_) note(library_.CommDeregister(comm_, handle), "ncclCommDeregister");
  handles_.clear();
  for (auto& [p, window] : windows_)  // their memory is still used
    note(library_.CommWindowDeregister(comm_, std::exchange(window, nullptr)), "ncclCommWindowDeregister");
  if (!not_given_back_.empty()) ddh::fail(DDH_UNAVAILABLE, not_given_back_);
  settle("the orderly end", library_.CommFinalize(comm_));
  check(library_.CommDestroy(comm_), "ncclCommDestroy");
  comm_ = nullptr;
}

std::string Communicator::register_buffer(void* p, uint64_t bytes) {
  const std::lock_guard lock(use_);
  if (comm_ == nullptr || bytes == 0) return {};
  if (library_.CommRegister == nullptr || library_.CommDeregister == nullptr) return "NCCL has no ncclCommRegister";
  void* handle = nullptr;
  const Result result = library_.CommRegister(comm_, p, bytes, &handle);
  if (is_failure(result)) return sentence_of(result, "ncclCommRegister");
  if (handle != nullptr) handles_[p] = handle;  // nullptr: NCCL has no use for it
  return {};
}

// After a failure the run ends, and the memory with it: NCCL may still be using it.
void* Communicator::allocate_window(uint64_t bytes) {
  void* p = nullptr;
  const Result result = library_.MemAlloc(&p, bytes);
  if (result != kSuccess)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "NCCL gave no ", bytes, " bytes for a window of group '", name(),
              "': ", library_.text_of(result, nullptr), "; use more ranks, or set comm.symmetric_windows=false");
  Window& window = windows_[p];
  queue("registering a window", [&](Comm comm) {
    check(library_.CommWindowRegister(comm, p, bytes, &window, kWindowSymmetric), "ncclCommWindowRegister");
  });
  if (window == nullptr)
    ddh::fail(DDH_UNIMPLEMENTED, "NCCL makes no symmetric windows between the GPUs of group '", name(),
              "'; set comm.symmetric_windows=false");
  return p;
}

// NCCL frees no memory of a window.
std::string Communicator::free_window(void* p) {
  const std::lock_guard lock(use_);
  const auto at = windows_.find(p);
  if (at == windows_.end()) return {};
  std::string failure;
  if (comm_ != nullptr && at->second != nullptr)
    failure = note(library_.CommWindowDeregister(comm_, at->second), "ncclCommWindowDeregister");
  std::string not_freed = note(library_.MemFree(p), "ncclMemFree");
  windows_.erase(at);
  if (aborting_) return {};  // the run has failed for another reason
  return failure.empty() ? not_freed : failure;
}

void Communicator::unregister_buffer(void* p) {
  const std::lock_guard lock(use_);
  const auto at = handles_.find(p);
  if (at == handles_.end()) return;
  if (comm_ != nullptr) note(library_.CommDeregister(comm_, at->second), "ncclCommDeregister");
  handles_.erase(at);
}

}  // namespace DDH_HIDDEN
