// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/offload_options.hpp: options of strategies that can offload optimizer state or parameters, with DeepSpeed's
// names, and the settings that they give.
#pragma once

#include "ddh/sdk/options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/tier/tile_plan.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The last five are of the tier, so offloaded parameters use them too.
inline constexpr Option kOffloadOptimizer[] = {
    {.name = "offload_optimizer.device",
     .type = "string",
     .default_value = R"("none")",
     .rules = R"("enum": ["none", "cpu", "nvme"], "x-affects": "memory")",
     .description =
         "Where the optimizer state lives: on the device, in pinned host memory, or in a file in nvme_path. Each is "
         "larger and slower than the one before."},
    {.name = "offload_optimizer.ratio",
     .type = "number",
     .default_value = "1.0",
     .rules = R"("minimum": 0, "maximum": 1, "x-affects": "memory")",
     .description =
         "The fraction of the optimizer state that is offloaded, in whole tiles; the rest stays on the device."},
    {.name = "offload_optimizer.pipeline_read",
     .type = "boolean",
     .default_value = "true",
     .rules = "",
     .description =
         "true: tiles are read while earlier ones are updated. false: one after the other, which is slower."},
    {.name = "offload_optimizer.pipeline_write",
     .type = "boolean",
     .default_value = "true",
     .rules = "",
     .description =
         "true: tiles are written while later ones are updated. false: one after the other, which is slower."},
    {.name = "offload_optimizer.pin_memory",
     .type = "boolean",
     .default_value = "true",
     .rules = "",
     .description = "Offloaded data is always pinned; false is refused if the optimizer state is offloaded."},
    {.name = "nvme_path",
     .type = "string",
     .default_value = R"("")",
     .rules = R"("x-path": true)",
     .description =
         "A folder on a fast disk; needed for nvme. The file there has no name and disappears with the run."},
    {.name = "buffer_bytes",
     .type = "integer",
     .default_value = "8388608",
     .rules = R"("minimum": 4096, "maximum": 1073741824, "x-unit": "bytes", "x-affects": "memory")",
     .description = "The most bytes of a tile of one array, rounded up to 4096. A tile is transferred as a whole. "
                    "Larger tiles need "
                    "fewer transfers and more memory."},
    {.name = "buffer_count",
     .type = "integer",
     .default_value = "3",
     .rules = R"("minimum": 1, "maximum": 64, "x-affects": "memory")",
     .description =
         "The most frames; each holds one tile of every offloaded array. With 3, one is read, one updated and one "
         "written; more read further ahead and take more memory."},
    {.name = "offload_memory_bytes",
     .type = "integer|null",
     .default_value = "null",
     .rules = R"("minimum": 8192, "x-unit": "bytes", "x-affects": "memory")",
     .description =
         "The most bytes of all frames together. Tiles get smaller to fit, then frames fewer. null: no more than the "
         "offloaded data takes, or one tile of 4096 bytes for each array if that is more."},
    {.name = "io",
     .type = "string",
     .default_value = R"("auto")",
     .rules = R"("enum": ["auto", "uring", "pread"])",
     .description =
         "How files are read and written. auto: io_uring, or pread with a warning where the kernel has no io_uring."}};

inline constexpr Option kOffloadParam[] = {
    {.name = "offload_param.device",
     .type = "string",
     .default_value = R"("none")",
     .rules = R"("enum": ["none", "cpu", "nvme"], "x-affects": "memory")",
     .description =
         "Where the parameters live between the uses of their unit: on the device, in pinned host memory, or in a file "
         "in nvme_path. cpu and nvme cost a read for each gather."},
    {.name = "offload_param.max_in_cpu",
     .type = "integer",
     .default_value = "0",
     .rules = R"("minimum": 0, "x-unit": "elements", "x-affects": "memory")",
     .description =
         "With offload_param.device=nvme: this many elements of a rank's parameters stay in pinned memory, as whole "
         "segments; 0 means none. It saves reads and takes memory."},
    {.name = "offload_param.pin_memory",
     .type = "boolean",
     .default_value = "true",
     .rules = "",
     .description = "Offloaded data is always pinned; false is refused if parameters are offloaded."}};

// The settings of kOffloadOptimizer; with `offloads_params` also those of kOffloadParam.
// Errors: offload_optimizer.pin_memory=false or offload_param.pin_memory=false where it would count.
[[nodiscard]] OffloadSettings offload_settings(const Host& host, const SectionOptions& options, bool offloads_params);

// Logs which options change nothing with these settings, and that cpu saves no memory where the device's is the host's.
void warn_of_idle_options(const Host& host, const SectionOptions& options, const OffloadSettings& settings);

}  // namespace DDH_HIDDEN
}  // namespace ddh
