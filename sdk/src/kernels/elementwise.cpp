// SPDX-License-Identifier: Apache-2.0
//
// The parts of the element-wise base class that do not depend on the formula.
#include "ddh/sdk/kernels/elementwise.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

ElementPiece piece_at(const ddh_optim_shard& shard, std::array<float*, 2> state, uint64_t at, uint64_t numel) {
  auto* const lowp = static_cast<uint16_t*>(shard.lowp);
  for (float*& s : state) s = s == nullptr ? nullptr : s + at;
  return {shard.master + at, state, nullptr, nullptr, 1.0f, lowp == nullptr ? nullptr : lowp + at, numel};
}

DecayingOptimizer::DecayingOptimizer(const ddh_create& create)
    : Optimizer(create), weight_decay_(options.f64("weight_decay")), decay_groups_(options.flag("decay_groups")) {}

void DecayingOptimizer::attach(const ddh_model_desc& model) { decays_ = decaying_params(model, decay_groups_); }

ParamStep DecayingOptimizer::step_of(const ddh_update_args& args, int32_t param) const {
  return {args.block->lr, args.param_steps[param], decays(param) ? weight_decay_ : 0.0};
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
