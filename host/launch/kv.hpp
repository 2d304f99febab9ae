// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.hpp: the store through which ranks find each other, and its form for ranks that are threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "engine/services/kv.hpp"

namespace ddhost {

// What every form of the store refuses, and how a wait that ran out is reported.
void check_kv_size(const std::string& key, const std::string& value);
[[noreturn]] void fail_kv_timeout(const std::string& key, std::chrono::milliseconds timeout);

// For ranks that are threads of one process.
class KvLocal : public Kv {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  // Ends all waits, now and later, with DDH_ABORTED and this sentence.
  void abort(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::string abort_reason_;
};

}  // namespace ddhost
