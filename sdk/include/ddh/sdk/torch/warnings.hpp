// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/warnings.hpp: warnings of LibTorch in the log of the run, each once. LibTorch itself writes to stderr at
// every call of an operator that has no deterministic algorithm.
#pragma once

#include <c10/util/Exception.h>

#include <mutex>
#include <set>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The first line of a text of LibTorch. Further lines advise on variables and list backends.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Threads of LibTorch may call it at once.
class TorchWarnings final : public c10::WarningHandler {
 public:
  explicit TorchWarnings(const Host& host) : host_(host) {}
  void process(const c10::Warning& warning) override {
    const std::lock_guard lock(mutex_);
    if (known_.insert(warning.msg()).second) host_.log(DDH_LOG_WARN, "LibTorch warns: ", warning.msg());
  }

 private:
  const Host& host_;
  std::mutex mutex_;
  std::set<std::string> known_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
