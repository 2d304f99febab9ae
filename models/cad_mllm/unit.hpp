// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/unit.hpp: a unit of the model: its weights by name, and a forward on LibTorch's autograd.
//
// The residual streams, norms, softmax and the loss are fp32. Products take and give the compute dtype.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../ops/autograd_layers.hpp"
#include "config.hpp"
#include "ddh/sdk/model.hpp"

namespace cad {

struct CadTensors;

using Tensors = std::vector<at::Tensor>;

struct DDH_HIDDEN ParamSpec {
  std::string name;  // below the unit's prefix
  std::vector<int64_t> shape;
  ddh::ParamInit init;
  bool trains = false;  // else no stage does
  double lr_scale = 0;  // 0 = 1
};

// What a unit sees while it runs.
class Call {
 public:
  explicit Call(const CadTensors& its_batch) : batch(its_batch) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;
  // A weight of the unit.
  [[nodiscard]] virtual const at::Tensor& operator[](const std::string& name) const = 0;
  [[nodiscard]] virtual bool has(const std::string& name) const = 0;
  // x (..., in) w^T + b in the weights' dtype; b where the layer has one.
  [[nodiscard]] virtual at::Tensor linear(const std::string& layer, const at::Tensor& x) = 0;
  [[nodiscard]] virtual at::Tensor dropout(const at::Tensor& x, double probability) = 0;

  const CadTensors& batch;
};

// The size of a micro-batch.
struct Load {
  double samples, tokens;  // tokens of a sample, with those of image and points
  double rows;             // with a target, of all samples
  double narrow;           // bytes of an element of the compute dtype
  bool input_learns;       // else the unit's input needs no gradient
  bool by_operators;       // attention keeps its probabilities
  int32_t dtype;           // compute dtype
};
// Of a unit in training: products count as two operations for each multiplication; what autograd keeps for the backward,
// the unit's input included.
struct Cost {
  double forward_flops = 0, backward_flops = 0, kept_bytes = 0;
  double lasting_bytes = 0;                          // of kept_bytes: the input
  double forward_at_peak = 0, backward_at_peak = 0;  // bytes beside kept_bytes, the result and its gradient included
};

struct DDH_HIDDEN Unit {
  std::string name;    // "layer.3"
  std::string prefix;  // of the names of its weights
  std::vector<ParamSpec> params;
  // Takes what the unit before it gave: features and tokens that wait in front, what it works on last.
  std::function<Tensors(Call&, const Tensors&)> run;
  std::function<Cost(const Load&)> cost = [](const Load&) { return Cost{}; };
};

at::Tensor linear(Call& w, const std::string& layer, const at::Tensor& x);
// fp32 -> fp32
at::Tensor layer_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps);
at::Tensor rms_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps);
// (B, T, H D) -> (B, T, H, D) in fp32, and from there to (B, H, T, D).
at::Tensor by_heads(const at::Tensor& x, int64_t n);
at::Tensor heads(const at::Tensor& x, int64_t n);
using ops::autograd::attention;
at::Tensor widened(const at::Tensor& x);

// Weight and bias of a linear layer or a norm.
void add_linear(std::vector<ParamSpec>& params, const std::string& layer, int64_t in, int64_t out, ddh::ParamInit init,
                bool bias);
void add_norm(std::vector<ParamSpec>& params, const std::string& layer, int64_t width, bool bias);

// The initial values of a frozen matrix: `published`, or by Start::kFanIn.
ddh::ParamInit start_of(const Config& config, int64_t fan_in, ddh::ParamInit published);

inline constexpr ddh::ParamInit kZero{}, kOne{DDH_INIT_CONSTANT, 1};
inline ddh::ParamInit normal(double deviation) { return {DDH_INIT_NORMAL, 0, deviation}; }

// The parts, unit by unit.
std::vector<Unit> image_encoder(const Config& config);  // pixels -> features (B, tokens, width)
std::vector<Unit> point_encoder(const Config& config);  // points -> feature (B, 1, width)
// Features (B, tokens, in) -> (B, tokens, C).
Unit projector(const Config& config, const std::string& modality, int64_t in, int64_t tokens, bool is_first);
Unit token_embedding(const Config& config);       // what waits, then the text -> (B, T, C)
std::vector<Unit> decoder(const Config& config);  // (B, T, C) -> (B, T, C)
Unit head(const Config& config);                  // -> logits (rows, V)

}  // namespace cad
