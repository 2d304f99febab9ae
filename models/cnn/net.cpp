// SPDX-License-Identifier: Apache-2.0
#include "net.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "../ops/autograd_layers.hpp"
#include "../ops/matrix.hpp"
#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/torch/activations.hpp"

namespace cnn {
namespace {

constexpr ddh::ParamInit kZero{}, kOne{DDH_INIT_CONSTANT, 1};

// Rounds down, as torch does; 0: the side is too small.
int64_t convolved(int64_t side, int64_t kernel, int64_t stride, int64_t padding) {
  return side + 2 * padding < kernel ? 0 : (side + 2 * padding - kernel) / stride + 1;
}

ddh::ParamInit uniform(double bound) { return {DDH_INIT_UNIFORM, -bound, bound}; }

struct LstmShape {
  int64_t frames, samples, in, hidden;
};

// The workspace that oneDNN keeps for the backward. Its size depends on paddings that oneDNN does not publish, so a layer
// whose input is at most as wide as its states runs once, and the size of its workspace is read. For a wider input, the
// difference is added: for each frame and sample the workspace has rows of the input's width, two of states in the compute
// dtype and four of their gradients in fp32, each padded to cache lines.
double onednn_workspace_bytes(const LstmShape& s, at::ScalarType type) {
  const at::AutoGradMode as_in_training(true);
  const at::TensorOptions options = at::dtype(type);
  const int64_t in = std::min(s.in, s.hidden), gates = 4 * s.hidden;
  const at::Tensor x = at::zeros({s.frames, s.samples, in}, options), state = at::zeros({s.samples, s.hidden}, options);
  const at::Tensor bias = at::zeros({gates}, options);
  const at::Tensor workspace = std::get<3>(at::mkldnn_rnn_layer(
      x, at::zeros({gates, in}, options), at::zeros({gates, s.hidden}, options), bias, bias, state, state,
      /*reverse=*/false, /*batch_sizes=*/{}, /*mode: LSTM*/ 2, s.hidden, /*num_layers=*/1, /*has_biases=*/true,
      /*bidirectional=*/false, /*batch_first=*/false, /*train=*/true));
  const auto row_bytes = [](int64_t numel, int64_t element_bytes) {
    const int64_t line = 64 / element_bytes, width = (numel + line - 1) / line * line;
    return (width % 256 == 0 ? width + line : width) * element_bytes;
  };
  const auto more = [&](int64_t element_bytes) {
    return row_bytes(std::max(s.in, s.hidden), element_bytes) - row_bytes(s.hidden, element_bytes);
  };
  const int64_t of_sample = 2 * more(static_cast<int64_t>(c10::elementSize(type))) + 4 * more(sizeof(float));
  return static_cast<double>(workspace.nbytes()) + static_cast<double>((s.frames + 1) * s.samples * of_sample);
}

// at::lstm takes oneDNN on the CPU, for fp32 and, on some processors, for bf16. Other ways keep the gates and two states of
// each frame.
double lstm_workspace_bytes(const LstmShape& s, at::ScalarType type, at::Device device) {
  const double gates_and_states = static_cast<double>(s.frames * s.samples * 6 * s.hidden * c10::elementSize(type));
  const bool may_be_onednn = device.is_cpu() && at::Context::hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
                             (type == at::kFloat || type == at::kBFloat16) && s.samples > 0;
  if (!may_be_onednn) return gates_and_states;
  try {
    return onednn_workspace_bytes(s, type);
  } catch (const std::exception&) {  // this processor cannot: an error of oneDNN, not of LibTorch
    return gates_and_states;
  }
}

// The parts in which the sum of the input's gradient is computed.
double parts_of(const Unit::Product& p, double n_samples, at::ScalarType type) {
  const auto rows = static_cast<int64_t>(n_samples) * p.rows;
  if (rows == 0) return 0;
  return ddh::ActivationAllocator::block_bytes(
      static_cast<double>(ops::bytes_of_parts({rows, p.in, p.out}, ops::dtype_of(type))));
}

at::Tensor run_layers(const std::vector<Layer>& layers, Call& call, at::Tensor x) {
  for (const Layer& layer : layers) x = layer(call, x);
  return x;
}

}  // namespace

Unit& Unit::conv(const std::string& name, int64_t out, int64_t kernel, ConvOptions o) {
  const int64_t in = shape_.channels / o.groups, fan_in = in * kernel * kernel;
  const Shape to{out, convolved(shape_.height, kernel, o.stride, o.padding),
                 convolved(shape_.width, kernel, o.stride, o.padding), shape_.frames};
  if (to.height < 1 || to.width < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "an image of ", shape_.height, " x ", shape_.width, " pixels is too small for '",
              name, "' of unit '", name_, "', a convolution of ", kernel, " x ", kernel,
              "; give larger images (model.image_size), or model.padding where the network has it");
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  const auto fan_out = static_cast<double>(out * kernel * kernel);
  const ddh::ParamInit weight =
      o.start == Start::kKaimingOut ? ddh::ParamInit{DDH_INIT_NORMAL, 0, std::sqrt(2 / fan_out)} : uniform(bound);
  const size_t w = param(name + ".weight", {out, in, kernel, kernel}, weight);
  if (o.bias) param(name + ".bias", {out}, o.start == Start::kTorch ? uniform(bound) : kZero);
  count_flops(2.0 * static_cast<double>(to.numel()) * static_cast<double>(fan_in));
  const bool is_pointwise = kernel == 1 && o.stride == 1 && o.padding == 0 && o.groups == 1;
  const bool is_depthwise = o.groups == shape_.channels && out == o.groups && !o.bias && kernel <= 5;
  pass(to, kInput);
  if (ways_.own_kernels && is_pointwise)
    steps_.back().product = {to.frames * to.height * to.width, in, out};
  else if (!ways_.own_kernels || !is_depthwise)
    steps_.back().conv_weight = out * fan_in;
  return add([w, o](Call& call, const at::Tensor& x) {
    return call.convolution(x, w, o.bias, {o.stride, o.padding, o.groups});
  });
}

Unit& Unit::batch_norm(const std::string& name, double eps, double momentum) {
  const int64_t channels = shape_.channels;
  const size_t w = param(name + ".weight", {channels}, kOne);
  param(name + ".bias", {channels}, kZero);
  Norm& norm = norms_.emplace_back();
  norm.name = name, norm.param = w;
  norm.mean.assign(static_cast<size_t>(channels), 0);
  norm.variance.assign(static_cast<size_t>(channels), 1);
  norm.eps = eps, norm.momentum = momentum;
  pass(shape_, kInput);
  steps_.back().is_norm = !ways_.fuses_norms;
  // Statistics of the micro-batch: for the backward, and for the running statistics, with the number of micro-batches.
  for (int i = 0; i < 4; ++i) keep({channels, sizeof(float), true});
  keep({1, sizeof(int64_t), true});
  add([w, n = &norm](Call& call, const at::Tensor& x) {
    return call.batch_norm(x, call.param(w), call.param(w + 1), *n);
  });
  last_norm_ = &norm;
  return *this;
}

Unit& Unit::linear(const std::string& name, int64_t out, std::optional<ddh::ParamInit> init) {
  const int64_t in = shape_.frame_numel();
  const ddh::ParamInit torch = uniform(1 / std::sqrt(static_cast<double>(in)));
  const size_t w = param(name + ".weight", {out, in}, init.value_or(torch));
  param(name + ".bias", {out}, init ? kZero : torch);
  count_flops(2.0 * static_cast<double>(shape_.frames * in * out));
  pass({out, 1, 1, shape_.frames}, kInput);
  steps_.back().product = {shape_.frames, in, out};
  params_[w].grad_block = ddh::grad_block_of(params_[w].shape);
  return add([w](Call& call, const at::Tensor& x) { return call.linear(x, w); });
}

Unit& Unit::relu() {
  return activation(
      ops::Activation::kRelu, [](const at::Tensor& x) { return at::relu(x); }, kOutput);
}
Unit& Unit::relu6() {
  return activation(
      ops::Activation::kRelu6, [](const at::Tensor& x) { return at::hardtanh(x, 0, 6); }, kInput);
}
Unit& Unit::silu() {
  return activation(
      ops::Activation::kSilu, [](const at::Tensor& x) { return at::silu(x); }, kInput);
}
Unit& Unit::hard_swish() {
  return activation(
      ops::Activation::kHardSwish, [](const at::Tensor& x) { return at::hardswish(x); }, kInput);
}

Unit& Unit::max_pool(int64_t kernel, int64_t stride, int64_t padding) {
  if (stride == 0) stride = kernel;
  const Shape to{shape_.channels, convolved(shape_.height, kernel, stride, padding),
                 convolved(shape_.width, kernel, stride, padding), shape_.frames};
  if (to.height < 1 || to.width < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "nothing is left of ", shape_.height, " x ", shape_.width,
              " pixels after a pool of ", kernel, " x ", kernel, " in unit '", name_,
              "'; give larger images (model.image_size)");
  pass(to, kInput);
  keep({to.numel(), sizeof(int64_t)});  // the positions of the maxima
  return add([kernel, stride, padding](Call&, const at::Tensor& x) {
    return at::max_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding});
  });
}

