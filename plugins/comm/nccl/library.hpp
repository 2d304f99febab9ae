// SPDX-License-Identifier: Apache-2.0
//
// library.hpp: the functions of libnccl.so.2, found when a run begins. No library is linked, so the plugin loads on
// machines without NCCL. The loader looks for the library by its name; then it is looked for where pip installs it for the
// LibTorch that is loaded.
#pragma once

#include <string>

#include "ddh/sdk/plugin.hpp"
#include "declarations.hpp"

namespace nccl DDH_HIDDEN {

// clang-format off
#define DDH_NCCL_FUNCTIONS(X)                                                                                       \
  X(GetVersion) X(GetUniqueId) X(GetErrorString) X(GetLastError) X(CommInitRankConfig) X(CommFinalize)              \
  X(CommDestroy) X(CommAbort) X(CommGetAsyncError) X(GroupStart) X(GroupEnd) X(Send) X(Recv) X(AllGather)           \
  X(Broadcast) X(AllReduce) X(ReduceScatter)
#define DDH_NCCL_OPTIONAL_FUNCTIONS(X)                                                                              \
  X(CommRegister) X(CommDeregister) X(MemAlloc) X(MemFree) X(CommWindowRegister) X(CommWindowDeregister)
// clang-format on

struct Library {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a field
#define DDH_NCCL_FIELD(F) nccl##F##_t* F = nullptr;
  DDH_NCCL_FUNCTIONS(DDH_NCCL_FIELD)
  DDH_NCCL_OPTIONAL_FUNCTIONS(DDH_NCCL_FIELD)  // nullptr: this version has none
#undef DDH_NCCL_FIELD
  int version = 0;  // 22809 is 2.28.9
  [[nodiscard]] bool has_windows() const {
    return version >= 22700 && MemAlloc != nullptr && MemFree != nullptr && CommWindowRegister != nullptr &&
           CommWindowDeregister != nullptr;
  }

  // Error UNAVAILABLE: there is no such library, or it is too old.
  static Library open(const std::string& file);
  [[nodiscard]] std::string version_text() const;
  // "remote process exited or there was a network error"; with what NCCL says about its last error, if anything.
  [[nodiscard]] std::string text_of(Result result, Comm comm) const;
};

}  // namespace DDH_HIDDEN
