// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/step_account.hpp"

#include <algorithm>

#include "base/step_extras.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"

namespace ddhost {
namespace {

uint64_t mark(int32_t param, uint64_t at) {
  return ddh::mix64(at + ddh::kMixStep * (static_cast<uint64_t>(param) + 1));
}

}  // namespace

Cover::Param Cover::piece(int32_t param, uint64_t begin, uint64_t numel) {
  return {numel, mark(param, begin + numel) - mark(param, begin)};
}

std::string param_text(const ddh_model_desc& model, int32_t param) {
  const ddh_param_desc& desc = *model.params[param];
  return ddh::str("'", desc.name, "' (unit '", model.units[desc.owner_unit]->name, "')");
}

StepAccount::StepAccount(const ddh_model_desc& model)
    : model_(model), trains_(model.n_params, 0), gradients_(model.n_params), updates_(model.n_params) {}

void StepAccount::begin(int32_t program, std::span<const uint8_t> trains) {
  gradients_.clear();
  updates_.clear();
  gradient_marks_ = 0;
  if (program == program_) return;
  program_ = program;
  expected_marks_ = 0;
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    trains_[p] = trains[p];
    if (trains_[p] != 0) expected_marks_ += Cover::piece(static_cast<int32_t>(p), 0, model_.params[p]->numel).marks;
  }
}

void StepAccount::check_range(const ddh_range& range) const {
  if (range.param < 0 || static_cast<uint32_t>(range.param) >= model_.n_params)
    ddh::fail(DDH_OUT_OF_RANGE, "a range names parameter ", range.param, " of ", model_.n_params, "; fix the strategy");
  const uint64_t numel = model_.params[range.param]->numel;
  if (range.param_offset > numel || range.numel > numel - range.param_offset)
    ddh::fail(DDH_OUT_OF_RANGE, "a range of ", range.numel, " elements from element ", range.param_offset,
              " on goes beyond the ", numel, " elements of parameter ", param_text(model_, range.param),
              "; fix the strategy");
  // Norms are summed in blocks of the grid, so another division would give other bits.
  if (range.param_offset % DDH_GRID != 0 || (range.numel % DDH_GRID != 0 && range.param_offset + range.numel != numel))
    ddh::fail(DDH_OUT_OF_RANGE, "a range of ", range.numel, " elements from element ", range.param_offset,
              " on of parameter ", param_text(model_, range.param), " is not cut at multiples of ", DDH_GRID,
              " elements; fix the strategy");
  if (range.flat_offset % DDH_GRID != 0)
    ddh::fail(DDH_OUT_OF_RANGE, "a range of parameter ", param_text(model_, range.param), " begins at element ",
              range.flat_offset, " of the strategy's buffers, which is no multiple of ", DDH_GRID,
              "; fix the strategy");
}

void StepAccount::check_ranges(const ddh_range* ranges, uint32_t n_ranges) const {
  if (!step_includes(StepExtra::checks)) return;
  for (uint32_t i = 0; i < n_ranges; ++i) check_range(ranges[i]);
}

void StepAccount::require_trained(int32_t param, const char* what) const {
  if (trains(param)) return;
  ddh::fail(DDH_FAILED_PRECONDITION, what, " parameter ", param_text(model_, param), ", which program '",
            model_.programs[program_]->name, "' does not train; fix the strategy");
}

void StepAccount::add_gradient(uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) {
  if (!step_includes(StepExtra::checks)) return;
  const uint64_t end = begin + numel;
  const auto behind = [](const ddh_range& range, uint64_t at) { return range.flat_offset + range.numel <= at; };
  auto range = std::lower_bound(ranges.begin(), ranges.end(), begin, behind);
  for (; range != ranges.end() && range->flat_offset < end; ++range) {
    check_range(*range);
    require_trained(range->param, "the strategy counts a gradient of");
    const uint64_t from = std::max(begin, range->flat_offset);
    const uint64_t to = std::min(end, range->flat_offset + range->numel);
    const uint64_t first = range->param_offset + (from - range->flat_offset);
    gradients_.add(range->param, first, to - from);
    gradient_marks_ += Cover::piece(range->param, first, to - from).marks;
  }
}

void StepAccount::fail_gradients(const std::vector<Cover::Param>& all) const {
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    const auto param = static_cast<int32_t>(p);
    const uint64_t numel = model_.params[p]->numel;
    if (!trains(param) || all[p] == Cover::piece(param, 0, numel)) continue;
    const std::string name = param_text(model_, param);
    if (all[p].numel == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "the gradient of parameter ", name,
                " was not counted in the norm on any rank; ",
                "fix the strategy: each element counts once, by add_gradient or DDH_REDUCE_NORM");
    if (all[p].numel == numel)
      ddh::fail(
          DDH_FAILED_PRECONDITION, "elements of the gradient of parameter ", name,
          " were counted twice in the norm, and others never; fix the strategy: each counts once, over all ranks");
    ddh::fail(DDH_FAILED_PRECONDITION, "over all ranks ", all[p].numel, " elements of the gradient of parameter ", name,
              " were counted in the norm, but it has ", numel, "; fix the strategy: each counts once");
  }
  ddh::fail(DDH_FAILED_PRECONDITION, "the ranks counted gradients of different programs; fix the strategy");
}

void StepAccount::add_update(std::span<const ddh_range> ranges) {
  if (!step_includes(StepExtra::checks)) return;
  for (const ddh_range& range : ranges) {
    require_trained(range.param, "the strategy updates");
    updates_.add(range.param, range.param_offset, range.numel);
    if (updates_.of(range.param).numel <= model_.params[range.param]->numel) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy updates elements of parameter ", param_text(model_, range.param),
              " a second time in one step; fix the strategy");
  }
}

void StepAccount::check_updates(const Cover& held) const {
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    const auto param = static_cast<int32_t>(p);
    if (!trains(param) || updates_.of(param) == held.of(param)) continue;
    const uint64_t done = updates_.of(param).numel, mine = held.of(param).numel;
    ddh::fail(DDH_FAILED_PRECONDITION, "updated ", done == mine ? "other elements than the " : "",
              done == mine ? std::string() : ddh::str(done, " of the "), mine, " elements of parameter ",
              param_text(model_, param), " that this rank holds (its state); fix the strategy: every step that is not ",
              "skipped updates each of them once");
  }
}

}  // namespace ddhost
