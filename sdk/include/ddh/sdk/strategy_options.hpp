// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/strategy_options.hpp: options that several strategies have.
#pragma once

#include "ddh/sdk/layout.hpp"
#include "ddh/sdk/options.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

constexpr Option bucket_option(std::string_view name) {
  return {.name = name,
          .type = "integer",
          .default_value = "0",
          .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
          .description =
              "Gradients are reduced in buckets. Units are added to a bucket, in backward order, until it holds this "
              "many bytes of gradients; 0 means one unit per bucket. Larger buckets need fewer collectives, start "
              "to reduce later, and need larger buffers where buckets share buffers."};
}
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
        "true: gradients are reduced while the next ones are computed. false: they are reduced as soon as they are "
        "complete, which needs one gradient buffer less and makes the ranks wait for each other."};

// Read by PrefetchPolicy. Sizes are counted as 4 bytes for an element in every precision.
inline constexpr Option kPrefetchOptions[] = {
    {.name = "prefetch_units",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 0, "maximum": 64, "x-affects": "memory")",
     .description =
         "How many units are gathered ahead of the one in use; null means 1, or as many as prefetch_bytes allows. "
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
         "When gathered parameters would exceed this size, at 4 bytes an element, no unit is gathered ahead or kept "
         "after its use; null means no limit. A low limit saves memory and costs gathers."},
    {.name = "reuse_bytes",
     .type = "integer",
     .default_value = "0",
     .rules = R"("minimum": 0, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "A unit stays gathered when fewer than this many bytes of other units, at 4 bytes an element, are used "
         "before it is needed again; 0 drops every unit after its use. It saves gathers and takes memory."}};

}  // namespace DDH_HIDDEN
}  // namespace ddh
