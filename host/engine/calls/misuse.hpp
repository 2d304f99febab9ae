// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/misuse.hpp: what a plugin did wrong in a call of the host that can't return an error, such as a release
// of memory. The run ends with it when the plugin's own call returns, or at the end if that is in destroy.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

// Of one rank. Thread-safe.
class Misuse {
 public:
  // Keeps the first sentence.
  void note(std::string sentence) {
    const std::lock_guard lock(mutex_);
    if (any_.load(std::memory_order_relaxed)) return;
    sentence_ = std::move(sentence);
    any_.store(true, std::memory_order_release);
  }
  // Throws the sentence, if there is one.
  void require_none() const {
    if (any_.load(std::memory_order_acquire)) throw ddh::Error(DDH_FAILED_PRECONDITION, sentence_);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string sentence_;  // does not change once any_ is set
};

}  // namespace ddhost
