// SPDX-License-Identifier: Apache-2.0
//
// The views that acquire returns, and the record of written gradients.
#include "ddh/sdk/params/unit_views.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

UnitViews::UnitViews(const ddh_model_desc& model, const ModelLayout& layout)
    : model_(&model), layout_(&layout), views_(model.n_units), written_(model.n_params, false) {
  for (uint32_t u = 0; u < model.n_units; ++u) views_[u].resize(model.units[u]->n_params);
}

void UnitViews::forget_gradients(const FlatSpace& space) {
  for (const PlacedParam& p : space.params) written_[static_cast<size_t>(p.param)] = false;
}

void UnitViews::fill(const ddh_unit_use& use, uint64_t version, const std::function<void*(size_t)>& data,
                     const std::function<float*(size_t)>& grad, ddh_unit_view& out) {
  const ddh_unit_desc& unit = *model_->units[use.unit];
  for (uint32_t i = 0; i < unit.n_params; ++i) {
    const auto p = static_cast<size_t>(unit.params[i]);
    const ModelLayout::Place at = layout_->place[p];
    const int32_t dtype = layout_->spaces[at.space].dtype;
    void* const values = element_at(data(at.space), dtype, at.offset);
    ddh_param_view& view = views_[static_cast<size_t>(use.unit)][i];
    view = {unit.params[i], dtype, values, nullptr, 0, 0, model_->params[p]->numel};
    if (!gives_gradients(use.phase, use.flags) || !layout_->spaces[at.space].trained_in(use.program)) continue;
    view.grad_dtype = DDH_F32;
    const uint64_t blocks_numel = layout_->spaces[at.space].blocks_numel;
    if (at.offset < blocks_numel) {
      view.grad_mode = DDH_GRAD_LATER;
      continue;
    }
    view.grad = grad(at.space) + (at.offset - blocks_numel);
    view.grad_mode = written_[p] ? DDH_GRAD_ADD : DDH_GRAD_WRITE;
    written_[p] = true;
  }
  out.n_params = unit.n_params;
  out.params = views_[static_cast<size_t>(use.unit)].data();
  out.param_stride = sizeof(ddh_param_view);
  out.version = version;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
