// SPDX-License-Identifier: Apache-2.0
//
// engine/services/lr_scales.hpp: learning-rate factors of parameters (ddh_param_desc.lr_scale). The optimizer is called
// once for each factor in a shard, with the ranges of that factor and a step block with the scaled rate. As in torch's
// parameter groups, the factor also scales decoupled weight decay.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

class LrScales {
 public:
  explicit LrScales(const ddh_model_desc& model) {
    for (uint32_t p = 0; p < model.n_params; ++p) {
      const double scale = model.params[p]->lr_scale;
      factors_.push_back(scale == 0 ? 1.0 : scale);
    }
    if (std::all_of(factors_.begin(), factors_.end(), [](double f) { return f == 1.0; })) factors_.clear();
  }

  // Calls apply(shard, block) for each factor of the shard's parameters, in the order of their first ranges.
  template <class Apply>
  void for_each(const ddh_optim_shard& shard, const ddh_step_block& block, Apply&& apply) const {
    if (factors_.empty()) return apply(shard, block);
    std::vector<double> seen;
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const double factor = factor_of(shard.ranges[r]);
      if (std::find(seen.begin(), seen.end(), factor) != seen.end()) continue;
      seen.push_back(factor);
      std::vector<ddh_range> ranges;
      std::copy_if(shard.ranges + r, shard.ranges + shard.n_ranges, std::back_inserter(ranges),
                   [&](const ddh_range& range) { return factor_of(range) == factor; });
      ddh_optim_shard part = shard;
      part.ranges = ranges.data();
      part.n_ranges = static_cast<uint32_t>(ranges.size());
      ddh_step_block scaled = block;
      scaled.lr *= factor;
      apply(part, scaled);
    }
  }

 private:
  [[nodiscard]] double factor_of(const ddh_range& range) const { return factors_[static_cast<size_t>(range.param)]; }

  std::vector<double> factors_;  // per parameter; empty: all are 1
};

}  // namespace ddhost
