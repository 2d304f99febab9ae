// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/phases.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ddh/sdk/plugin.hpp"
#include "engine/settings/model_settings.hpp"

namespace ddhost {
namespace {

using nlohmann::json;

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
    phases.front().updates_before = leading;
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
  turns = rest;
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

}  // namespace ddhost
