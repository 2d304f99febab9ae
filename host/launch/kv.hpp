// SPDX-License-Identifier: Apache-2.0
//
// launch/kv.hpp: the store through which ranks find each other, and its form for ranks that are threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ddhost {

constexpr uint64_t kMaxKvBytes = 1 << 20;
constexpr uint64_t kMaxKvKeyBytes = 1 << 12;

// What every form of the store refuses, and how a wait that ran out is reported.
void check_kv_size(const std::string& key, const std::string& value);
[[noreturn]] void fail_kv_timeout(const std::string& key, std::chrono::milliseconds timeout);

// Thread-safe.
class Kv {
 public:
  Kv() = default;
  Kv(const Kv&) = delete;
  Kv& operator=(const Kv&) = delete;
  virtual ~Kv() = default;
  // Stores a value of at most kMaxKvBytes, replacing an older one.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Error: DDH_DEADLINE_EXCEEDED after `timeout`; DDH_ABORTED when the run is ending.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

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
