// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/block_checks.hpp"

#include <algorithm>

namespace ddhost {

BlockChecks::BlockChecks(const ddh_model_desc& model, const PluginCaller& strategy, const UnitName& unit,
                         const ddh_unit_view& view)
    : strategy_(strategy), unit_(unit) {
  for (uint32_t i = 0; i < view.n_params; ++i) {
    const ddh_param_view& shown = *ddh_view_param(&view, i);
    if (shown.grad_mode != DDH_GRAD_LATER || shown.grad != nullptr) continue;
    const ddh_param_desc& desc = *model.params[shown.param];
    params_.push_back(
        {&desc, shown.param, std::vector<bool>((desc.numel + desc.grad_block - 1) / desc.grad_block, false)});
  }
}

void BlockChecks::take(const ddh_grad_block& block) {
  if (block.struct_size < DDH_GRAD_BLOCK_MIN_SIZE)
    refuse("gave a block of struct_size ", block.struct_size, ", but at least ", DDH_GRAD_BLOCK_MIN_SIZE,
           " are needed");
  const auto param =
      std::find_if(params_.begin(), params_.end(), [&](const Param& p) { return p.index == block.param; });
  if (param == params_.end())
    refuse("gave a block of parameter ", block.param, ", which the unit's view does not show as DDH_GRAD_LATER");
  const ddh_param_desc& desc = *param->desc;
  if (block.offset % desc.grad_block != 0 || block.offset >= desc.numel ||
      block.numel != std::min(desc.grad_block, desc.numel - block.offset))
    refuse("gave elements ", block.offset, " to ", block.offset + block.numel, " of parameter '", desc.name,
           "', but its blocks have ", desc.grad_block, " of ", desc.numel, " elements");
  if (block.grad == nullptr || reinterpret_cast<uintptr_t>(block.grad) % sizeof(float) != 0 ||
      (block.grad_mode != DDH_GRAD_WRITE && block.grad_mode != DDH_GRAD_ADD))
    refuse("gave a block of parameter '", desc.name, "' with mode ", block.grad_mode, " and address ",
           static_cast<const void*>(block.grad), "; give DDH_GRAD_WRITE or DDH_GRAD_ADD, and a multiple of 4");
  const uint64_t index = block.offset / desc.grad_block;
  if (param->given[index]) refuse("gave block ", index, " of parameter '", desc.name, "' twice");
  param->given[index] = true;
}

void BlockChecks::require_all() const {
  for (const Param& p : params_) {
    const auto missing = std::find(p.given.begin(), p.given.end(), false);
    if (missing != p.given.end())
      refuse("ended without block ", missing - p.given.begin(), " of parameter '", p.desc->name, "', which has ",
             p.given.size(), " blocks");
  }
}

}  // namespace ddhost
