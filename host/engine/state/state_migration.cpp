// SPDX-License-Identifier: Apache-2.0
#include "engine/state/state_migration.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// "1 to 2", or "2".
std::string versions_text(const ddh_desc& desc) {
  if (desc.oldest_state_version == desc.state_version) return std::to_string(desc.state_version);
  return ddh::str(desc.oldest_state_version, " to ", desc.state_version);
}

void check_version(const char* kind, const std::string& id, const std::string& version, uint32_t state_version,
                   const ddh_desc& desc) {
  if (state_version >= desc.oldest_state_version && state_version <= desc.state_version) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "the checkpoint has the state of an ", kind, " that was saved by '", id, "' ",
            version, " with state version ", state_version, "; this one reads ", versions_text(desc),
            ": resume with the version of '", id, "' that saved it",
            state_version > desc.state_version ? ", or a newer one" : "");
}

ddh_migrate_source source_of(const Optimizers::Instance& o, const ddh_migrate_args& to) {
  ddh_migrate_source from{};
  from.struct_size = sizeof from;
  from.name = "";
  o.call(PluginCall::kMigrate, o.migrate->source, o.inst, &to, &from);
  if (from.name == nullptr || (from.name[0] != '\0' && ddh_dtype_bytes(from.dtype) == 0))
    o.call.blame(PluginCall::kMigrate, {}, "names no saved tensor, or one of unknown dtype ", from.dtype,
                 ", for slot '", to.name, "'");
  return from;
}

}  // namespace

void check_strategy_version(const Manifest& manifest, const ddh_desc& strategy) {
  for (const UsedPlugin& used : manifest.plugins)
    if (used.kind == "strategy" && used.id == strategy.id)
      check_version("strategy", used.id, used.version, used.state_version, strategy);
}

StateMigration::StateMigration(const Manifest& manifest, const Optimizers& optimizers, const CheckpointLayout& layout,
                               const ddh_model_desc& model) {
  for (const Optimizers::Instance& o : optimizers.instances()) {
    const auto& all = manifest.progress.optimizers;
    const auto saved = std::find_if(all.begin(), all.end(), [&](const OptimizerProgress& p) {
      return o.desc != nullptr && p.section == o.section && p.plugin == o.desc->id;
    });
    if (saved == all.end()) continue;
    check_version("optimizer", saved->plugin, saved->version, saved->state_version, *o.desc);
    if (saved->state_version == o.desc->state_version || o.migrate == nullptr) continue;
    const std::string prefix = slot_prefix(o.section);
    for (uint32_t s = 0; s < o.slots.size(); ++s)
      for (uint32_t p = 0; p < model.n_params; ++p) {
        const auto param = static_cast<int32_t>(p);
        const int64_t tensor = layout.slot(o.first_slot + s, param);
        if (tensor < 0) continue;
        const ddh_migrate_args to{
            sizeof to, saved->state_version,           DDH_STATE_SLOT, static_cast<int32_t>(s), param,
            0,         o.slots[s].name + prefix.size()};
        const ddh_migrate_source from = source_of(o, to);
        const std::string name = from.name[0] == '\0' ? "" : prefix + from.name + "/" + model.params[p]->name;
        origins_.emplace(static_cast<size_t>(tensor), Origin{&o, to, name, from.dtype});
      }
  }
}

void StateMigration::convert(const Origin& origin, uint64_t offset, uint64_t numel, const void* from, void* to) {
  const Optimizers::Instance& o = *origin.optimizer;
  o.call(PluginCall::kMigrate, o.migrate->convert, o.inst, &origin.to, offset, numel, from, to);
}

}  // namespace ddhost
