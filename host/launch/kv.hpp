// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.hpp: the key-value store of the ranks, for ranks that are threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "engine/services/comm/kv.hpp"

namespace ddhost {

// Checks of every implementation of the store, and the error of a wait that timed out.
void check_kv_size(const std::string& key, const std::string& value);
[[noreturn]] void fail_kv_timeout(const std::string& key, std::chrono::milliseconds timeout);

// For ranks that are threads of one process.
class KvLocal : public Kv {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  // Ends all current and later waits with DDH_ABORTED and this message.
  void abort(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::string abort_reason_;
};

}  // namespace ddhost
