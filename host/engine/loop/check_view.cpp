// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/check_view.hpp"

#include <cstdint>

namespace ddhost {
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
      units_[u].push_back({p, param.compute_dtype != 0 ? param.compute_dtype : compute_dtype, param.numel});
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
    const bool has_grad = shown.grad != nullptr;
    const uint64_t width = want.dtype == DDH_F32 ? 4 : 2;
    const bool is_right = shown.param == want.param && shown.dtype == want.dtype && shown.numel == want.numel &&
                          (shown.data != nullptr || want.numel == 0) && is_aligned(shown.data, width) &&
                          (has_grad == wants_grad || want.numel == 0) &&
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
    if (!has_grad) refuse("without a gradient (NULL) of parameter '", name, "', which this backward trains");
    if (!wants_grad) refuse("with a gradient of parameter '", name, "', which this call does not train");
    refuse("whose gradient of parameter '", name, "' has dtype ", shown.grad_dtype, ", mode ", shown.grad_mode,
           " and address ", shown.grad, "; give DDH_F32, DDH_GRAD_WRITE or DDH_GRAD_ADD, and a multiple of 4");
  }
}

}  // namespace ddhost
