// SPDX-License-Identifier: Apache-2.0
#include "run/check_world.hpp"

#include <array>
#include <string>
#include <vector>

#include "ddh/sdk/counter_rng.hpp"
#include "plugin/elf_note.hpp"

namespace ddhost {
namespace {

constexpr std::array<const char*, 8> kThings = {"strategy",      "model",    "optimizer", "comm plugin",
                                                "device plugin", "schedule", "ABI",       "configuration"};
using Digest = std::array<uint64_t, kThings.size()>;

uint64_t digest_of(const Plugin& plugin) {
  return ddh::fnv1a(ddh::str(plugin.id(), ' ', plugin.desc->version, ' ', plugin.module->build->abi_major, '.',
                             plugin.module->build->abi_minor, ' ', plugin.module->build->header_checksum, ' ',
                             plugin.module->build->torch_version, ' ', read_elf(plugin.file).build_id));
}

uint64_t digest_of(const std::vector<RunPlan::Optimizer>& optimizers) {
  std::string text;
  for (const RunPlan::Optimizer& optimizer : optimizers)
    text += ddh::str(optimizer.section, ' ', digest_of(optimizer.plugin), ' ');
  return ddh::fnv1a(text);
}

Digest digest_of(const RunPlan& plan) {
  return {digest_of(plan.strategy),
          digest_of(plan.model),
          digest_of(plan.optimizers),
          digest_of(plan.comm),
          digest_of(plan.device),
          digest_of(plan.schedule),
          ddh::fnv1a(ddh::str(DDH_ABI_MAJOR, '.', DDH_ABI_MINOR, ' ', DDH_HEADER_CHECKSUM)),
          ddh::fnv1a(plan.config.effective().dump())};
}

}  // namespace

void check_same_everywhere(const RunPlan& plan, const Comm& comm) {
  const Digest mine = digest_of(plan);
  std::vector<Digest> all(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(mine.data(), all.data(), sizeof mine, "compare plugins and configuration");
  for (size_t r = 1; r < all.size(); ++r) {
    for (size_t i = 0; i < kThings.size(); ++i) {
      if (all[r][i] == all[0][i]) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "rank ", r, " has another ", kThings[i],
                " than rank 0; start every rank with the same files and options");
    }
  }
}

}  // namespace ddhost
