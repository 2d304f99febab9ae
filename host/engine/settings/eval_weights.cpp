// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/eval_weights.hpp"

#include "ddh/sdk/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {
namespace {

// "optimizer", "optimizer_kg"; of "follower.ema": "ema".
std::string name_of(const OptimizerRef& ref) {
  return ref.follows ? ref.section.substr(kFollower.size()) : ref.section;
}

std::string list_of(const std::vector<OptimizerRef*>& refs) {
  std::string list;
  for (const OptimizerRef* ref : refs) list += (list.empty() ? "" : ", ") + name_of(*ref);
  return list;
}

}  // namespace

void choose_shown(std::vector<OptimizerRef>& optimizers, const std::string& choice) {
  if (choice == "trained") return;
  std::vector<OptimizerRef*> showing;
  for (OptimizerRef& ref : optimizers)
    if (DDH_CAN(ref.table, ddh_optimizer_api, show)) showing.push_back(&ref);
  if (choice == "auto") {
    if (showing.size() > 1)
      ddh::fail(DDH_INVALID_ARGUMENT, "several optimizers show weights to evaluate: ", list_of(showing),
                "; name one of them in train.eval_weights, or set it to trained");
    for (OptimizerRef* ref : showing) ref->is_shown = true;
    return;
  }
  for (OptimizerRef* ref : showing)
    if (name_of(*ref) == choice) {
      ref->is_shown = true;
      return;
    }
  ddh::fail(DDH_INVALID_ARGUMENT, "train.eval_weights='", choice,
            "' is no optimizer or follower of this run that shows weights; there are: trained",
            showing.empty() ? "" : ", " + list_of(showing));
}

}  // namespace ddhost
