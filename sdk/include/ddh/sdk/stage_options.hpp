// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/stage_options.hpp: options that several of DeepSpeed's stages have: what is reduced together, and those that are
// taken and change nothing here, which the run says once.
#pragma once

#include <initializer_list>

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// strategy.reduce_bucket_bytes, which strategy.allgather_bucket_bytes may only repeat.
inline Grouping bucket_options(const Host& host) {
  const int64_t reduce = host.i64("strategy.reduce_bucket_bytes"), gather = host.i64("strategy.allgather_bucket_bytes");
  if (gather != 0 && gather != reduce) {
    fail(DDH_INVALID_ARGUMENT, "strategy.allgather_bucket_bytes = ", gather,
         " and strategy.reduce_bucket_bytes = ", reduce,
         " differ, but what is reduced together is published together; give both the same number");
  }
  Grouping out;
  out.bucket_bytes = static_cast<uint64_t>(reduce);
  return out;
}

// A flag that changes nothing: it is like this by default, and why the other value is the same.
struct IdleFlag {
  const char* name;
  bool preset;
  const char* why;
};
inline constexpr IdleFlag kContiguousGradients = {"contiguous_gradients", true,
                                                  "models write gradients where they are reduced"};
inline constexpr IdleFlag kRoundRobinGradients = {"round_robin_gradients", false,
                                                  "every bucket is cut over all ranks, which is what it aims at"};

inline void warn_of_idle(const Host& host, int32_t rank, std::initializer_list<IdleFlag> flags) {
  if (rank != 0) return;
  for (const IdleFlag& flag : flags) {
    const bool given = host.flag(str("strategy.", flag.name).c_str());
    if (given != flag.preset)
      host.log(DDH_LOG_WARN, flag.name, "=", given ? "true" : "false", " changes nothing: ", flag.why);
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
