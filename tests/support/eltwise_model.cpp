// SPDX-License-Identifier: Apache-2.0
//
// eltwise: a model whose every number can be worked out by hand. Each layer multiplies its input by a weight of the same
// shape, element by element; the loss is the sum of |output - input| over elements, the input ones.
//
//   x_0 = 1;  x_i = x_{i-1} * w_i;  loss = sum |x_n - 1|;  d loss / d w_i = sign(x_n - 1) * x_{i-1} * product of later w
//
// Each sample gives the same loss. By option a unit has no parameters, or every gradient is not finite.
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/model.hpp"

namespace {

using Vector = std::vector<float>;

Vector values_of(const ddh_param_view& view) {
  Vector out(view.numel);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = view.dtype == DDH_F32 ? static_cast<const float*>(view.data)[i]
                                   : ddh::Bf16::to_f32(static_cast<const uint16_t*>(view.data)[i]);
  }
  return out;
}

class Eltwise final : public ddh::Model {
 public:
  explicit Eltwise(const ddh_create& create) : Model(create), bad_(host.text("model.bad_gradients")), desc_("eltwise") {
    const int64_t rows = host.i64("model.rows"), columns = host.i64("model.columns"), layers = host.i64("model.layers");
    numel_ = static_cast<size_t>(rows * columns);
    std::vector<int32_t> order;
    for (int32_t l = 0; l < layers; ++l) {
      std::vector<int64_t> shape = {rows, columns};
      if (host.i64("model.zero_sized") != 0 && l == 0) shape = {0, columns};
      const std::string name = ddh::str("layers.", l, ".weight");
      order.push_back(
          desc_.add_unit(ddh::str("layer ", l), {desc_.add_param(l, name, shape, {DDH_INIT_CONSTANT, 1, 0})}));
    }
    layers_ = static_cast<int32_t>(layers);

    if (host.i64("model.empty_unit") != 0) order.push_back(desc_.add_unit("no parameters", {}));
    desc_.add_program({DDH_PROGRAM_TRAIN, "train", order, {"loss"}, 4096, "samples", {}});
  }

  const ddh_model_desc& describe() override { return desc_.get(); }

  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    info.items = args.n_samples;
    info.loss_count = args.n_samples;
    return reinterpret_cast<ddh_batch*>(std::make_unique<uint32_t>(args.n_samples).release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override {
    std::unique_ptr<uint32_t>(reinterpret_cast<uint32_t*>(batch)).reset();
  }

  void forward(const ddh_unit_call& c) override {
    Context& context = contexts_[c.micro_batch];
    if (c.position == 0) context.inputs = {Vector(numel_, 1.0F)};
    context.samples = *reinterpret_cast<const uint32_t*>(c.batch);
    if (c.unit >= layers_) return;
    const Vector w = values_of(*ddh_view_param(c.view, 0));
    Vector out = context.inputs.back();
    for (size_t i = 0; i < numel_; ++i) out[i] *= w[i];
    context.inputs.push_back(std::move(out));
    if (c.unit + 1 < layers_) return;
    context.loss = 0;
    for (const float y : context.inputs.back()) context.loss += std::fabs(static_cast<double>(y) - 1);
  }

  void backward(const ddh_unit_call& c) override {
    Context& context = contexts_[c.micro_batch];
    if (c.unit >= layers_) return;
    if (c.unit + 1 == layers_) begin_backward(context, c.seed_scale);
    const ddh_param_view& view = *ddh_view_param(c.view, 0);
    const Vector w = values_of(view);
    const Vector& input = context.inputs[static_cast<size_t>(c.unit)];
    auto* grad = static_cast<float*>(view.grad);
    for (size_t i = 0; i < numel_; ++i) {
      const float g = bad_ == "none" ? context.gradient[i] * input[i] : bad_value();
      grad[i] = view.grad_mode == DDH_GRAD_ADD ? grad[i] + g : g;
      context.gradient[i] *= w[i];
    }
  }

  void metrics(int32_t, int32_t micro_batch, double* sums, double* counts) override {
    const Context& context = contexts_.at(micro_batch);
    sums[0] = context.loss * context.samples;
    counts[0] = context.samples;
  }
  void discard(int32_t micro_batch) noexcept override { contexts_.erase(micro_batch); }

 private:
  struct Context {
    std::vector<Vector> inputs;  // of each layer; the last: the output
    Vector gradient;             // of the current layer's output
    double loss = 0;             // of one sample
    uint32_t samples = 0;
  };

  static void begin_backward(Context& context, double seed_scale) {
    context.gradient = context.inputs.back();
    for (float& g : context.gradient) {
      const float sign = g > 1 ? 1.0F : g < 1 ? -1.0F : 0.0F;
      g = sign * static_cast<float>(seed_scale * context.samples);
    }
  }
  [[nodiscard]] float bad_value() const {
    return bad_ == "nan" ? std::nanf("") : (bad_ == "inf" ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
  }

  const std::string bad_;
  size_t numel_ = 0;
  int32_t layers_ = 0;
  ddh::ModelDesc desc_;
  std::map<int32_t, Context> contexts_;  // per micro-batch
};

constexpr const char* kSchema = R"({"properties": {
  "rows": {"type": "integer", "default": 3, "minimum": 1, "description": "of a weight"},
  "columns": {"type": "integer", "default": 5, "minimum": 1, "description": "of a weight"},
  "layers": {"type": "integer", "default": 3, "minimum": 1, "description": "weights"},
  "empty_unit": {"type": "boolean", "default": false, "description": "a last unit without parameters"},
  "zero_sized": {"type": "boolean", "default": false, "description": "the first weight has no elements"},
  "bad_gradients": {"type": "string", "default": "none", "enum": ["none", "nan", "inf", "-inf"],
    "description": "what all gradients are instead"}}})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Eltwise, model, "eltwise", "0.1.0", "a model to work out by hand, for tests", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_COMPUTE_BF16);
