// SPDX-License-Identifier: Apache-2.0
#include "config/run_length.hpp"

#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

bool is_given(const Config& config, const char* key) {
  const std::string value = config.json(key);
  const bool is_empty = value == "null" || value == "[]" || value == "0";
  return config.find(key)->source != "default" && (!is_empty || key == std::string_view("train.steps"));
}

void settle_use_of_programs(Config& config) {
  for (const char* key : {"train.eval_every", "train.eval_every_epochs"}) config.set(key, 0, "derived");
  if (!is_given(config, "train.programs")) return;
  config.set("train.phases", Json::array(), "derived");
  config.set("train.cycles", 1, "derived");
}

}  // namespace

void settle_run_length(Config& config, bool trains) {
  if (!trains) settle_use_of_programs(config);
  if (config.integer("train.eval_every") > 0 && config.integer("train.eval_every_epochs") > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.eval_every=", config.integer("train.eval_every"),
              " and train.eval_every_epochs=", config.integer("train.eval_every_epochs"),
              " both set when the run evaluates; leave one out");
  const bool has_phases = config.json("train.phases") != "[]";
  for (const char* key : {"train.steps", "train.epochs", "train.programs", "train.update_every"})
    if (has_phases && is_given(config, key))
      ddh::fail(DDH_INVALID_ARGUMENT, key, "=", config.json(key),
                " and train.phases exclude each other: phases say which programs run, and how long; leave one out",
                config.find(key)->source == config.find("train.phases")->source
                    ? ""
                    : ", or give train.steps or train.epochs, which replace the file's phases");
  if (!has_phases && config.integer("train.cycles") > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.cycles=", config.integer("train.cycles"),
              " repeats the phases of train.phases, but there are none; give phases, or leave it out");
  if (has_phases) config.set("train.steps", Json(), "derived");
  if (!config.is_given("train.epochs")) return;
  if (config.find("train.steps")->source != "default")
    ddh::fail(DDH_INVALID_ARGUMENT, "train.steps=", config.integer("train.steps"),
              " and train.epochs=", config.integer("train.epochs"), " both set the length of the run; leave one out");
  config.set("train.steps", Json(), "derived");
}

}  // namespace ddhost
