// SPDX-License-Identifier: Apache-2.0
//
// cnn/net.hpp: a network as a list of units, and the builder that the definitions of networks call layer by layer. The
// builder follows the shape of a sample through the layers, so it knows sizes of weights, FLOPs and activations.
//
//   Net net({3, 32, 32}, {});
//   net.unit("block 1").conv("conv1", 32, 3, {.padding = 1}).relu().max_pool(2);
//   net.unit("head").flatten().dropout(0.5).linear("fc", 10);
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../ops/autograd_layers.hpp"
#include "../ops/norm_kernels.hpp"
#include "ddh/sdk/model.hpp"

namespace cnn {

// The shape of one sample. A flat sample has height and width 1. Layers for images treat each frame of a video as a
// sample: tensors are (B frames, channels, height, width).
struct Shape {
  int64_t channels = 0, height = 0, width = 0;
  int64_t frames = 1;
  [[nodiscard]] int64_t frame_numel() const { return channels * height * width; }
  [[nodiscard]] int64_t numel() const { return frames * frame_numel(); }
};

// How layers are computed, which changes what they keep.
struct Ways {
  bool channels_last = false;  // NHWC: tensors hold the channels of a pixel side by side
  bool own_kernels = false;    // then: convolutions 1 x 1 by model.matmul, depthwise ones by ops/depthwise.hpp
  bool fuses_norms = false;    // then: a batch norm with the activation after it by ops/batch_norm.hpp
};

// Running statistics of a batch norm, and their places in the model's description.
struct Norm {
  std::string name;
  size_t param = 0;                   // index of its weight among the unit's parameters
  std::vector<float> mean, variance;  // (channels)
  int64_t batches = 0;
  double eps = 1e-5, momentum = 0.1;
  ops::Activation activation = ops::Activation::kNone;  // computed with the norm
  uint32_t mean_buffer = 0, variance_buffer = 0, batches_buffer = 0;
};

// The operations of the model that a layer may call in one run of a unit.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;
  // A parameter of the unit, in the order in which its layers created them.
  [[nodiscard]] virtual const at::Tensor& param(size_t i) const = 0;
  // x (B, in) w^T + b, where w is parameter `weight` and b the next one.
  [[nodiscard]] virtual at::Tensor linear(const at::Tensor& x, size_t weight) = 0;
  // With parameter `weight`, and the next one as bias if it has one.
  [[nodiscard]] virtual at::Tensor convolution(const at::Tensor& x, size_t weight, bool has_bias,
                                               const ops::autograd::ConvolutionOptions& o) = 0;
  [[nodiscard]] virtual at::Tensor dropout(const at::Tensor& x, double probability) = 0;
  // Stochastic depth: whole samples of x (B, ...).
  [[nodiscard]] virtual at::Tensor drop_samples(const at::Tensor& x, double probability) = 0;
  [[nodiscard]] virtual at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                              const Norm& norm) = 0;
};
using Layer = std::function<at::Tensor(Call&, const at::Tensor&)>;

struct DDH_HIDDEN ParamSpec {
  std::string name;
  std::vector<int64_t> shape;
  ddh::ParamInit init;
  uint64_t grad_block = 0;
};

// The initial values of weights.
enum class Start {
  kTorch,      // uniform within 1 / sqrt(fan-in), biases too: torch's own
  kKaimingOut  // normal with variance 2 / fan-out (He et al. 2015), biases 0; groups do not divide torch's fan-out
};

struct ConvOptions {
  int64_t stride = 1, padding = 0, groups = 1;
  bool bias = true;
  Start start = Start::kTorch;
};

class DDH_HIDDEN Unit {
 public:
  Unit(std::string name, Shape in, Ways ways) : name_(std::move(name)), ways_(ways), shape_(in) {}
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  Unit& conv(const std::string& name, int64_t out, int64_t kernel, ConvOptions options);
  Unit& batch_norm(const std::string& name, double eps = 1e-5, double momentum = 0.1);
  // (B, in) -> (B, out). `init`: of the weight, with a bias of 0; nullopt: torch's initial values for both.
  Unit& linear(const std::string& name, int64_t out, std::optional<ddh::ParamInit> init = std::nullopt);
  Unit& relu();
  Unit& relu6();
  Unit& silu();
  Unit& hard_swish();
  Unit& max_pool(int64_t kernel, int64_t stride = 0, int64_t padding = 0);  // stride 0: as kernel
  Unit& average_pool(int64_t side);                                         // adaptive: to side x side
  Unit& flatten();
  // Long short-term memory (Hochreiter and Schmidhuber 1997) over the frames, with torch's names and order of gates
  // i, f, g, o. Returns its state after each frame, or only the last one.
  Unit& lstm(const std::string& name, int64_t hidden, bool last_alone);
  // Over the volume (B, channels, frames, height, width) of a video, which `volume` makes of its frames.
  Unit& volume();
  Unit& conv3d(const std::string& name, int64_t out, int64_t kernel);  // keeps the size
  Unit& max_pool3d();                                                  // 2 x 2 x 2, or 1 x 2 x 2 on one frame
  Unit& flatten_volume();
  Unit& dropout(double probability);
  // x + body(x), with stochastic depth of the body; with `shortcut` shortcut(x) + body(x).
  Unit& residual(double drop, const std::function<void(Unit&)>& body,
                 const std::function<void(Unit&)>& shortcut = nullptr);
  // Squeeze and excitation (Hu et al. 2018): channels are scaled by gate(fc2(act(fc1(mean over the image)))).
  enum class Gate { kSigmoid, kHardSigmoid };
  Unit& squeeze_excite(const std::string& name, int64_t squeezed, Gate gate);

