// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.cpp: the in-process store.
#include "launch/kv.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void check_kv_size(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > kMaxKvKeyBytes)
    ddh::fail(DDH_INVALID_ARGUMENT, "a kv key has ", key.size(), " bytes; it takes 1 to ", kMaxKvKeyBytes);
  if (value.size() > kMaxKvBytes)
    ddh::fail(DDH_OUT_OF_RANGE, "the kv value '", key, "' has ", value.size(), " bytes; kv takes at most ",
              kMaxKvBytes);
}

void fail_kv_timeout(const std::string& key, std::chrono::milliseconds timeout) {
  ddh::fail(DDH_DEADLINE_EXCEEDED, "no rank has set the kv key '", key, "' within ", timeout.count(),
            " ms; another rank is stuck or never reached this call");
}

void KvLocal::set(const std::string& key, const std::string& value) {
  check_kv_size(key, value);
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string KvLocal::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  const bool ended =
      changed_.wait_until(lock, deadline, [&] { return !abort_reason_.empty() || values_.find(key) != values_.end(); });
  const auto at = values_.find(key);
  if (at != values_.end()) return at->second;
  if (ended) ddh::fail(DDH_ABORTED, abort_reason_);
  fail_kv_timeout(key, timeout);
}

void KvLocal::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  abort_reason_ = reason;
  changed_.notify_all();
}

}  // namespace ddhost
