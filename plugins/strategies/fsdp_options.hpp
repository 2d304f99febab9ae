// SPDX-License-Identifier: Apache-2.0
//
// strategies/fsdp_options.hpp: options of fsdp, with PyTorch's names.
#pragma once

#include <string_view>

#include "ddh/sdk/strategy_options.hpp"

enum class Sharing { kAll, kNode, kNobody };
enum class Prefetch { kPre, kPost, kNone };

inline constexpr ddh::Option kFsdpOptions[] = {
    {.name = "sharding_strategy",
     .type = "string",
     .default_value = R"("full_shard")",
     .rules =
         R"("enum": ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"], "x-affects": "memory")",
     .description =
         "full_shard: the model is sharded over all ranks. shard_grad_op: the same, but parameters stay gathered from "
         "forward "
         "to backward, which needs more memory and fewer gathers. no_shard: every rank has everything. hybrid_shard, "
         "hybrid_shard_zero2: as the first two, but the model is sharded over the ranks of a node, or shard_size "
         "ranks."},
    {.name = "shard_size",
     .type = "integer",
     .default_value = "0",
     .rules = R"("minimum": 0, "maximum": 1024, "x-unit": "ranks", "x-affects": "memory")",
     .description =
         "With hybrid_shard: ranks over which the model is sharded; 0 means run.ranks_per_node. More ranks need less "
         "memory each and send more."},
    {.name = "auto_wrap_policy",
     .type = "string",
     .default_value = R"("unit")",
     .rules = R"("enum": ["unit", "size", "none"], "x-affects": "memory")",
     .description = "Which units are wrapped, that is gathered together. unit: each unit by itself. size: consecutive "
                    "units, until "
                    "they have at least min_num_params elements. none: the whole model. More units together need fewer "
                    "gathers and "
                    "more memory."},
    {.name = "min_num_params",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 1, "x-unit": "elements", "x-affects": "memory")",
     .description =
         "With auto_wrap_policy=size: units are wrapped together until they have this many elements; null means 100 "
         "million."},
    {.name = "backward_prefetch",
     .type = "string",
     .default_value = R"("pre")",
     .rules = R"("enum": ["pre", "post", "none"], "x-affects": "memory")",
     .description = "In backward the next wrapped units are gathered before the current unit's backward, after it, or "
                    "when they are "
                    "needed. Later needs less memory and waits longer."},
    {.name = "forward_prefetch",
     .type = "boolean",
     .default_value = "true",
     .rules = R"("x-affects": "memory")",
     .description =
         "true: the next wrapped units are gathered before the current unit's forward. false: when they are needed, "
         "which needs less memory and waits longer."},
    {.name = "limit_all_gathers",
     .type = "boolean",
     .default_value = "true",
     .rules = R"("x-affects": "memory")",
     .description =
         "true: wrapped units are gathered one gather ahead. false: two ahead, which takes the memory of one more."},
    {.name = "reshard_after_forward",
     .type = "boolean|integer",
     .default_value = "true",
     .rules = R"("minimum": 1, "maximum": 1048576, "x-unit": "ranks", "x-affects": "memory")",
     .description =
         "true: gathered parameters are dropped after forward. false or 1: they stay until their backward. k > 1: they "
         "stay sharded among k neighbours and are gathered there; without shared pages this takes 1/k of the "
         "parameters."},
    {.name = "cpu_offload",
     .type = "boolean",
     .default_value = "false",
     .rules = R"("x-affects": "memory")",
     .description =
         "true: the segments of parameters, gradients and optimizer state live in pinned host memory and are updated "
         "there. It saves device memory and costs a copy for each gather."},
    ddh::kGradBufferBytes};
