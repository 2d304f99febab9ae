// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/determinism.hpp: operators of LibTorch whose deterministic way is taken only if it is demanded.
#pragma once

#include <ATen/Context.h>

#include <mutex>

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// In its scope an operator without a deterministic way fails, and those that choose by it, such as the backward of flash
// attention, take theirs. The setting is LibTorch's, for all threads of the process: ranks that are threads take turns here,
// and an operator without such a way that another rank runs meanwhile fails too.
class StrictDeterminism {
 public:
  StrictDeterminism() : lock_(turn()) { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  StrictDeterminism(const StrictDeterminism&) = delete;
  StrictDeterminism& operator=(const StrictDeterminism&) = delete;
  ~StrictDeterminism() { at::globalContext().setDeterministicAlgorithms(demanded_, warns_); }

 private:
  static std::mutex& turn() {
    static std::mutex mutex;
    return mutex;
  }
  const std::lock_guard<std::mutex> lock_;
  const bool demanded_ = at::globalContext().deterministicAlgorithms();
  const bool warns_ = at::globalContext().deterministicAlgorithmsWarnOnly();
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
