// SPDX-License-Identifier: Apache-2.0
//
// tests/support/fake_host.hpp: the smallest host that a plugin can be tested with: a log, a configuration and a store. The
// store works between threads and between processes that were forked after it was made.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::test {

// One T in zero-filled memory that forked children share.
template <class T>
class ForkShared {
 public:
  ForkShared() {
    void* p = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    value_ = static_cast<T*>(p);
  }
  ForkShared(const ForkShared&) = delete;
  ForkShared& operator=(const ForkShared&) = delete;
  ~ForkShared() { munmap(value_, sizeof(T)); }
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

// The store behind ddh.kv: an append-only table, newest entry first. An entry is published by `used`.
class FakeKv {
 public:
  void set(const std::string& key, const void* value, uint64_t bytes) {
    const uint32_t at = table_->taken.fetch_add(1);
    if (at >= kEntries || key.size() >= sizeof(Entry::key) || bytes > sizeof(Entry::value))
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "the store of this test is too small for key '", key, "'");
    Entry& entry = table_->entries[at];
    std::memcpy(entry.key, key.c_str(), key.size() + 1);
    if (bytes > 0) std::memcpy(entry.value, value, bytes);
    entry.bytes = bytes;
    entry.used.store(1, std::memory_order_release);
  }
  // False when the key does not come in time.
  bool get(const std::string& key, std::vector<char>& out, std::chrono::milliseconds timeout) const {
    const auto end = std::chrono::steady_clock::now() + timeout;
    do {
      for (uint32_t at = std::min(table_->taken.load(), kEntries); at-- > 0;) {
        const Entry& entry = table_->entries[at];
        if (entry.used.load(std::memory_order_acquire) == 0 || key != entry.key) continue;
        out.assign(entry.value, entry.value + entry.bytes);
        return true;
      }
      usleep(200);
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

 private:
  static constexpr uint32_t kEntries = 512;
  struct Entry {
    std::atomic<uint32_t> used;
    char key[248];
    uint64_t bytes;
    char value[1024];
  };
  struct Table {
    std::atomic<uint32_t> taken;
    std::array<Entry, kEntries> entries;
  };
  ForkShared<Table> table_;
};

using FakeValue = std::variant<int64_t, double, std::string, std::vector<double>>;
using FakeOptions = std::map<std::string, FakeValue>;  // full keys: "comm.spin_us"

// One rank's host. Keep it at one address while instances live.
class FakeHost {
 public:
  explicit FakeHost(FakeOptions options, std::shared_ptr<FakeKv> kv = std::make_shared<FakeKv>())
      : options_(std::move(options)), kv_(std::move(kv)) {
    host_ = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, &FakeHost::get_interface};
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  [[nodiscard]] const ddh_host* get() const { return &host_; }
  [[nodiscard]] std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  static FakeHost& self(void* h) { return *static_cast<FakeHost*>(h); }

  static const void* get_interface(void*, const char* id) noexcept {
    const std::string_view name = id;
    if (name == DDH_LOG_IFACE) return &log_table();
    if (name == DDH_CONFIG_IFACE) return &config_table();
    if (name == DDH_KV_IFACE) return &kv_table();
    return nullptr;
  }

  template <class T>
  const T& value(const char* key) const {
    const auto at = options_.find(key);
    if (at == options_.end()) ddh::fail(DDH_NOT_FOUND, "no key '", key, "'");
    const T* typed = std::get_if<T>(&at->second);
    if (typed == nullptr) ddh::fail(DDH_INVALID_ARGUMENT, "key '", key, "' has another type");
    return *typed;
  }

  static const ddh_log_api& log_table() {
    static const ddh_log_api table = {sizeof(ddh_log_api), 0, [](void* h, int32_t, const char* text) noexcept {
                                        const std::lock_guard lock(self(h).mutex_);
                                        self(h).lines_.emplace_back(text);
                                      }};
    return table;
  }

  static const ddh_config_api& config_table() {
    static const ddh_config_api table = {
        sizeof(ddh_config_api),
        0,
        [](void* h, const char* key, int64_t* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = self(h).value<int64_t>(key); });
        },
        [](void* h, const char* key, double* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = self(h).value<double>(key); });
        },
        [](void* h, const char* key, const char** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = self(h).value<std::string>(key).c_str(); });
        },
        [](void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            const auto& numbers = self(h).value<std::vector<double>>(key);
            *n = static_cast<uint32_t>(numbers.size());
            std::copy_n(numbers.begin(), std::min<size_t>(cap, numbers.size()), out);
          });
        },
        nullptr,
        nullptr,
    };
    return table;
  }

  static const ddh_kv_api& kv_table() {
    static const ddh_kv_api table = {
        sizeof(ddh_kv_api),
        0,
        [](void* h, const char* key, const void* value, uint64_t bytes, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { self(h).kv_->set(key, value, bytes); });
        },
        [](void* h, const char* key, void* value, uint64_t* bytes, uint32_t timeout_ms, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            std::vector<char> found;
            if (!self(h).kv_->get(key, found, std::chrono::milliseconds(timeout_ms)))
              ddh::fail(DDH_DEADLINE_EXCEEDED, "nobody set '", key, "' within ", timeout_ms, " ms");
            if (found.size() > *bytes) ddh::fail(DDH_OUT_OF_RANGE, "'", key, "' has ", found.size(), " bytes");
            std::copy(found.begin(), found.end(), static_cast<char*>(value));
            *bytes = found.size();
          });
        },
    };
    return table;
  }

  ddh_host host_{};
  const FakeOptions options_;
  const std::shared_ptr<FakeKv> kv_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace ddhost::test
