// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/cad_units.hpp: runs the image encoder of a CAD-MLLM by itself, with given weights.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../../models/cad_mllm/batch.hpp"
#include "../../models/cad_mllm/unit.hpp"

namespace ddhost::test {

using ValuesOf = std::function<std::vector<float>(const std::string& name, const std::vector<int64_t>& shape)>;

// The weights of one unit.
class UnitWeights final : public cad::Call {
 public:
  UnitWeights(const cad::CadBatch& its_batch, const cad::Unit& unit, const ValuesOf& weights) : Call(its_batch) {
    for (const cad::ParamSpec& param : unit.params) {
      const std::vector<float> values = weights(unit.prefix + param.name, param.shape);
      values_[param.name] = at::empty(param.shape, at::kFloat);
      std::copy(values.begin(), values.end(), values_[param.name].mutable_data_ptr<float>());
    }
  }
  const at::Tensor& operator[](const std::string& name) const override { return values_.at(name); }
  bool has(const std::string& name) const override { return values_.contains(name); }
  at::Tensor linear(const std::string& layer, const at::Tensor& x) override {
    const std::string bias = layer + ".bias";
    return at::linear(x, values_.at(layer + ".weight"), has(bias) ? std::optional(values_.at(bias)) : std::nullopt);
  }
  at::Tensor dropout(const at::Tensor& x, double) override { return x; }

 private:
  std::map<std::string, at::Tensor> values_;
};

// (samples, tokens, width) of the image encoder, or what its first `n_units` units give.
inline at::Tensor image_features(const cad::Config& config, const at::Tensor& pixels, const ValuesOf& weights,
                                 size_t n_units = SIZE_MAX) {
  cad::CadBatch batch;
  batch.pixels = pixels;
  cad::Tensors x;
  const std::vector<cad::Unit> units = cad::image_encoder(config);
  for (size_t i = 0; i < std::min(units.size(), n_units); ++i) {
    UnitWeights call(batch, units[i], weights);
    x = units[i].run(call, x);
  }
  return x.back();
}

}  // namespace ddhost::test