Unit& Unit::average_pool(int64_t side) {
  pass({shape_.channels, side, side, shape_.frames}, kInput);
  return add([side](Call&, const at::Tensor& x) { return at::adaptive_avg_pool2d(x, {side, side}); });
}

Unit& Unit::flatten() {
  const Shape flat{shape_.frame_numel(), 1, 1, shape_.frames};
  const bool copies = ways_.channels_last && shape_.channels > 1 && shape_.channels < shape_.frame_numel();
  if (copies) pass(flat, kNothing);
  shape_ = flat;
  return add([](Call&, const at::Tensor& x) { return x.flatten(1); });
}

Unit& Unit::lstm(const std::string& name, int64_t hidden, bool last_alone) {
  const int64_t frames = shape_.frames, in = shape_.frame_numel();
  const ddh::ParamInit init = uniform(1 / std::sqrt(static_cast<double>(hidden)));
  const size_t w = param(name + ".weight_ih_l0", {4 * hidden, in}, init);
  param(name + ".weight_hh_l0", {4 * hidden, hidden}, init);
  param(name + ".bias_ih_l0", {4 * hidden}, init);
  param(name + ".bias_hh_l0", {4 * hidden}, init);
  count_flops(2.0 * static_cast<double>(frames * 4 * hidden * (in + hidden)));
  keep({frames * in});  // in the order of the frames
  pass({hidden, 1, 1, last_alone ? 1 : frames}, kNothing);
  // The states of all frames, of which the result is a copy, or a view of the last one; before the first frame, and after the
  // last one, with the cells.
  keep({(last_alone ? frames - 1 : frames) * hidden});
  for (int i = 0; i < 3; ++i) keep({hidden});
  lstms_.push_back({frames, in, hidden});
  return add([=](Call& call, const at::Tensor& x) {
    const at::Tensor sequence = x.view({-1, frames, in});
    const at::Tensor start = at::zeros({1, sequence.size(0), hidden}, x.options());
    const std::vector<at::Tensor> weights = {call.param(w), call.param(w + 1), call.param(w + 2), call.param(w + 3)};
    // Without AVX-512, oneDNN rounds otherwise where no gradients are asked for.
    const bool keeps_graph = at::GradMode::is_enabled();
    const at::AutoGradMode as_in_training(true);
    const auto [states, last, cell] = at::lstm(sequence, {start, start}, weights, /*biases*/ true, /*layers*/ 1,
                                               /*dropout*/ 0, /*train*/ true, /*bidirectional*/ false,
                                               /*batch_first*/ true);
    const at::Tensor of_frames = keeps_graph ? states : states.detach();
    return last_alone ? of_frames.select(1, frames - 1) : of_frames.reshape({-1, hidden});
  });
}

