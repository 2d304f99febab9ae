// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/course.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/settings/model_settings.hpp"

namespace ddhost {
namespace {

using nlohmann::json;

constexpr int64_t kMostMicroBatch = 1048576;  // samples

template <class... Parts>
[[noreturn]] void refuse(size_t number, const Parts&... parts) {
  ddh::fail(DDH_INVALID_ARGUMENT, "phase ", number, " of train.phases ", parts...);
}

int64_t count_of(size_t number, const std::string& key, const json& value, int64_t most = int64_t{1} << 40) {
  if (!value.is_number_integer() || value < 1 || value > most)
    refuse(number, "has ", key, " = ", value.dump(), "; give an integer from 1 to ", most);
  return value.get<int64_t>();
}

void check_key(size_t number, const std::string& key) {
  constexpr std::array<std::string_view, 7> kKeys = {"program",  "steps",     "epochs",     "lr",
                                                     "schedule", "optimizer", "micro_batch"};
  if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
    refuse(number, "has the unknown key '", key,
           "'; it takes program, steps, epochs, lr, schedule, optimizer and micro_batch");
}

// "program": a name, or a list of names that take turns.
std::vector<int32_t> named_programs(size_t number, const json& value, const ddh_model_desc& model) {
  std::string all;
  for (uint32_t g = 0; g < model.n_programs; ++g)
    if (model.programs[g]->kind != DDH_PROGRAM_EVAL)
      all += (all.empty() ? "" : ", ") + std::string(model.programs[g]->name);
  const json names = value.is_array() ? value : json::array({value});
  std::vector<int32_t> out;
  for (const json& name : names) {
    int32_t found = -1;
    for (uint32_t g = 0; g < model.n_programs; ++g)
      if (model.programs[g]->kind != DDH_PROGRAM_EVAL && name == model.programs[g]->name)
        found = static_cast<int32_t>(g);
    if (found < 0)
      refuse(number, "names ", name.dump(), ", which is not a train or update program of model '", model.name,
             "'; it has ", all);
    out.push_back(found);
  }
  if (out.empty()) refuse(number, "names no program; give one of ", all);
  return out;
}

PhaseSpec phase_of(size_t number, const json& entry, const ddh_model_desc& model) {
  PhaseSpec phase;
  for (const auto& [key, value] : entry.items()) {
    check_key(number, key);
    if (value.is_null()) continue;  // not given
    if (key == "program") {
      phase.turns = named_programs(number, value, model);
    } else if (key == "steps") {
      phase.steps = count_of(number, key, value);
    } else if (key == "epochs") {
      phase.epochs = count_of(number, key, value);
    } else if (key == "micro_batch") {
      phase.micro_batch = static_cast<uint64_t>(count_of(number, key, value, kMostMicroBatch));
    } else if (key == "lr") {
      if (!value.is_number() || value.get<double>() < 0)
        refuse(number, "has lr = ", value.dump(), "; give a number of at least 0");
      phase.lr = value.get<double>();
    } else if (key == "schedule") {
      phase.schedule = value.is_string() ? value.get<std::string>() : "";  // prepare_run has found its plugin
    } else if (key == "optimizer") {
      if (value != "keep" && value != "new")
        refuse(number, "has optimizer = ", value.dump(),
               "; give \"keep\" or \"new\" (keep or reset the optimizer state)");
      phase.new_state = value == "new";
    }
  }
  if (phase.turns.empty()) refuse(number, "names no program; add \"program\"");
  return phase;
}

bool is_update(const ddh_model_desc& model, int32_t program) {
  return model.programs[program]->kind == DDH_PROGRAM_UPDATE;
}

// Whether a phase runs update programs. Such a phase has no training program and no length.
bool is_of_updates(size_t number, const PhaseSpec& phase, const json& entry, const ddh_model_desc& model) {
  const auto updates =
      std::count_if(phase.turns.begin(), phase.turns.end(), [&](int32_t program) { return is_update(model, program); });
  const auto n_keys = std::count_if(entry.begin(), entry.end(), [](const json& value) { return !value.is_null(); });
  const char* const first = model.programs[phase.turns.front()]->name;
  if (updates > 0 && updates < static_cast<std::ptrdiff_t>(phase.turns.size()))
    refuse(number, "mixes train and update programs; give update programs a phase of their own");
  if (updates > 0 && n_keys > 1)
    refuse(number, "runs the update program '", first,
           "', which runs once over all its samples; leave out all keys but ", "\"program\"");
  if (updates == 0 && (phase.steps > 0) == (phase.epochs > 0))
    refuse(number, "trains '", first, "' and has ",
           phase.steps > 0 ? "both steps and epochs" : "neither steps nor epochs", "; give one of them");
  return updates > 0;
}

void add_each_once(std::vector<int32_t>& to, const std::vector<int32_t>& programs) {
  for (const int32_t program : programs)
    if (std::find(to.begin(), to.end(), program) == to.end()) to.push_back(program);
}

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

// What data.drop_last means for this run.
EpochEnd epoch_end(const RunConfig& config) {
  if (!config.is_given("data.drop_last")) return has_phase_in_epochs(config) ? EpochEnd::shorten : EpochEnd::join;
  return config.get<bool>("data.drop_last") ? EpochEnd::drop : EpochEnd::shorten;
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

std::vector<PhaseSpec> run_phases(const RunConfig& config, const ddh_model_desc& model) {
  const json given = json::parse(config.json("train.phases"));
  std::vector<PhaseSpec> phases;
  std::vector<int32_t> leading;
  for (size_t i = 0; i < given.size(); ++i) {
    PhaseSpec phase = phase_of(i + 1, given[i], model);
    if (!is_of_updates(i + 1, phase, given[i], model)) {
      phases.push_back(std::move(phase));
      continue;
    }
    std::vector<int32_t>& to = phases.empty() ? leading : phases.back().updates;
    to.insert(to.end(), phase.turns.begin(), phase.turns.end());
  }
  if (!given.empty() && phases.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "train.phases trains nothing; add a phase with a train program");
  if (!phases.empty()) {
    phases.front().updates_before = std::move(leading);
    return phases;
  }
  PhaseSpec all;
  all.turns = train_programs(config, model);
  if (config.is_given("train.epochs"))
    all.epochs = config.get<int64_t>("train.epochs");
  else
    all.steps = config.get<int64_t>("train.steps");
  return {all};
}

std::vector<std::string> take_out_programs_of_others(const RunConfig& config, const ddh_model_desc& model,
                                                     std::vector<PhaseSpec>& phases) {
  if (config.json("train.phases") != "[]" || !config.texts("train.programs").empty() ||
      config.texts("train.optimizers").size() > 1)
    return {};
  std::vector<int32_t>& turns = phases.front().turns;
  std::vector<std::string> warnings;
  std::vector<int32_t> rest;
  for (const int32_t g : turns) {
    const ddh_program_desc& program = *model.programs[g];
    if (program.optimizer == 0)
      rest.push_back(g);
    else
      warnings.push_back(ddh::str("program '", program.name,
                                  "' is not trained, because it has an optimizer of its own; ",
                                  "train.optimizers=[\"optimizer\", \"optimizer_", program.name, "\"] trains it, too"));
  }
  if (rest.empty()) return {};
  turns = std::move(rest);
  return warnings;
}

std::vector<int32_t> programs_of(const std::vector<PhaseSpec>& phases) {
  if (phases.size() == 1) return phases.front().turns;
  std::vector<int32_t> out;
  for (const PhaseSpec& phase : phases) add_each_once(out, phase.turns);
  return out;
}

std::vector<int32_t> updates_of(const std::vector<PhaseSpec>& phases) {
  std::vector<int32_t> out;
  for (const PhaseSpec& phase : phases) {
    add_each_once(out, phase.updates_before);
    add_each_once(out, phase.updates);
  }
  return out;
}

uint64_t micro_batch_of(const RunConfig& config, const ddh_program_desc& program) {
  const nlohmann::json given = micro_batches(config);
  const auto own = given.find(program.name);
  return own == given.end() ? static_cast<uint64_t>(config.get<int64_t>("data.micro_batch")) : own->get<uint64_t>();
}

SampleOrder order_of(const RunConfig& config, const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                     int32_t program) {
  if (train_programs.size() > 1 && !config.text("data.order").empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "data.order='", config.text("data.order"), "' orders the samples of one ",
              "program, but this run trains ", train_programs.size(), "; leave it out, or train one");
  return {model.programs[program]->n_samples, static_cast<uint64_t>(config.get<int64_t>("run.seed")),
          config.text("data.order"), epoch_end(config)};
}

// Always the same pass, so the short shape does for sets of any size.
SampleOrder evaluation_order(uint64_t n_samples) { return {n_samples, 0, EpochEnd::shorten, short_shape(n_samples)}; }

TrainOrder make_order(const RunConfig& config, const ddh_model_desc& model, const std::vector<PhaseSpec>& phases,
                      uint64_t world_size) {
  const std::vector<int32_t> train_programs = programs_of(phases);
  check_micro_batches(config, model);
  std::map<int32_t, SampleOrder> orders;
  for (const int32_t program : train_programs)
    orders.try_emplace(program, order_of(config, model, train_programs, program));
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
