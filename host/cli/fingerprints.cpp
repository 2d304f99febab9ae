// SPDX-License-Identifier: Apache-2.0
#include "cli/fingerprints.hpp"

#include "ddh/sdk/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/elf_note.hpp"

namespace ddhost {
namespace {

uint64_t hash_of(const Plugin& plugin) {
  if (plugin.desc == nullptr) return 0;  // none
  return ddh::fnv1a(ddh::str(plugin.id(), ' ', plugin.desc->version, ' ', plugin.module->build->abi_major, '.',
                             plugin.module->build->abi_minor, ' ', plugin.module->build->header_checksum, ' ',
                             plugin.module->build->torch_version, ' ', read_elf(plugin.file).build_id));
}

uint64_t hash_of(const std::vector<RunPlan::Optimizer>& optimizers) {
  std::string text;
  for (const RunPlan::Optimizer& optimizer : optimizers)
    text += ddh::str(optimizer.section, ' ', hash_of(optimizer.plugin), ' ');
  return ddh::fnv1a(text);
}

}  // namespace

std::vector<Fingerprint> fingerprints_of(const PreparedRun& run) {
  return {{"strategy", hash_of(run.strategy)},
          {"model", hash_of(run.model)},
          {"optimizer", hash_of(run.optimizers)},
          {"comm plugin", hash_of(run.comm)},
          {"comm.host plugin", hash_of(run.host_comm)},
          {"device plugin", hash_of(run.device)},
          {"schedule", hash_of(run.schedule)},
          {"ABI", ddh::fnv1a(ddh::str(DDH_ABI_MAJOR, '.', DDH_ABI_MINOR, ' ', DDH_HEADER_CHECKSUM))},
          {"configuration", ddh::fnv1a(run.config.effective().dump())}};
}

}  // namespace ddhost
