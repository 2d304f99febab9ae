// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/course.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

nlohmann::json micro_batches(const RunConfig& config) {
  return nlohmann::json::parse(config.json("data.micro_batch_of"));
}

void check_micro_batches(const RunConfig& config, const ddh_model_desc& model) {
  std::string names;
  for (uint32_t g = 0; g < model.n_programs; ++g) names += ddh::str(g == 0 ? "" : ", ", model.programs[g]->name);
  const nlohmann::json all = micro_batches(config);  // outlives its items
  for (const auto& [name, value] : all.items()) {
    const auto is_it = [&name = name](const ddh_program_desc* program) { return name == program->name; };
    if (std::none_of(model.programs, model.programs + model.n_programs, is_it))
      ddh::fail(DDH_INVALID_ARGUMENT, "data.micro_batch.", name, " is for a program that model '", model.name,
                "' does not have; it has ", names);
    if (!value.is_number_integer() || value < 1 || value > kMostMicroBatch)
      ddh::fail(DDH_INVALID_ARGUMENT, "data.micro_batch.", name, " = ", value.dump(),
                " is not a number of samples; give an integer from 1 to ", kMostMicroBatch);
  }
}

// Joined epochs would not end with such a phase: its last step would take samples of the next epoch.
bool has_phase_in_epochs(const RunConfig& config) {
  const auto phases = nlohmann::json::parse(config.json("train.phases"));
  return std::any_of(phases.begin(), phases.end(),
                     [](const auto& phase) { return phase.contains("epochs") && !phase["epochs"].is_null(); });
}

std::vector<TrainPhase> phases_of(const RunConfig& config, const ddh_model_desc& model,
                                  const std::vector<PhaseSpec>& specs) {
  std::vector<TrainPhase> phases;
  for (const PhaseSpec& spec : specs) {
    TrainPhase& phase = phases.emplace_back(TrainPhase{{}, spec.steps, spec.epochs});
    for (const int32_t program : spec.turns)
      phase.turns.push_back({program, spec.micro_batch.value_or(micro_batch_of(config, *model.programs[program]))});
  }
  return phases;
}

}  // namespace

EpochEnd epoch_end(const RunConfig& config) {
  if (!config.is_given("data.drop_last")) return has_phase_in_epochs(config) ? EpochEnd::shorten : EpochEnd::join;
  return config.get<bool>("data.drop_last") ? EpochEnd::drop : EpochEnd::shorten;
}

uint64_t micro_batch_of(const RunConfig& config, const ddh_program_desc& program) {
  const nlohmann::json given = micro_batches(config);
  const auto own = given.find(program.name);
  return own == given.end() ? static_cast<uint64_t>(config.get<int64_t>("data.micro_batch")) : own->get<uint64_t>();
}

TrainOrder make_order(const RunConfig& config, const ddh_model_desc& model, const std::vector<PhaseSpec>& phases,
                      uint64_t world_size) {
  const std::vector<int32_t> train_programs = programs_of(phases);
  check_micro_batches(config, model);
  if (train_programs.size() > 1 && !config.text("data.order").empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "data.order='", config.text("data.order"), "' orders the samples of one ",
              "program, but this run trains ", train_programs.size(), "; leave it out, or train one");
  std::map<int32_t, SampleOrder> orders;
  for (const int32_t program : train_programs)
    orders.try_emplace(program, model.programs[program]->n_samples,
                       static_cast<uint64_t>(config.get<int64_t>("run.seed")), config.text("data.order"),
                       epoch_end(config));
  return {phases_of(config, model, phases),
          config.get<int64_t>("train.cycles"),
          std::move(orders),
          {1, world_size, static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"))}};
}

void require_no_empty(const TrainOrder& order, const RunConfig& config, const ddh_model_desc& model) {
  if (epoch_end(config) != EpochEnd::shorten) return;
  const int32_t empty = order.program_with_empty();
  if (empty >= 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "the last step of an epoch of program '", model.programs[empty]->name,
              "' has a micro-batch without samples, which model '", model.name,
              "' does not support; use data.drop_last=true, fewer ranks or a smaller data.micro_batch");
}

std::string batch_text(const TrainOrder& order, const ddh_model_desc& model, uint64_t world_size,
                       uint64_t grad_accum_steps) {
  std::set<int32_t> programs;
  for (const TrainPhase& phase : order.phases())
    for (const TrainPhase::Turn& turn : phase.turns) programs.insert(turn.program);
  std::set<std::pair<int32_t, uint64_t>> told;
  std::string text;
  for (const TrainPhase& phase : order.phases()) {
    for (const TrainPhase::Turn& turn : phase.turns) {
      if (!told.insert({turn.program, turn.micro_batch}).second) continue;
      const std::string program = programs.size() > 1 ? ddh::str(" of ", model.programs[turn.program]->name) : "";
      text += ddh::str(text.empty() ? "" : ", ", turn.micro_batch * world_size * grad_accum_steps, " samples", program,
                       " a step (", turn.micro_batch, " x ", counted(world_size, "rank"), " x ",
                       counted(grad_accum_steps, "micro-batch"), ")");
    }
  }
  return text;
}

EpochPlace epoch_place(const TrainOrder& order, const TrainStep& step) {
  const uint64_t size = order.epoch_size(step.program), last = step.span.first + step.span.count - 1;
  const int64_t epochs = order.phases().size() == 1 && order.cycles() == 1 ? order.phases().front().epochs : 0;
  const auto epoch = static_cast<int64_t>(last / size) + 1;
  if (epochs > 0 && epoch > epochs) return {epochs, epochs, 1};  // epochs are joined, and this is the run's last step
  return {epoch, epochs, static_cast<double>(last % size + 1) / static_cast<double>(size)};
}

}  // namespace ddhost