Unit& Unit::volume() {
  is_kept_ = false;  // a copy
  return add([frames = shape_.frames](Call&, const at::Tensor& x) {
    return x.view({-1, frames, x.size(1), x.size(2), x.size(3)}).transpose(1, 2).contiguous();
  });
}

Unit& Unit::conv3d(const std::string& name, int64_t out, int64_t kernel) {
  const int64_t in = shape_.channels, fan_in = in * kernel * kernel * kernel, padding = kernel / 2;
  const ddh::ParamInit init = uniform(1 / std::sqrt(static_cast<double>(fan_in)));
  const size_t w = param(name + ".weight", {out, in, kernel, kernel, kernel}, init);
  param(name + ".bias", {out}, init);
  const Shape to{out, shape_.height, shape_.width, shape_.frames};
  count_flops(2.0 * static_cast<double>(to.numel()) * static_cast<double>(fan_in));
  pass(to, kInput);
  steps_.back().conv_weight = out * fan_in;
  return add([w, padding](Call& call, const at::Tensor& x) {
    return ops::autograd::convolution(x, call.param(w), call.param(w + 1), {.padding = padding});
  });
}

Unit& Unit::max_pool3d() {
  const int64_t depth = shape_.frames > 1 ? 2 : 1;
  const Shape to{shape_.channels, shape_.height / 2, shape_.width / 2, shape_.frames / depth};
  if (to.height < 1 || to.width < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "nothing is left of ", shape_.height, " x ", shape_.width, " pixels after the pool",
              " of unit '", name_, "'; give larger images (model.image_size) or fewer model.widths");
  pass(to, kInput);
  keep({to.numel(), sizeof(int64_t)});
  return add([depth](Call&, const at::Tensor& x) { return at::max_pool3d(x, {depth, 2, 2}, {depth, 2, 2}); });
}

