// SPDX-License-Identifier: Apache-2.0
//
// Buckets from the options that several strategies share.
#include "ddh/sdk/stage_options.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

Grouping bucket_options(const SectionOptions& options) {
  const int64_t reduce = options.i64("reduce_bucket_bytes"), gather = options.i64("allgather_bucket_bytes");
  if (gather != 0 && gather != reduce) {
    fail(DDH_INVALID_ARGUMENT, options.key("allgather_bucket_bytes"), " = ", gather, " and ",
         options.key("reduce_bucket_bytes"), " = ", reduce,
         " differ, but what is reduced together is published together; give both the same number");
  }
  Grouping out;
  out.bucket_bytes = static_cast<uint64_t>(reduce);
  return out;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
