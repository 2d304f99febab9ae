// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/check_programs.hpp"

#include <algorithm>
#include <iterator>

#include "checkpoint/manifest.hpp"
#include "checkpoint/meaning_of_ids.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

constexpr uint32_t kNoGradients = DDH_POSITION_FORWARD_ONLY | DDH_POSITION_INPUT_GRAD_ONLY;

// Whether the backward of this position computes gradients of the unit's parameters.
bool gives_gradients(const ddh_program_desc& program, uint32_t position) {
  return program.position_flags == nullptr || (program.position_flags[position] & kNoGradients) == 0;
}

bool uses_param(const ddh_unit_desc& unit, int32_t param) {
  return std::find(unit.params, unit.params + unit.n_params, param) != unit.params + unit.n_params;
}

// The first position of a unit that computes gradients; its backward is the last. n_units: none.
uint32_t first_with_gradients(const ddh_program_desc& program, int32_t unit) {
  uint32_t i = 0;
  while (i < program.n_units && !(program.units[i] == unit && gives_gradients(program, i))) ++i;
  return i;
}

void check_trained_param(const ddh_model_desc& model, const ddh_program_desc& program, uint32_t p) {
  const ddh_param_desc& param = *model.params[p];
  const char* const owner = model.units[param.owner_unit]->name;
  const int32_t* const end = program.units + program.n_units;
  if (std::find(program.units, end, param.owner_unit) == end)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name,
              "' but does not run its unit '", owner, "'; leave it out of the program's mask");
  const uint32_t last_backward = first_with_gradients(program, param.owner_unit);
  if (last_backward == program.n_units)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name,
              "', but no position of its unit '", owner,
              "' computes the gradients of parameters; leave the parameter out of the program's mask");
  for (uint32_t i = 0; i < last_backward; ++i) {
    if (!gives_gradients(program, i) || !uses_param(*model.units[program.units[i]], static_cast<int32_t>(p))) continue;
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name, "', but unit '",
              model.units[program.units[i]]->name, "' computes a gradient of it at position ", i,
              ", after the last backward of its owner '", owner, "'; the owner's backward must be the last one");
  }
}

}  // namespace

void check_positions(const ddh_model_desc& model, const ddh_program_desc& program) {
  for (uint32_t i = 0; program.position_flags != nullptr && i < program.n_units; ++i) {
    const uint32_t flags = program.position_flags[i];
    const char* const unit = model.units[program.units[i]]->name;
    if ((flags & ~kNoGradients) != 0)
      ddh::fail(DDH_UNIMPLEMENTED, "program '", program.name, "' has flags ", flags, " at position ", i, " (unit '",
                unit, "'), but this host knows only ", kNoGradients, "; update ddhost");
    if (flags == kNoGradients)
      ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' marks position ", i, " (unit '", unit,
                "') as forward only and as giving the gradient of the input; choose one");
  }
}

// The gradient of a trained parameter is completed by the owner's backward, so the program must contain the owner.
void check_trained(const ddh_model_desc& model, const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_TRAIN) return;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const bool frozen = (model.params[p]->attributes & DDH_PARAM_FROZEN) != 0;
    if (program.trainable != nullptr && program.trainable[p] > 1)
      ddh::fail(DDH_INVALID_ARGUMENT, "the mask of program '", program.name, "' holds ", int{program.trainable[p]},
                " for parameter '", model.params[p]->name, "'; give 0 (not trained) or 1");
    if (!frozen && (program.trainable == nullptr || program.trainable[p] != 0)) check_trained_param(model, program, p);
  }
}

void check_update(const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_UPDATE) return;
  const char* const has = program.trainable != nullptr                        ? "a mask of what it trains"
                          : program.n_metrics != 0 || program.n_reported != 0 ? "metrics"
                          : program.optimizer != 0                            ? "an optimizer"
                                                                              : nullptr;
  if (has != nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "update program '", program.name, "' has ", has,
              ", but an update program only runs forward and changes no parameter; leave that out");
  if (program.n_samples == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "update program '", program.name, "' has no samples; give it some");
}

void check_features(const ddh_model_desc& model, uint64_t uses) {
  const auto require = [&](uint64_t bit, const char* name, const std::string& what) {
    if ((uses & bit) == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, what, ", but the plugin of model '", model.name, "' does not set ", name,
                " in ddh_desc.uses; set it there, so that strategies without it are refused");
  };
  for (uint32_t p = 0; p < model.n_params; ++p) {
    if (model.params[p]->compute_dtype != 0)
      require(DDH_FEATURE_PARAM_DTYPES, "DDH_FEATURE_PARAM_DTYPES",
              ddh::str("parameter '", model.params[p]->name, "' has a compute dtype of its own"));
  }
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    const ddh_program_desc& program = *model.programs[g];
    const std::string name = ddh::str("program '", program.name, "'");
    if (program.kind == DDH_PROGRAM_UPDATE)
      require(DDH_FEATURE_UPDATES, "DDH_FEATURE_UPDATES", name + " is an update program");
    if (program.optimizer != 0)
      require(DDH_FEATURE_OPTIMIZERS, "DDH_FEATURE_OPTIMIZERS", name + " has a further optimizer");
    for (uint32_t i = 0; program.position_flags != nullptr && i < program.n_units; ++i) {
      if (program.position_flags[i] != 0)
        require(DDH_FEATURE_POSITIONS, "DDH_FEATURE_POSITIONS", name + " has flags of positions");
    }
  }
}

std::vector<std::string> unused_optimizers(const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                                           const std::vector<std::string>& sections) {
  std::vector<bool> is_used(sections.size(), false);
  for (const int32_t g : train_programs) {
    const ddh_program_desc& program = *model.programs[g];
    if (static_cast<size_t>(program.optimizer) >= sections.size())
      ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' is trained by optimizer ", program.optimizer,
                " (counted from 0), but the run has only ", sections.size(),
                "; name more sections in train.optimizers, such as [\"optimizer\", \"optimizer_", program.name, "\"]");
    is_used[static_cast<size_t>(program.optimizer)] = true;
  }
  std::vector<std::string> unused;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!is_used[i]) unused.push_back(sections[i]);
  }
  return unused;
}

void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm) {
  std::vector<uint64_t> mine;
  for (const Fingerprint& fingerprint : fingerprints) mine.push_back(fingerprint.hash);
  const size_t n = mine.size(), n_ranks = static_cast<size_t>(comm.world_size());
  std::vector<uint64_t> all(n * n_ranks);
  comm.all_gather_bytes(mine.data(), all.data(), n * sizeof(uint64_t), "compare plugins and configuration");
  for (size_t r = 1; r < n_ranks; ++r) {
    for (size_t i = 0; i < n; ++i) {
      if (all[r * n + i] == all[i]) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "rank ", r, " has another ", fingerprints[i].of,
                " than rank 0; start every rank with the same files and options");
    }
  }
}

std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model) {
  const std::string meaning = meaning_of_ids(model);
  std::vector<Fingerprint> out = {{"meaning of the data's ids", sum_of(meaning.data(), meaning.size())}};
  for (uint32_t g = 0; g < model.n_programs; ++g)
    out.push_back(
        {ddh::str("number of samples of program '", model.programs[g]->name, "'"), model.programs[g]->n_samples});
  return out;
}

}  // namespace ddhost
