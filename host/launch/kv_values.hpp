// SPDX-License-Identifier: Apache-2.0
//
// launch/kv_values.hpp: what the key-value store of a run holds: values, and counters. It is not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ddh/sdk/plugin.hpp"
#include "engine/services/comm/kv.hpp"

namespace ddhost {

class KvValues {
 public:
  // Replaces an older value. Error: DDH_RESOURCE_EXHAUSTED if the store is full.
  void set(const std::string& key, std::string value) {
    const auto at = values_.find(key);
    const uint64_t before = at == values_.end() ? 0 : bytes_of(at->first, at->second.size());
    require_room(bytes_ - before + bytes_of(key, value.size()));
    bytes_ += bytes_of(key, value.size()) - before;
    values_.insert_or_assign(key, std::move(value));
  }
  // nullptr: there is none.
  [[nodiscard]] const std::string* find(const std::string& key) const {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
  }
  int64_t add(const std::string& key, int64_t delta) {
    if (values_.contains(key))
      ddh::fail(DDH_FAILED_PRECONDITION, "the kv key '", key,
                "' has a value, so it can't be a counter; take another key");
    if (!counters_.contains(key)) {
      require_room(bytes_ + bytes_of(key, 0));
      bytes_ += bytes_of(key, 0);
    }
    // Wraps, as the counters of other stores do.
    return counters_[key] = static_cast<int64_t>(static_cast<uint64_t>(counters_[key]) + static_cast<uint64_t>(delta));
  }
  void erase(const std::string& key) {
    if (const auto at = values_.find(key); at != values_.end()) {
      bytes_ -= bytes_of(at->first, at->second.size());
      values_.erase(at);
    }
    if (counters_.erase(key) > 0) bytes_ -= bytes_of(key, 0);
  }

 private:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 28;
  // With what an entry takes beside its texts.
  static uint64_t bytes_of(const std::string& key, size_t value_bytes) { return 128 + key.size() + value_bytes; }
  static void require_room(uint64_t bytes) {
    if (bytes > kMaxBytes)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "the key-value store of the ranks is full: it takes ", kMaxBytes >> 20,
                " MiB; send large data through collectives, and erase keys that are not used any more");
  }

  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
  uint64_t bytes_ = 0;
};

}  // namespace ddhost
