// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/kv.hpp: the interface of the launcher's key-value store, through which ranks find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddhost {

constexpr uint64_t kMaxKvBytes = 1 << 20;
constexpr uint64_t kMaxKvKeyBytes = 1 << 12;

// Thread-safe.
class Kv {
 public:
  Kv() = default;
  Kv(const Kv&) = delete;
  Kv& operator=(const Kv&) = delete;
  virtual ~Kv() = default;
  // Stores a value of at most kMaxKvBytes, replacing an older one.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Error: DDH_DEADLINE_EXCEEDED after `timeout`; DDH_ABORTED if the run is ending.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // The new value of a counter that begins at 0. Error: DDH_FAILED_PRECONDITION if `key` has a value of set.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  // Removes a value or a counter, if there is one.
  virtual void erase(const std::string& key) = 0;
};

}  // namespace ddhost
