// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/strategy_options.hpp: options that several strategies have.
#pragma once

#include "ddh/sdk/grads/grad_ring.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

constexpr Option bucket_option(std::string_view name) {
  return {.name = name,
          .type = "integer",
          .default_value = "0",
          .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
          .description =
              "Gradients are reduced in buckets. Units are added to a bucket, in backward order, until it holds this "
              "many bytes of gradients; 0 means one unit per bucket. Larger buckets need fewer "
              "collectives. With zero2 they are reduced later and need larger gradient buffers."};
}
inline constexpr Option kReduceBucket = bucket_option("reduce_bucket_bytes");
// For ModelLayout: the value of a bucket_option.
inline Grouping bucket_grouping(const SectionOptions& options, std::string_view name) {
  Grouping out;
  out.bucket_bytes = static_cast<uint64_t>(options.i64(name));
  return out;
}

inline constexpr Option kOverlapPublish = {
    .name = "overlap_publish",
    .type = "boolean",
    .default_value = "true",
    .rules = "",
    .description =
        "true: a unit waits for the other ranks' updated parameters when it is used next, so that publishing them "
        "overlaps with the forward of the units before. false: every rank waits at the end of the step, which is "
        "slower."};

inline constexpr Option kOverlapComm = {
    .name = "overlap_comm",
    .type = "boolean",
    .default_value = "true",
    .rules = R"("x-affects": "memory")",
    .description =
        "true: a gradient buffer is reduced when it is needed again, so the ranks compute meanwhile instead of "
        "waiting for each other. false: it is reduced right after its backward, which saves one buffer, but every rank "
        "waits for the slowest."};
inline constexpr Option kGradBufferBytes = {
    .name = "grad_buffer_bytes",
    .type = "integer|null",
    .default_value = "null",
    .rules = R"("minimum": 256, "x-unit": "bytes", "x-affects": "memory")",
    .description =
        "The most bytes of the buffers in which gradients wait for their reduction, and which all units use in turn. "
        "In a "
        "unit with more bytes of gradients than this, those of large matrices come in blocks of rows, if the model "
        "gives "
        "them; the buffers must hold one block. The limit does not bind parameters without blocks: such a unit has a "
        "buffer of all its gradients, even if that is larger. If the buffers would take more bytes than this, there is "
        "one "
        "less, or the largest units keep their full gradients, whichever takes less memory on all ranks together. One "
        "buffer less means that gradients are reduced before the next are computed; the log says so. null: 64 MiB, or "
        "the "
        "limit with which all ranks together take at most what zero1's gradients take, if that is less; then units "
        "above a "
        "quarter of it have blocks."};
inline constexpr Option kGradRingOptions[] = {kOverlapComm, kGradBufferBytes};

inline uint64_t grad_buffer_bytes(const SectionOptions& options) {
  return static_cast<uint64_t>(options.i64_if_given(kGradBufferBytes.name).value_or(0));
}
inline GradRingOptions ring_options(const SectionOptions& options) {
  return {.overlap = options.flag("overlap_comm"), .buffer_bytes = grad_buffer_bytes(options)};
}

// Read by PrefetchPolicy. Sizes are counted as 4 bytes for an element in every precision.
inline constexpr Option kPrefetchOptions[] = {
    {.name = "prefetch_units",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 0, "maximum": 64, "x-affects": "memory")",
     .description = "How many units are gathered ahead of the one in use. null: 1 if prefetch_bytes is null, else only "
                    "prefetch_bytes limits the number. "
                    "Each takes the memory of a whole unit."},
    {.name = "prefetch_bytes",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "The units that are gathered ahead have at most this many bytes, at 4 bytes an element in every precision; "
         "null means no limit, 0 gathers nothing ahead."},
    {.name = "persistence_bytes",
     .type = "integer",
     .default_value = "0",
     .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "Parameters of at most this size, at 4 bytes an element, stay gathered on every rank; 0 means none. It "
         "saves small gathers and takes the memory of these parameters and their gradients."},
    {.name = "max_live_bytes",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "Limit on the size of gathered parameters, at 4 bytes an element. Units are gathered ahead and kept, nearest "
         "use first, only while they fit. The unit in use is always gathered. null means no limit. A low limit saves "
         "memory and needs more gathers."},
    {.name = "reuse_bytes",
     .type = "integer",
     .default_value = "0",
     .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "A unit stays gathered if less than this many bytes of other units, at 4 bytes an element, are used before "
         "its next use. 0: it stays only if it is within the limits of prefetching. Larger values "
         "save gathers and take memory."}};

}  // namespace DDH_HIDDEN
}  // namespace ddh
