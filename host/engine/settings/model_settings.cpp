// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/model_settings.hpp"

#include <algorithm>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

int32_t find_program(const ddh_model_desc& model, int32_t kind) {
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    if (model.programs[g]->kind == kind) return static_cast<int32_t>(g);
  }
  return -1;
}

std::vector<int32_t> train_programs(const RunConfig& config, const ddh_model_desc& model) {
  std::vector<int32_t> all, chosen;
  std::string names;
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    if (model.programs[g]->kind != DDH_PROGRAM_TRAIN) continue;
    all.push_back(static_cast<int32_t>(g));
    names += (names.empty() ? "" : ", ") + std::string(model.programs[g]->name);
  }
  if (all.empty()) ddh::fail(DDH_FAILED_PRECONDITION, "model '", model.name, "' has no train program");
  for (const std::string& name : config.texts("train.programs")) {
    const auto at = std::find_if(all.begin(), all.end(), [&](int32_t g) { return name == model.programs[g]->name; });
    if (at == all.end())
      ddh::fail(DDH_INVALID_ARGUMENT, "train.programs names \"", name, "\", which is not a train program of model '",
                model.name, "'; it has ", names);
    chosen.push_back(*at);
  }
  return chosen.empty() ? all : chosen;
}

int32_t compute_dtype(const RunConfig& config, const Plugin& model) {
  const auto name = config.get<std::string>("precision.compute");
  if (name == "fp32") return DDH_F32;
  const bool is_bf16 = name == "bf16";
  if (!model.has_cap(is_bf16 ? DDH_CAP_COMPUTE_BF16 : DDH_CAP_COMPUTE_F16)) {
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", model.id(), "' does not compute in ", name,
              "; use precision.compute=fp32", is_bf16 || !model.has_cap(DDH_CAP_COMPUTE_BF16) ? "" : " or bf16");
  }
  return is_bf16 ? DDH_BF16 : DDH_F16;
}

uint32_t recompute_every(const RunConfig& config, const Plugin& model) {
  const auto every = static_cast<uint32_t>(config.get<int64_t>("train.recompute"));
  if (every > 0 && !model.has_cap(DDH_CAP_RECOMPUTE)) {
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", model.id(), "' can't run a forward twice; set train.recompute=0");
  }
  return every;
}

}  // namespace ddhost
