// SPDX-License-Identifier: Apache-2.0
#include "config/run_length.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void settle_run_length(Config& config) {
  if (config.integer("train.eval_every") > 0 && config.integer("train.eval_every_epochs") > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.eval_every=", config.integer("train.eval_every"),
              " and train.eval_every_epochs=", config.integer("train.eval_every_epochs"),
              " both say when the run evaluates; leave one out");
  if (!config.is_given("train.epochs")) return;
  if (config.find("train.steps")->source != "default")
    ddh::fail(DDH_INVALID_ARGUMENT, "train.steps=", config.integer("train.steps"),
              " and train.epochs=", config.integer("train.epochs"), " both say how long the run is; leave one out");
  config.set("train.steps", Json(), "derived");
}

}  // namespace ddhost
