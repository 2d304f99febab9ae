// SPDX-License-Identifier: Apache-2.0
#include "kv_store.hpp"

namespace gloo_links {

c10::intrusive_ptr<c10d::Store> KvStore::clone() { return c10::make_intrusive<KvStore>(host_, prefix_, timeout_); }

void KvStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  ddh::call(host_.kv->set, host_.h, key_of(key).c_str(), value.data(), uint64_t{value.size()});
}

std::vector<uint8_t> KvStore::read(const std::string& key, std::chrono::milliseconds timeout) {
  std::vector<uint8_t> value(4096);
  const auto wait_ms = static_cast<uint32_t>(timeout.count());
  for (;;) {
    uint64_t bytes = value.size();
    ddh::ErrorBuffer err;
    const ddh_rc rc = host_.kv->get(host_.h, key_of(key).c_str(), value.data(), &bytes, wait_ms, err.get());
    if (rc == DDH_OUT_OF_RANGE && bytes > value.size()) {
      value.resize(bytes);
      continue;
    }
    err.check(rc);
    value.resize(bytes);
    return value;
  }
}

int64_t KvStore::add(const std::string& key, int64_t value) {
  int64_t sum = 0;
  ddh::call(host_.kv->add, host_.h, key_of(key).c_str(), value, &sum);
  return sum;
}

bool KvStore::deleteKey(const std::string& key) {
  const bool was_there = check({key});
  ddh::call(host_.kv->erase, host_.h, key_of(key).c_str());
  return was_there;
}

bool KvStore::check(const std::vector<std::string>& keys) {
  try {
    for (const std::string& key : keys) read(key, std::chrono::milliseconds(0));
    return true;
  } catch (const ddh::Error& error) {
    if (error.code() != DDH_DEADLINE_EXCEEDED) throw;
    return false;
  }
}

int64_t KvStore::getNumKeys() { ddh::fail(DDH_UNIMPLEMENTED, "the store of the ranks does not count its keys"); }

void KvStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  for (const std::string& key : keys) read(key, timeout);
}

}  // namespace gloo_links