  [[nodiscard]] at::Tensor run(Call& call, at::Tensor x) const;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }  // of the unit's result
  [[nodiscard]] const std::vector<ParamSpec>& params() const { return params_; }
  std::deque<Norm>& norms() { return norms_; }
  // FLOPs of convolutions and products for one sample; a multiplication and an addition count as two. The backward of
  // trained layers: two products each, but for the first of them if its input needs no gradient.
  [[nodiscard]] double flops() const;
  // A layer that model.matmul computes, for one sample.
  struct Product {
    int64_t rows = 0, in = 0, out = 0;
  };
  [[nodiscard]] Product widest_product() const;
  [[nodiscard]] double backward_flops(bool gives_input_gradient) const;
  // Bytes that autograd keeps for the backward, with the unit's result, in the allocator's blocks; `type` is the compute
  // dtype.
  [[nodiscard]] double kept_bytes(double n_samples, at::ScalarType type, at::Device device) const;
  // At the peaks of forward and backward beside kept_bytes, the gradient of the unit's result included. Branches of residual
  // connections count as layers in a row.
  struct Peaks {
    double forward = 0, backward = 0;
  };
  // Tensors like a convolution's weight that the library makes in its own layouts, beside the gradient.
  struct WeightCopies {
    int forward = 0, backward = 0;
    bool has_parts = false;  // sums of products in parts (ops::bytes_of_parts)
  };
  [[nodiscard]] Peaks peaks(double n_samples, at::ScalarType type, bool gives_input_gradient,
                            WeightCopies copies) const;

  // Its first parameters are not trained, and batch norms among them use their running statistics.
  size_t n_frozen = 0;
  [[nodiscard]] bool is_frozen() const { return n_frozen > 0 && n_frozen == params_.size(); }
  bool restarts = false;  // its input is the pixels again; the result before it waits for a join
  bool joins = false;     // its input is all waiting results and the last one, concatenated

 private:
  enum Keeps : unsigned { kNothing = 0, kInput = 1, kOutput = 2 };
  size_t param(const std::string& name, std::vector<int64_t> shape, ddh::ParamInit init);
  Unit& add(Layer layer);
  void pass(Shape out, unsigned keeps);
  // Of `numel` elements of one sample.
  struct Kept {
    int64_t numel;
    int64_t bytes = 0;       // of an element; 0: as the compute dtype
    bool is_of_all = false;  // numel is that of all samples together
    size_t n_params = 0;     // of the unit up to the layer: kept if one of them is trained
  };
  void keep(Kept kept);
  void count_flops(double flops);
  Unit& activation(ops::Activation kind, at::Tensor (*function)(const at::Tensor&), unsigned keeps);

  std::string name_;
  const Ways ways_;
  Shape shape_;
  std::vector<ParamSpec> params_;
  std::deque<Norm> norms_;  // layers point at elements
  std::vector<Layer> layers_;
  Norm* last_norm_ = nullptr;  // if it is the last layer
  struct Work {
    double flops;
    size_t n_params;  // as in Kept
  };
  std::vector<Work> work_;
  std::vector<Kept> kept_;
  struct Lstm {
    int64_t frames, in, hidden;
  };
  // A layer in the order of the forward. Elements are of one sample.
  struct Step {
    int64_t in, out;
    bool keeps_in, keeps_out;  // in kept_, before the step or by it
    bool is_norm;
    int64_t conv_weight;             // numel of its weight, if the library computes its convolution
    size_t first_kept, first_param;  // what is below is kept, or belongs, to earlier steps
    Product product{};
  };
  [[nodiscard]] double block_of(const Kept& kept, double n_samples, at::ScalarType type) const;
  std::vector<Step> steps_;
  size_t n_params_of_steps_ = 0;       // parameters of the steps so far
  std::vector<Lstm> lstms_;            // whose workspaces are kept too
  bool is_kept_ = true;                // whether the result of the layers so far is already counted as kept
  std::optional<size_t> kept_result_;  // its place in kept_
};

class DDH_HIDDEN Net {
 public:
  Net(Shape in, Ways ways) : in_(in), ways_(ways) {}
  // Adds a unit whose input is the result of the unit before.
  Unit& unit(const std::string& name) { return add(name, units_.empty() ? in_ : units_.back()->shape()); }
  // Adds a unit whose input is the pixels again. The result of the unit before waits for a join.
  Unit& tower(const std::string& name) {
    if (units_.empty()) return unit(name);
    waiting_ += units_.back()->shape().channels;
    Unit& u = add(name, in_);
    u.restarts = true;
    return u;
  }
  // Adds a unit whose input is the flat results of all towers.
  Unit& join(const std::string& name) {
    Unit& u = add(name, {waiting_ + units_.back()->shape().channels, 1, 1});
    u.joins = true;
    return u;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // That with the largest weight.
  [[nodiscard]] Unit::Product widest_product() const;

 private:
  Unit& add(const std::string& name, Shape in) { return *units_.emplace_back(std::make_unique<Unit>(name, in, ways_)); }
  const Shape in_;
  const Ways ways_;
  int64_t waiting_ = 0;  // channels
  std::vector<std::unique_ptr<Unit>> units_;
};

}  // namespace cnn
