// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/step_checks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "engine/numerics/kernels.hpp"

namespace ddhost {

StepChecks::StepChecks(const StateSource& source, const StepCoordinator& step, const InitialValues& initial,
                       const Comm& comm, Staging& staging)
    : source_(source), step_(step), staging_(staging) {
  staging.device().synchronize(nullptr);
  const std::vector<ddh_state_entry> entries = state_entries(source);
  held_ = held_params(source.model, entries);
  check_held_once(entries, comm);
  check_initial(entries, initial);
}

void StepChecks::check_held_once(const std::vector<ddh_state_entry>& entries, const Comm& comm) const {
  Cover first(source_.model.n_params);
  for (const ddh_state_entry& e : entries)
    if (e.kind == DDH_STATE_PARAM && e.replica_index == 0) first.add(e.param, e.offset, e.numel);
  const std::vector<Cover::Param>& mine = first.params();
  std::vector<Cover::Param> all(mine.size() * static_cast<size_t>(comm.world_size())), sum(mine.size());
  comm.all_gather_bytes(mine.data(), all.data(), mine.size() * sizeof(Cover::Param), "held parameters");
  for (size_t i = 0; i < all.size(); ++i) sum[i % mine.size()] += all[i];
  for (uint32_t p = 0; p < source_.model.n_params; ++p) {
    const auto param = static_cast<int32_t>(p);
    const uint64_t numel = source_.model.params[p]->numel;
    if (sum[p] == Cover::piece(param, 0, numel)) continue;
    source_.strategy.caller().blame(PluginCall::kState, {}, "the entries of all ranks with replica_index 0 have ",
                                    sum[p].numel, " elements of parameter ", param_text(source_.model, param),
                                    "; each of its ", numel, " must occur once");
  }
}

void StepChecks::check_initial(const std::vector<ddh_state_entry>& entries, const InitialValues& initial) const {
  std::array<float, DDH_GRID> drawn{};
  std::array<char, DDH_GRID * sizeof(float)> wanted{};
  for (const ddh_state_entry& e : entries) {
    if (e.kind != DDH_STATE_PARAM || e.numel == 0 || e.data == nullptr) continue;
    const uint64_t width = ddh_dtype_bytes(e.dtype);
    for (const uint64_t begin : {uint64_t{0}, (e.numel - 1) / DDH_GRID * DDH_GRID}) {
      const uint64_t numel = std::min<uint64_t>(DDH_GRID, e.numel - begin), bytes = numel * width;
      initial.init_range(e.param, e.offset + begin, numel, drawn.data());
      kernels::cast(wanted.data(), e.dtype, drawn.data(), DDH_F32, numel);
      const char* const held = staging_.readable(static_cast<const char*>(e.data) + begin * width, bytes, nullptr);
      if (std::memcmp(held, wanted.data(), bytes) == 0) continue;
      source_.strategy.caller().blame(PluginCall::kMaterialize, {}, "left parameter ",
                                      param_text(source_.model, e.param), " with other values than its initial ones, ",
                                      "in elements ", e.offset + begin, " to ", e.offset + begin + numel - 1,
                                      "; initialize it by ddh.params init_range");
    }
  }
}

void StepChecks::after_step() {
  const ddh_step_block& block = step_.block();
  const bool nonfinite = !step_.outcome().nonfinite.empty();
  source_.strategy.caller().checked(PluginCall::kStep, [&] {
    step_.require_done();
    if (block.skip == 0) step_.account().check_updates(held_);
  });
  if (nonfinite && block.skip == 0) applied_nonfinite_ = true;
  if (block.skip == 0) ++updates_;
  if (!applied_nonfinite_ && (nonfinite || (block.skip == 0 && updates_ <= kFirstUpdates))) check_finite("after step ");
}

void StepChecks::check_finite(const char* when) const {
  staging_.device().synchronize(nullptr);
  const std::optional<NonfinitePlace> place = first_nonfinite(state_entries(source_), staging_);
  if (!place) return;
  ddh::fail(DDH_DATA_LOSS, "parameter ", param_text(source_.model, place->param), " is not finite from element ",
            place->element, " on ", when, step_.block().step, ": ", blame_for_nonfinite());
}

std::string StepChecks::blame_for_nonfinite() const {
  if (applied_nonfinite_)
    return "a gradient that is not finite was applied, because train.skip_nonfinite is false; set it to true, or lower "
           "optimizer.lr";
  if (updates_ == 0)
    return "its first value is not finite; fix the file of train.init_from, or the model's initial values";
  return ddh::str("every gradient that was applied was finite; lower optimizer.lr, and if that does not help, check ",
                  source_.strategy.caller().name(), " and ", step_.optimizer_caller().name(), ", which write it");
}

namespace {

// A larger stride is uninitialized data.
constexpr uint64_t kMaxStride = 4096;

bool is_aligned(const void* p, uint64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

}  // namespace

ViewCheck::ViewCheck(const ddh_model_desc& model, int32_t compute_dtype) : model_(model), units_(model.n_units) {
  for (uint32_t u = 0; u < model.n_units; ++u) {
    for (uint32_t i = 0; i < model.units[u]->n_params; ++i) {
      const int32_t p = model.units[u]->params[i];
      const ddh_param_desc& param = *model.params[p];
      units_[u].push_back(
          {p, param.compute_dtype != 0 ? param.compute_dtype : compute_dtype, param.numel, param.grad_block});
    }
  }
}

void ViewCheck::check(const PluginCaller& strategy, const ddh_unit_use& use, const std::vector<uint8_t>& trains,
                      const ddh_unit_view& view) const {
  const UnitName unit{use.unit, model_.units[use.unit]->name};
  const auto refuse = [&](const auto&... what) { strategy.blame(PluginCall::kAcquire, unit, "gave a view ", what...); };
  const std::vector<Expected>& expected = units_[static_cast<size_t>(use.unit)];
  if (view.struct_size < DDH_UNIT_VIEW_MIN_SIZE) refuse("of struct_size ", view.struct_size);
  if (view.n_params != expected.size()) refuse("of ", view.n_params, " parameters, but the unit has ", expected.size());
  if (expected.empty()) return;
  if (view.params == nullptr || !is_aligned(view.params, alignof(ddh_param_view)))
    refuse("with the invalid pointer params = ", static_cast<const void*>(view.params));
  if (view.param_stride < DDH_PARAM_VIEW_MIN_SIZE || view.param_stride > kMaxStride || view.param_stride % 8 != 0)
    refuse("with param_stride ", view.param_stride, "; set it to sizeof(ddh_param_view), which is ",
           sizeof(ddh_param_view), " here");
  const bool gives_gradients = use.phase == DDH_PHASE_BACKWARD && (use.flags & DDH_OP_INPUT_GRAD_ONLY) == 0;
  for (uint32_t i = 0; i < view.n_params; ++i) {
    const ddh_param_view& shown = *ddh_view_param(&view, i);
    const Expected& want = expected[i];
    const bool wants_grad = gives_gradients && !trains.empty() && trains[static_cast<size_t>(want.param)] != 0;
    const bool has_grad = shown.grad != nullptr, is_later = !has_grad && shown.grad_mode == DDH_GRAD_LATER;
    const uint64_t width = want.dtype == DDH_F32 ? 4 : 2;
    const bool is_right = shown.param == want.param && shown.dtype == want.dtype && shown.numel == want.numel &&
                          (shown.data != nullptr || want.numel == 0) && is_aligned(shown.data, width) &&
                          (is_later ? wants_grad && want.grad_block > 0 : has_grad == wants_grad || want.numel == 0) &&
                          (!has_grad || (shown.grad_dtype == DDH_F32 && is_aligned(shown.grad, sizeof(float)) &&
                                         (shown.grad_mode == DDH_GRAD_WRITE || shown.grad_mode == DDH_GRAD_ADD)));
    if (is_right) [[likely]]
      continue;
    const char* const name = model_.params[want.param]->name;
    if (shown.param != want.param)
      refuse("with parameter ", shown.param, " at index ", i, ", where '", name, "' (", want.param, ") is expected");
    if (shown.numel != want.numel)
      refuse("with ", shown.numel, " elements of parameter '", name, "', which has ", want.numel);
    if (shown.dtype != want.dtype)
      refuse("with dtype ", shown.dtype, " of parameter '", name, "', where dtype ", want.dtype, " is expected");
    if (shown.data == nullptr) refuse("without data (NULL) of parameter '", name, "'");
    if (!is_aligned(shown.data, width))
      refuse("whose data address of parameter '", name, "' is not a multiple of ", width);
    if (is_later && wants_grad)
      refuse("with DDH_GRAD_LATER for parameter '", name, "', whose gradient has no blocks (grad_block is 0)");
    if (!has_grad && !is_later)
      refuse("without a gradient (NULL) of parameter '", name, "', which this backward trains");
    if (!wants_grad) refuse("with a gradient of parameter '", name, "', which this call does not train");
    refuse("whose gradient of parameter '", name, "' has dtype ", shown.grad_dtype, ", mode ", shown.grad_mode,
           " and address ", shown.grad, "; give DDH_F32, DDH_GRAD_WRITE or DDH_GRAD_ADD, and a multiple of 4");
  }
}

}  // namespace ddhost
