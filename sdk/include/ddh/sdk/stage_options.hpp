// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/stage_options.hpp: options that several of DeepSpeed's stages have, and what of them is reduced together.
#pragma once

#include "ddh/sdk/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// reduce_bucket_bytes, which allgather_bucket_bytes may only repeat.
Grouping bucket_options(const SectionOptions& options);

}  // namespace DDH_HIDDEN
}  // namespace ddh

// clang-format off
// In the schemas of all stages.
#define DDH_STAGE_OPTIONS(stage) \
  R"("stage": {"type": "integer", "default": )" stage R"(, "enum": [)" stage R"(],)" \
  R"("description": "DeepSpeed's number of this scheme: for another take zero1, zero2 or zero3"},)" \
  R"("contiguous_gradients": {"type": "boolean", "default": true,)" \
  R"("x-idle": "models write gradients where they are reduced",)" \
  R"("description": "gradients are written contiguously from the start"},)" \
  R"("reduce_scatter": {"type": "boolean", "default": true, "enum": [true],)" \
  R"("description": "each rank sums its own segment; there is no other way"},)" \
  R"("allgather_partitions": {"type": "boolean", "default": true, "enum": [true],)" \
  R"("description": "parameters are published by a gather; there are no broadcasts"})"

// In those of the stages that offload nothing.
#define DDH_NO_OFFLOAD_OPTIONS \
  R"("offload_optimizer": {"type": "object", "properties": {"device": {"type": "string", "default": "none",)" \
  R"("enum": ["none"], "description": "it is zero3_offload that offloads"}}},)" \
  R"("offload_param": {"type": "object", "properties": {"device": {"type": "string", "default": "none",)" \
  R"("enum": ["none"], "description": "it is zero3_offload that offloads"}}})"
#define DDH_OFFLOAD_ALIASES \
  R"("offload_optimizer": {"key": "offload_optimizer.device"}, "offload_param": {"key": "offload_param.device"})"

// What stages 1 and 2 have in common, beside overlap_comm, and its other names.
#define DDH_BUCKET_OPTIONS \
  R"("reduce_bucket_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes", "x-affects": "memory",)" \
  R"("description": "units that are reduced, updated and published together: as many as reach so much; 0: each alone"},)" \
  R"("allgather_bucket_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes",)" \
  R"("description": "the same buckets by the other name: 0, or what reduce_bucket_bytes is"},)" \
  R"("overlap_publish": {"type": "boolean", "default": true,)" \
  R"("description": "wait for the others' parameters when a unit needs them; false: at the end of the step"},)" \
  R"("round_robin_gradients": {"type": "boolean", "default": false,)" \
  R"("x-idle": "every bucket is cut over all ranks, which is what it aims at",)" \
  R"("description": "every bucket is cut over all ranks"})"
#define DDH_BUCKET_ALIASES \
  R"("reduce_bucket_size": {"key": "reduce_bucket_bytes", "scale": 4},)" \
  R"("allgather_bucket_size": {"key": "allgather_bucket_bytes", "scale": 4})"

// What DeepSpeed's stage 3 has and needs no choice here, so that its configurations are taken as they are.
#define DDH_STAGE3_IDLE_OPTIONS \
  R"("reduce_bucket_size": {"type": ["number", "null"], "default": null, "minimum": 0, "x-unit": "elements",)" \
  R"("x-idle": "a unit's gradients are reduced together", "description": "taken, and without a meaning here"},)" \
  R"("allgather_bucket_size": {"type": ["number", "null"], "default": null, "minimum": 0, "x-unit": "elements",)" \
  R"("x-idle": "a unit's parameters are gathered together", "description": "taken, and without a meaning here"},)" \
  R"("sub_group_size": {"type": ["number", "null"], "default": null, "minimum": 0, "x-unit": "elements",)" \
  R"("x-idle": "the update goes over the state once, in pieces that fit the caches or the buffers",)" \
  R"("description": "taken, and without a meaning here"},)" \
  R"("round_robin_gradients": {"type": "boolean", "default": false,)" \
  R"("x-idle": "every unit is cut over all ranks, which is what it aims at",)" \
  R"("description": "taken, and without a meaning here"},)" \
  R"("stage3_gather_16bit_weights_on_model_save": {"type": ["boolean", "null"], "default": null,)" \
  R"("x-idle": "final weights are written whole, in fp32", "description": "taken, and without a meaning here"})"
// clang-format on
