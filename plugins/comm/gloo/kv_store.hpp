// SPDX-License-Identifier: Apache-2.0
//
// kv_store.hpp: ddh.kv as the store through which the members of a group of Gloo find each other.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include "ddh/sdk/plugin.hpp"

namespace gloo_links {

class KvStore final : public c10d::Store {
 public:
  using Store::get;
  using Store::set;

  // `host` outlives the object. All keys begin with `prefix`.
  KvStore(const ddh::Host& host, std::string prefix, std::chrono::milliseconds timeout)
      : Store(timeout), host_(host), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override { return read(key, timeout_); }
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::vector<uint8_t> read(const std::string& key, std::chrono::milliseconds timeout);
  [[nodiscard]] std::string key_of(const std::string& key) const { return prefix_ + "/" + key; }

  const ddh::Host& host_;
  const std::string prefix_;
};

}  // namespace gloo_links
