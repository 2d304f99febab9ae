// SPDX-License-Identifier: Apache-2.0
//
// engine/state/state_migration.hpp: versions of saved state (ddh_desc.state_version), and the way of an optimizer's older
// state into that of this version (ddh/kind/migrate.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/manifest.hpp"
#include "engine/services/optim/optimizers.hpp"

namespace ddhost {

// Throws if the strategy of the run does not read the state that the same strategy saved.
void check_strategy_version(const Manifest& manifest, const ddh_desc& strategy);

class StateMigration {
 public:
  // The saved tensor from which one of the run's comes.
  struct Origin {
    const Optimizers::Instance* optimizer;
    ddh_migrate_args to;  // its name lives as long as the run
    std::string tensor;   // "": there is none, it begins with zeros
    int32_t dtype;
  };

  StateMigration() = default;
  // Asks the optimizers whose state has another version than the saved one. Throws if one does not read that version.
  // `optimizers` outlives the object.
  StateMigration(const Manifest& manifest, const Optimizers& optimizers, const CheckpointLayout& layout,
                 const ddh_model_desc& model);

  [[nodiscard]] bool is_empty() const { return origins_.empty(); }
  // Of a tensor of the layout; nullptr: it comes from the saved tensor of its name.
  [[nodiscard]] const Origin* of(size_t tensor) const {
    const auto at = origins_.find(tensor);
    return at == origins_.end() ? nullptr : &at->second;
  }
  // Elements [offset, offset + numel) of the saved tensor, aligned, to those of the run's. [main]
  static void convert(const Origin& origin, uint64_t offset, uint64_t numel, const void* from, void* to);

 private:
  std::map<size_t, Origin> origins_;
};

}  // namespace ddhost
