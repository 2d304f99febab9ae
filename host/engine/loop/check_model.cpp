// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/check_model.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "engine/loop/check_programs.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kMaxNumel = uint64_t{1} << 44;  // 64 TiB in fp32

void check_params(const ddh_model_desc& model) {
  std::set<std::string> names;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& param = *model.params[p];
    if (!names.insert(param.name).second)
      ddh::fail(DDH_ALREADY_EXISTS, "the model has two parameters named '", param.name, "'");
    uint64_t numel = 1;
    for (uint32_t d = 0; d < param.n_dims; ++d) {
      if (param.shape[d] <= 0)
        ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has a dimension of ", param.shape[d]);
      if (__builtin_mul_overflow(numel, static_cast<uint64_t>(param.shape[d]), &numel) || numel > kMaxNumel)
        ddh::fail(DDH_OUT_OF_RANGE, "parameter '", param.name, "' has more than 2^44 elements; make the model smaller");
    }
    if (numel != param.numel)
      ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "': numel is ", param.numel, ", its shape has ",
                numel);
    if (param.dtype != DDH_F32 && param.dtype != DDH_BF16 && param.dtype != DDH_F16)
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' is stored in dtype ", param.dtype,
                "; files of weights hold F32, BF16 or F16");
    if (param.compute_dtype != 0 && param.compute_dtype != DDH_F32)
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' has compute dtype ", param.compute_dtype,
                "; give 0 (the run's dtype) or DDH_F32");
    if (!std::isfinite(param.lr_scale) || param.lr_scale < 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has lr_scale ", param.lr_scale,
                "; give a finite factor above 0, or 0 for 1");
    if (param.owner_unit < 0 || static_cast<uint32_t>(param.owner_unit) >= model.n_units) {
      ddh::fail(DDH_OUT_OF_RANGE, "parameter '", param.name, "' is owned by unit ", param.owner_unit, " of ",
                model.n_units);
    }
  }
}

void check_buffers(const ddh_model_desc& model) {
  std::set<std::string> names;
  for (uint32_t p = 0; p < model.n_params; ++p) names.insert(model.params[p]->name);
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    if (!names.insert(buffer.name).second)
      ddh::fail(DDH_ALREADY_EXISTS, "the model has two parameters or buffers named '", buffer.name, "'; fix the model");
    if (ddh_dtype_bytes(buffer.dtype) == 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has dtype ", buffer.dtype,
                ", which this host does not know; fix the model");
    if (buffer.data == nullptr && buffer.numel > 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has no memory; fix the model");
    uint64_t numel = 1;
    for (uint32_t d = 0; d < buffer.n_dims; ++d) {
      if (buffer.shape[d] < 0)
        ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has a dimension of ", buffer.shape[d],
                  "; fix the model");
      if (__builtin_mul_overflow(numel, static_cast<uint64_t>(buffer.shape[d]), &numel) || numel > kMaxNumel)
        ddh::fail(DDH_OUT_OF_RANGE, "buffer '", buffer.name, "' has more than 2^44 elements; make the model smaller");
    }
    if (numel != buffer.numel)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "': numel is ", buffer.numel, ", its shape has ", numel,
                "; fix the model");
    if (buffer.sync != DDH_SYNC_STEP && buffer.sync != DDH_SYNC_NEVER && buffer.sync != DDH_SYNC_FOLD)
      ddh::fail(DDH_UNIMPLEMENTED, "buffer '", buffer.name, "' has sync ", buffer.sync,
                ", which this host does not know; use DDH_SYNC_STEP, DDH_SYNC_NEVER or DDH_SYNC_FOLD");
  }
}

// A parameter's owner is the first unit of every program that uses it: so its gradient is final after the owner's
// backward.
void check_program(const ddh_model_desc& model, const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_TRAIN && program.kind != DDH_PROGRAM_EVAL && program.kind != DDH_PROGRAM_UPDATE)
    ddh::fail(DDH_UNIMPLEMENTED, "program '", program.name, "' is of kind ", program.kind,
              ", which this host does not know; update ddhost");
  if (program.optimizer < 0)
    ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' has optimizer ", program.optimizer,
              "; it is an index in train.optimizers");
  check_update(program);
  if (program.n_units == 0) ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' has no units");
  std::vector<bool> seen(model.n_params, false);
  for (uint32_t i = 0; i < program.n_units; ++i) {
    const int32_t u = program.units[i];
    if (u < 0 || static_cast<uint32_t>(u) >= model.n_units) {
      ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' uses unit ", u, " of ", model.n_units);
    }
    for (uint32_t k = 0; k < model.units[u]->n_params; ++k) {
      const auto p = static_cast<size_t>(model.units[u]->params[k]);
      if (!seen[p] && model.params[p]->owner_unit != u && program.kind == DDH_PROGRAM_TRAIN) {
        ddh::fail(DDH_INVALID_ARGUMENT, "unit '", model.units[u]->name, "' uses parameter '", model.params[p]->name,
                  "' before its owner in program '", program.name, "'; the owner must be the first unit that uses it");
      }
      seen[p] = true;
    }
  }
  check_positions(model, program);
  check_trained(model, program);
}

}  // namespace

void check_model(const ddh_model_desc& model, uint64_t uses) {
  if (model.n_params == 0 || model.n_units == 0 || model.n_programs == 0) {
    ddh::fail(DDH_INVALID_ARGUMENT, "model '", model.name, "' describes no parameters, units or programs");
  }
  if (model.n_programs > 64)
    ddh::fail(DDH_OUT_OF_RANGE, "model '", model.name, "' has ", model.n_programs,
              " programs, at most 64 are supported");
  check_params(model);
  check_buffers(model);
  for (uint32_t u = 0; u < model.n_units; ++u) {
    for (uint32_t k = 0; k < model.units[u]->n_params; ++k) {
      const int32_t p = model.units[u]->params[k];
      if (p < 0 || static_cast<uint32_t>(p) >= model.n_params) {
        ddh::fail(DDH_OUT_OF_RANGE, "unit '", model.units[u]->name, "' uses parameter ", p, " of ", model.n_params);
      }
    }
  }
  for (uint32_t g = 0; g < model.n_programs; ++g) check_program(model, *model.programs[g]);
  check_features(model, uses);
}

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
