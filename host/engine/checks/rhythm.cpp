// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/rhythm.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/settings/loss_scale.hpp"

namespace ddhost {
namespace {

// The strategy's options with this value, from which its rhythm must come: "strategy.sync_every=50". Else "the strategy's 50".
std::string said_by_strategy(const RunConfig& config, int64_t every) {
  std::string out;
  const nlohmann::json all = nlohmann::json::parse(config.file_text());
  for (const auto& [name, value] : all.at("strategy").items())
    if (value.is_number_integer() && value == every)
      out += ddh::str(out.empty() ? "" : " or ", "strategy.", name, "=", every);
  return out.empty() ? ddh::str("the strategy's ", every) : out;
}

}  // namespace

uint32_t rhythm_of(const Instance& strategy, const ddh_strategy_api& table) {
  if (!DDH_CAN(&table, ddh_strategy_api, rhythm)) return 1;
  ddh_rhythm out{sizeof(ddh_rhythm), 1};
  strategy.call(PluginCall::kRhythm, table.rhythm, &out);
  if (out.world_every == 0) strategy.caller().blame(PluginCall::kRhythm, {}, "gives world_every 0; give at least 1");
  return out.world_every;
}

bool scales_loss(const RunConfig& config) {
  const LossScaleSettings settings = LossScaleSettings::from(config);
  return settings.dynamic || settings.initial != 1;
}

void check_rhythm(uint32_t world_every, const std::string& strategy, const RunConfig& config,
                  const ddh_model_desc& model, const std::vector<PhaseSpec>& phases) {
  if (world_every == 1) return;
  const std::string who = ddh::str("with ", strategy, " all ranks agree only after every ", world_every, " steps");
  const auto refuse = [&](const auto&... what) { ddh::fail(DDH_FAILED_PRECONDITION, who, what...); };
  const auto every = static_cast<int64_t>(world_every);
  if (scales_loss(config))
    refuse(
        ", and a loss scale is decided by all ranks in every step; set precision.compute=bf16 or fp32, and leave out ",
        "precision.loss_scale");
  const int64_t eval_every = config.get<int64_t>("train.eval_every");
  if (eval_every % every != 0) {
    const int64_t below = eval_every / every * every;
    refuse(", so train.eval_every=", eval_every, " must be a multiple of ", said_by_strategy(config, every), "; give ",
           below > 0 ? ddh::str(below, " or ") : std::string(), below + every);
  }
  if (config.get<int64_t>("train.eval_every_epochs") > 0)
    refuse(", and an epoch may end between; evaluate by train.eval_every, a multiple of ", every,
           ", instead of train.eval_every_epochs");
  if (config.get<int64_t>("train.update_every") > 0 || !updates_of(phases).empty())
    refuse(", and update programs need equal parameters on all ranks; set train.update_every=0, or choose another ",
           "strategy");
  for (uint32_t b = 0; b < model.n_buffers; ++b)
    if (model.buffers[b]->sync != DDH_SYNC_NEVER)
      refuse(", and buffer '", model.buffers[b]->name, "' of model '", model.name,
             "' is equal on all ranks in every step; choose another strategy or model");
}

void check_rhythm_of_rates(int64_t world_every, const std::string& strategy, const std::string& reader,
                           bool reads_evaluations) {
  if (world_every == 1 || reader.empty() || reads_evaluations) return;
  ddh::fail(DDH_FAILED_PRECONDITION, reader, " reads the loss of every step, and with ", strategy,
            " all ranks know it only after every ", world_every, " steps; evaluate by train.eval_every=", world_every,
            ", or choose another schedule");
}

}  // namespace ddhost
