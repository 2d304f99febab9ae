// SPDX-License-Identifier: Apache-2.0
#include "engine/record/reports.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kMaxMetrics = 4096;  // maximum metrics of a program; each is sent once per micro-batch

// Fields that a row of a monitor has besides what a model reports.
constexpr std::array<std::string_view, 8> kOwnFields = {"step",    "grad_norm",  "lr",      "step_ms",
                                                        "skipped", "loss_scale", "program", "summary"};

bool is_own_field(std::string_view name) {
  return std::find(kOwnFields.begin(), kOwnFields.end(), name) != kOwnFields.end() || name.ends_with("_per_s") ||
         name.starts_with("val_");
}

// `what`: "metric" or "reported value".
void check_names(const ddh_program_desc& program, const char* what, const char* const* names, uint32_t n) {
  if (n > kMaxMetrics)
    ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' has ", n, " ", what, "s, at most ", kMaxMetrics,
              " are supported; give fewer");
  std::set<std::string_view> seen;
  for (uint32_t i = 0; i < n; ++i) {
    if (names == nullptr || names[i] == nullptr || *names[i] == '\0')
      ddh::fail(DDH_INVALID_ARGUMENT, what, " ", i, " of program '", program.name, "' has no name; give it one");
    if (!seen.insert(names[i]).second)
      ddh::fail(DDH_ALREADY_EXISTS, "program '", program.name, "' names the ", what, " '", names[i],
                "' twice; rename one");
  }
}

void check_shown_names(const ddh_program_desc& program) {
  for (const std::string_view name : reported_names(program)) {
    if (is_own_field(name))
      ddh::fail(
          DDH_INVALID_ARGUMENT, "program '", program.name, "' reports '", name,
          "', a name that the host uses in the rows of monitors (as it does names that begin with val_ or end in ",
          "_per_s); rename it in the model");
  }
}

// The gradient is divided by the count of metric 0. Schedules and the progress line read the first value.
void check_loss(const ddh_program_desc& program) {
  const bool trains = program.kind == DDH_PROGRAM_TRAIN;
  if (trains && program.n_metrics == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name,
              "' has no metric; its first one is the loss, whose count divides the gradient");
  const auto* const end = program.metrics + program.n_metrics;
  const auto* const loss =
      std::find_if(program.metrics, end, [](const char* name) { return std::string_view(name) == "loss"; });
  if (loss != program.metrics && (trains || loss != end))
    ddh::fail(DDH_INVALID_ARGUMENT, "metric 0 of program '", program.name, "' is '", program.metrics[0],
              "'; a program with a loss must name it 'loss' and put it first");
  if (trains && loss_place(program) != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' reports '", reported_names(program).front(),
              "' first; a training program must report 'loss' first, for schedules and the progress line");
}

void check_eval_program(const ddh_model_desc& model, const ddh_program_desc& program) {
  if (program.eval_program == nullptr) return;
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    const ddh_program_desc& other = *model.programs[g];
    if (other.kind == DDH_PROGRAM_EVAL && std::string_view(other.name) == program.eval_program) return;
  }
  ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' names as its evaluation '", program.eval_program,
            "', which is not an eval program of model '", model.name, "'; name an eval program, or none");
}

void check_folded(const ddh_buffer_desc& buffer, bool has_contribution) {
  if (buffer.sync != DDH_SYNC_FOLD) {
    if (buffer.fold_decay != 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has a fold_decay of ", buffer.fold_decay,
                ", but is not folded; use DDH_SYNC_FOLD, or set it to 0");
    return;
  }
  if (!has_contribution)
    ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name,
              "' is folded from contributions, but the model's table has no `contribution`; give it one");
  if (buffer.dtype != DDH_F32 && buffer.dtype != DDH_I64)
    ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' is folded and has dtype ", buffer.dtype,
              "; folded buffers are DDH_F32 or DDH_I64");
  if (!std::isfinite(buffer.fold_decay) || buffer.fold_decay < 0 || buffer.fold_decay > 1)
    ddh::fail(DDH_OUT_OF_RANGE, "buffer '", buffer.name, "' has a fold_decay of ", buffer.fold_decay,
              "; it must be from 0 to 1");
  if (buffer.dtype == DDH_I64 && buffer.fold_decay != 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' holds integers and has a fold_decay of ",
              buffer.fold_decay, "; counts are folded with 1");
}

}  // namespace

std::vector<std::string_view> reported_names(const ddh_program_desc& program) {
  if (program.n_reported > 0) return {program.reported, program.reported + program.n_reported};
  return {program.metrics, program.metrics + program.n_metrics};
}

int32_t loss_place(const ddh_program_desc& program) {
  const std::vector<std::string_view> names = reported_names(program);
  const auto at = std::find(names.begin(), names.end(), "loss");
  return at == names.end() ? -1 : static_cast<int32_t>(at - names.begin());
}

void report(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
            int32_t program, const FoldedMetrics& folded, Reported& out) {
  const ddh_program_desc& p = *desc.programs[program];
  out.values.clear();
  if (p.n_reported == 0) {
    for (uint32_t i = 0; i < p.n_metrics; ++i) out.values.push_back({p.metrics[i], folded.sums[i] / folded.counts[i]});
    return;
  }
  out.derived.assign(p.n_reported, 0);
  call(PluginCall::kDerive, table.derive, model, program, folded.sums.data(), folded.counts.data(), out.derived.data());
  for (uint32_t i = 0; i < p.n_reported; ++i) out.values.push_back({p.reported[i], out.derived[i]});
}

void check_outputs(const ddh_model_desc& model, const ddh_model_api& table) {
  std::set<std::string_view> names;
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    const ddh_program_desc& program = *model.programs[g];
    if (!names.insert(program.name).second)
      ddh::fail(DDH_ALREADY_EXISTS, "model '", model.name, "' has two programs named '", program.name, "'; rename one");
    check_eval_program(model, program);
    check_names(program, "metric", program.metrics, program.n_metrics);
    check_names(program, "reported value", program.reported, program.n_reported);
    check_shown_names(program);
    check_loss(program);
    if (program.n_reported > 0 && table.derive == nullptr)
      ddh::fail(
          DDH_INVALID_ARGUMENT, "program '", program.name,
          "' reports derived values, but the model's table has no `derive`; give it one, or leave out `reported`");
  }
  for (uint32_t b = 0; b < model.n_buffers; ++b) check_folded(*model.buffers[b], table.contribution != nullptr);
  for (uint32_t p = 0; p < model.n_params; ++p)
    if (model.params[p]->grad_block != 0 && !DDH_CAN(&table, ddh_model_api, gradient_block))
      ddh::fail(
          DDH_INVALID_ARGUMENT, "parameter '", model.params[p]->name,
          "' has a grad_block, but the model's table has no `gradient_block`; give it one, or leave out grad_block");
}

}  // namespace ddhost
