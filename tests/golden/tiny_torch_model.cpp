// SPDX-License-Identifier: Apache-2.0
//
// The smallest model on TorchModel, with what its base must carry: tied weights, a frozen parameter, one that gets no
// gradient, a layer whose backward reads its weight, dropout, and a second tensor, of integers, beside the first.
//   x = E[token]^2;  x = dropout(tanh(x W^T + b) * gain);  loss = sum of cross-entropy of x E^T
// Program "tuned" trains w and b alone: its first unit runs forward only, the head gives the gradient of its input alone.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include "ddh/sdk/torch/model.hpp"

namespace {

constexpr int64_t kVocab = 7, kWidth = 5;

struct Batch {
  at::Tensor tokens, targets;  // (B)
};

class DDH_HIDDEN TinyTorch final : public ddh::TorchModel {
 public:
  explicit TinyTorch(const ddh_create& create) : TorchModel(create), desc_("tiny") {
    const ddh::ModelDesc::Init normal{DDH_INIT_NORMAL, 0, 1};
    const int32_t e = desc_.add_param(0, "e", {kVocab, kWidth}, normal, 0, {"head"});
    const int32_t w = desc_.add_param(1, "w", {kWidth, kWidth}, normal), b = desc_.add_param(1, "b", {kWidth}, normal);
    const int32_t gain = desc_.add_param(1, "gain", {kWidth}, normal, DDH_PARAM_FROZEN);
    const int32_t unused = desc_.add_param(1, "unused", {3}, normal);
    const std::vector<int32_t> order = {desc_.add_unit("embed", {e}), desc_.add_unit("layer", {w, b, gain, unused}),
                                        desc_.add_unit("head", {e})};
    desc_.add_program({DDH_PROGRAM_TRAIN, "train", order, {"loss"}, 100, "samples", {}, 0, {}, "eval"});
    desc_.add_program({DDH_PROGRAM_EVAL, "eval", order, {"loss"}, 100, "samples", {}});
    desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                       .name = "tuned",
                       .units = order,
                       .metrics = {"loss"},
                       .n_samples = 100,
                       .sample_unit = "samples",
                       .trainable = {0, 1, 1, 0, 0},
                       .position_flags = {DDH_POSITION_FORWARD_ONLY, 0, DDH_POSITION_INPUT_GRAD_ONLY}});
  }
  const ddh_model_desc& describe() override { return desc_.get(); }
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    std::vector<int64_t> tokens, targets;
    for (uint32_t i = 0; i < args.n_samples; ++i) {
      tokens.push_back(args.samples[i] % kVocab);
      targets.push_back((args.samples[i] / kVocab) % kVocab);
    }
    info.items = args.n_samples;
    info.loss_count = args.n_samples;
    auto batch = std::make_unique<Batch>(Batch{at::tensor(tokens, at::kLong), at::tensor(targets, at::kLong)});
    return reinterpret_cast<ddh_batch*>(batch.release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override {
    std::unique_ptr<Batch>(reinterpret_cast<Batch*>(batch)).reset();
  }

 protected:
  ddh::Tensors run_unit(const UnitRun& run, const std::vector<at::Tensor>& p, const ddh::Tensors& x) override {
    const Batch& batch = *reinterpret_cast<const Batch*>(run.batch);
    if (run.unit == 0) {
      const at::Tensor rows = at::embedding(p[0], batch.tokens);
      return {rows.mul(rows), batch.targets};
    }
    if (run.unit == 1) {
      const at::Tensor y = at::tanh(at::linear(x[0], p[0], p[1])).mul(p[2]);
      return {dropout(run, y, host.f64("model.dropout")), x[1]};
    }
    const at::Tensor logits = at::linear(x[0], p[0]).to(at::kFloat);
    const at::Tensor loss = at::cross_entropy_loss(logits, x[1], {}, /*reduction sum*/ 2);
    report(run, 0, loss.item<double>(), static_cast<double>(batch.tokens.size(0)));
    return loss;
  }

 private:
  ddh::ModelDesc desc_;
};

constexpr const char* kSchema =
    R"({"properties": {"dropout": {"type": "number", "default": 0.0, "description": "of the layer"}}})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(TinyTorch, model, "tiny", "1.0.0", "the smallest TorchModel", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 | DDH_CAP_RECOMPUTE |
                   DDH_CAP_EMPTY_BATCH);