Unit& Unit::flatten_volume() {
  shape_ = {shape_.numel(), 1, 1, 1};
  return add([](Call&, const at::Tensor& x) { return x.flatten(1); });
}

Unit& Unit::dropout(double probability) {
  if (probability == 0) return *this;
  keep({shape_.numel()});  // factors
  pass(shape_, kNothing);
  return add([probability](Call& call, const at::Tensor& x) { return call.dropout(x, probability); });
}

Unit& Unit::residual(double drop, const std::function<void(Unit&)>& body, const std::function<void(Unit&)>& shortcut) {
  const Shape in = shape_;
  std::vector<Layer> before = std::move(layers_);
  const auto branch = [&](const std::function<void(Unit&)>& make) {
    layers_.clear();
    last_norm_ = nullptr;
    shape_ = in;
    if (make) make(*this);
    return std::move(layers_);
  };
  std::vector<Layer> inner = branch(body);
  const Shape out = shape_;
  is_kept_ = true, kept_result_.reset();  // the body begins with a layer that keeps its input
  std::vector<Layer> outer = branch(shortcut);
  if (shape_.numel() != out.numel())
    ddh::fail(DDH_INTERNAL, "unit '", name_, "': the two branches of a residual connection have different shapes");
  layers_ = std::move(before);
  is_kept_ = false;
  return add([drop, inner = std::move(inner), outer = std::move(outer)](Call& call, const at::Tensor& x) {
    const at::Tensor y = call.drop_samples(run_layers(inner, call, x), drop);
    return y.add(run_layers(outer, call, x));
  });
}

Unit& Unit::squeeze_excite(const std::string& name, int64_t squeezed, Gate gate) {
  const int64_t channels = shape_.channels;
  const Start start = Start::kKaimingOut;
  const bool hard = gate == Gate::kHardSigmoid;
  const Shape in = shape_;
  std::vector<Layer> before = std::move(layers_);
  layers_.clear();
  last_norm_ = nullptr;
  average_pool(1).conv(name + ".fc1", squeezed, 1, {.start = start});
  hard ? relu() : silu();
  conv(name + ".fc2", channels, 1, {.start = start});
  std::vector<Layer> inner = std::move(layers_);
  layers_ = std::move(before);
  shape_ = in;
  is_kept_ = true;  // the product keeps its factors
  keep({channels * shape_.frames});
  if (hard) keep({channels * shape_.frames});  // the input of the gate, whose result the other keeps
  pass(in, kNothing);
  return add([hard, inner = std::move(inner)](Call& call, const at::Tensor& x) {
    const at::Tensor scale = run_layers(inner, call, x);
    return x.mul(hard ? at::hardsigmoid(scale) : at::sigmoid(scale));
  });
}

at::Tensor Unit::run(Call& call, at::Tensor x) const { return run_layers(layers_, call, std::move(x)); }

size_t Unit::param(const std::string& name, std::vector<int64_t> shape, ddh::ParamInit init) {
  params_.push_back({name, std::move(shape), init, 0});
  return params_.size() - 1;
}

Unit& Unit::add(Layer layer) {
  layers_.push_back(std::move(layer));
  last_norm_ = nullptr;
  return *this;
}

// Counts the layer that computes `out` from the current result. A tensor that two layers keep is counted once.
void Unit::pass(Shape out, unsigned keeps) {
  const size_t first_param = steps_.empty() ? 0 : n_params_of_steps_;
  steps_.push_back({shape_.numel(), out.numel(), is_kept_ || (keeps & kInput) != 0, (keeps & kOutput) != 0, false, 0,
                    kept_.size(), first_param});
  n_params_of_steps_ = params_.size();
  if ((keeps & kInput) != 0) {
    if (!is_kept_) {
      keep({shape_.numel()});
    } else if (kept_result_) {
      kept_[*kept_result_].n_params = params_.size();  // this layer keeps it too
    }
  }
  shape_ = out;
  is_kept_ = (keeps & kOutput) != 0;
  kept_result_.reset();
  if (!is_kept_) return;
  kept_result_ = kept_.size();
  keep({shape_.numel()});
}

void Unit::keep(Kept kept) {
  kept.n_params = params_.size();
  kept_.push_back(kept);
}

double Unit::block_of(const Kept& k, double n_samples, at::ScalarType type) const {
  const double numel = static_cast<double>(k.numel) * (k.is_of_all ? 1 : n_samples);
  const auto element_bytes = static_cast<double>(k.bytes > 0 ? k.bytes : static_cast<int64_t>(c10::elementSize(type)));
  return ddh::ActivationAllocator::block_bytes(numel * element_bytes);
}

double Unit::kept_bytes(double n_samples, at::ScalarType type, at::Device device) const {
  const auto blocks = [&](const Kept& k) { return block_of(k, n_samples, type); };
  double bytes = is_kept_ ? 0 : blocks({shape_.numel()});
  for (const Kept& k : kept_) {
    if (n_frozen == 0 || k.n_params > n_frozen) bytes += blocks(k);
  }
  for (const Lstm& l : lstms_)
    bytes += ddh::ActivationAllocator::block_bytes(
        lstm_workspace_bytes({l.frames, static_cast<int64_t>(n_samples), l.in, l.hidden}, type, device));
  return bytes;
}

// Backward goes from the last step to the first: it has the gradients of the step's result and of its input, and what this step
// and earlier ones keep. A batch norm has another tensor like its input. The unit's result and its gradient stay. Gradients of
// weights are in the compute dtype: in fp32 they are added to the view's at once, in 16 bits they stay to the end, and are then
// converted. Those with a grad_block are computed and converted block by block; asked for later, input and gradient of their
// layer stay to the end.
Unit::Peaks Unit::peaks(double n_samples, at::ScalarType type, bool gives_input_gradient, WeightCopies copies) const {
  const auto block = [&](int64_t numel) { return block_of({numel}, n_samples, type); };
  // Of all gradients together, of the largest one in fp32, and of a block.
  struct OfParams {
    double bytes = 0, largest = 0, block = 0;
  };
  const auto gradients_of_params = [&](size_t first, size_t end) {
    OfParams out;
    const auto bytes_of = [&](int64_t numel, int64_t width) {
      return block_of({numel, width, /*is_of_all=*/true}, n_samples, type);
    };
    for (size_t p = std::max(first, n_frozen); p < end; ++p) {
      int64_t numel = 1;
      for (const int64_t side : params_[p].shape) numel *= side;
      if (const auto rows = static_cast<int64_t>(params_[p].grad_block); rows > 0) {
        const double wide = type == at::kFloat ? 0 : bytes_of(rows, sizeof(float));
        out.block = std::max(out.block, bytes_of(rows, 0) + wide);
        continue;
      }
      out.bytes += bytes_of(numel, 0);
      out.largest = std::max(out.largest, bytes_of(numel, sizeof(float)));
    }
    return out;
  };
  const double of_result = block(shape_.numel());
  double kept = 0;
  std::vector<double> kept_to;  // by the end of each step
  for (size_t s = 0, k = 0; s < steps_.size(); ++s) {
    const size_t end = s + 1 < steps_.size() ? steps_[s + 1].first_kept : kept_.size();
    for (; k < end; ++k)
      kept += n_frozen == 0 || kept_[k].n_params > n_frozen ? block_of(kept_[k], n_samples, type) : 0;
    kept_to.push_back(kept);
  }
  const bool keeps_result = is_kept_ && !steps_.empty() && steps_.back().keeps_out;
  const double whole = kept + (is_kept_ ? 0 : of_result);
  Peaks most;
  double of_weights = 0, later = 0;
  for (size_t s = steps_.size(); s-- > 0;) {
    const Step& step = steps_[s];
    const bool is_last = s + 1 == steps_.size();
    const double of_copy =
        step.conv_weight == 0 ? 0 : block_of({step.conv_weight, 0, /*is_of_all=*/true}, n_samples, type);
    const double forward = kept_to[s] + (step.keeps_in ? 0 : block(step.in)) + (step.keeps_out ? 0 : block(step.out)) +
                           copies.forward * of_copy;
    most.forward = std::max(most.forward, forward - whole);
    const size_t end = is_last ? params_.size() : steps_[s + 1].first_param;
    const OfParams own = gradients_of_params(step.first_param, end);
    of_weights = type == at::kFloat ? own.bytes : of_weights + own.bytes;
    const bool gives = s > 0 || gives_input_gradient;
    const double gradients =
        (is_last ? 0 : block(step.out)) + ((gives ? 1 : 0) + (step.is_norm ? 1 : 0)) * block(step.in);
    const double result = (is_last && keeps_result ? 0 : of_result) + of_result;  // and its gradient
    const double parts = copies.has_parts && gives ? parts_of(step.product, n_samples, type) : 0;
    most.backward = std::max(most.backward, kept_to[s] + result + gradients + of_weights + own.block + later +
                                                copies.backward * of_copy + parts - whole);
    if (own.block > 0) later += block(step.in) + block(step.out);
  }
  if (type != at::kFloat)
    most.backward =
        std::max(most.backward, of_result + of_weights + gradients_of_params(0, params_.size()).largest +
                                    (gives_input_gradient && !steps_.empty() ? block(steps_[0].in) : 0) - whole);
  return most;
}

Unit::Product Unit::widest_product() const {
  Product widest;
  for (const Step& step : steps_) {
    if (step.product.in * step.product.out > widest.in * widest.out) widest = step.product;
  }
  return widest;
}

Unit::Product Net::widest_product() const {
  Unit::Product widest{1, 1, 1};
  for (const auto& unit : units_) {
    const Unit::Product of_unit = unit->widest_product();
    if (of_unit.in * of_unit.out > widest.in * widest.out) widest = of_unit;
  }
  return widest;
}

void Unit::count_flops(double flops) { work_.push_back({flops, params_.size()}); }

double Unit::flops() const {
  double sum = 0;
  for (const Work& w : work_) sum += w.flops;
  return sum;
}

double Unit::backward_flops(bool gives_input_gradient) const {
  double sum = 0;
  bool gives = gives_input_gradient && n_frozen == 0;
  for (const Work& w : work_) {
    if (w.n_params <= n_frozen) continue;
    sum += gives ? 2 * w.flops : w.flops;
    gives = true;
  }
  return sum;
}

Unit& Unit::activation(ops::Activation kind, at::Tensor (*function)(const at::Tensor&), unsigned keeps) {
  if (ways_.fuses_norms && last_norm_ != nullptr) {
    std::exchange(last_norm_, nullptr)->activation = kind;
    return *this;
  }
  pass(shape_, keeps);
  return add([function](Call&, const at::Tensor& x) { return function(x); });
}

}  // namespace cnn
