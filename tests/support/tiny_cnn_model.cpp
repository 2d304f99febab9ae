// SPDX-License-Identifier: Apache-2.0
//
// tiny_cnn: a small convolutional network on LibTorch's autograd, for tests: its gradients come from kernels of LibTorch,
// and its parameters have four dimensions. Images are made up: 8 x 8 pixels of noise around one of three stripe patterns.
//
//   two blocks of conv 3x3, batch norm, relu, max pool 2;  mean over what is left;  linear;  sum of cross-entropy
//
// The running statistics of the batch norms are folded buffers.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>

#include "ddh/sdk/torch/model.hpp"

namespace {

constexpr int64_t kSide = 8, kClasses = 3;
constexpr std::array<int64_t, 3> kChannels = {1, 4, 6};

struct Batch {
  at::Tensor images, targets;  // (B, 1, kSide, kSide), (B)
};

uint64_t hash(uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

class DDH_HIDDEN TinyCnn final : public ddh::TorchModel {
 public:
  explicit TinyCnn(const ddh_create& create)
      : TorchModel(create, ddh::Host(create.host).flag("model.all_threads") ? ddh::TorchThreads::kAll
                                                                            : ddh::TorchThreads::kOne),
        desc_("tiny_cnn") {
    const ddh::ModelDesc::Init normal{DDH_INIT_NORMAL, 0, 0.3}, one{DDH_INIT_CONSTANT, 1, 0}, zero{DDH_INIT_ZERO, 0, 0};
    std::vector<int32_t> order;
    for (int32_t u = 0; u < kBlocks; ++u) {
      const auto in = kChannels[static_cast<size_t>(u)], out = kChannels[static_cast<size_t>(u) + 1];
      const std::string prefix = ddh::str("blocks.", u, ".");
      order.push_back(desc_.add_unit(ddh::str("block ", u),
                                     {desc_.add_param(u, prefix + "conv.weight", {out, in, 3, 3}, normal),
                                      desc_.add_param(u, prefix + "norm.weight", {out}, one, DDH_PARAM_NO_DECAY),
                                      desc_.add_param(u, prefix + "norm.bias", {out}, zero, DDH_PARAM_NO_DECAY)}));
      Statistics& s = statistics_[static_cast<size_t>(u)];
      s.mean.assign(static_cast<size_t>(out), 0), s.variance.assign(static_cast<size_t>(out), 1);
      const auto add = [&](const char* name, std::vector<int64_t> shape, int32_t dtype, void* data, double decay) {
        return desc_.add_buffer(prefix + "norm." + name, std::move(shape), dtype, data, DDH_SYNC_FOLD, decay);
      };
      s.buffers = {add("running_mean", {out}, DDH_F32, s.mean.data(), 1 - kMomentum),
                   add("running_var", {out}, DDH_F32, s.variance.data(), 1 - kMomentum),
                   static_cast<int64_t>(add("num_batches_tracked", {}, DDH_I64, &s.batches, 1))};
    }
    order.push_back(desc_.add_unit("head", {desc_.add_param(kBlocks, "head.weight", {kClasses, kChannels[2]}, normal),
                                            desc_.add_param(kBlocks, "head.bias", {kClasses}, zero)}));
    desc_.add_program({DDH_PROGRAM_TRAIN, "train", order, {"loss"}, 4096, "samples", {}, 0, {}, "eval"});
    desc_.add_program({DDH_PROGRAM_EVAL, "eval", order, {"loss"}, 4096, "samples", {}});
  }
  const ddh_model_desc& describe() override { return desc_.get(); }

  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    const auto n = static_cast<int64_t>(args.n_samples);
    auto batch = std::make_unique<Batch>();
    batch->images = at::empty({n, 1, kSide, kSide});
    auto* pixel = batch->images.mutable_data_ptr<float>();
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t seed = hash(static_cast<uint64_t>(args.samples[i]));
      const auto target = static_cast<int64_t>(seed % kClasses);
      for (int64_t at = 0; at < kSide * kSide; ++at) {
        const int64_t row = at / kSide, column = at % kSide;
        const int64_t stripe = target == 0 ? row : target == 1 ? column : row + column;
        const float noise = static_cast<float>(hash(seed + static_cast<uint64_t>(at)) >> 40) * 0x1p-24F;
        *pixel++ = (stripe % 4 < 2 ? 0.5F : -0.5F) + noise - 0.5F;
      }
      targets.push_back(target);
    }
    batch->targets = at::tensor(targets, at::kLong);
    info.items = args.n_samples;
    info.loss_count = args.n_samples;
    return reinterpret_cast<ddh_batch*>(batch.release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override {
    std::unique_ptr<Batch>(reinterpret_cast<Batch*>(batch)).reset();
  }

 protected:
  ddh::Tensors run_unit(const UnitRun& run, const std::vector<at::Tensor>& p, const ddh::Tensors& x) override {
    const Batch& batch = *reinterpret_cast<const Batch*>(run.batch);
    if (run.unit < kBlocks) {
      const at::Tensor images = run.unit == 0 ? batch.images.to(p[0].scalar_type()) : x[0];
      const at::Tensor convolved = at::conv2d(images, p[0], {}, /*stride=*/1, /*padding=*/1);
      const Statistics& s = statistics_[static_cast<size_t>(run.unit)];
      return at::max_pool2d(at::relu(batch_norm(run, convolved, p[1], p[2], s.buffers, kMomentum)), 2);
    }
    const at::Tensor logits = at::linear(x[0].mean({2, 3}), p[0], p[1]).to(at::kFloat);
    const at::Tensor loss = at::cross_entropy_loss(logits, batch.targets, {}, /*reduction sum*/ 2);
    report(run, 0, loss.item<double>(), static_cast<double>(batch.targets.size(0)));
    return loss;
  }

 private:
  static constexpr int32_t kBlocks = 2;
  static constexpr double kMomentum = 0.1;
  struct Statistics {
    std::vector<float> mean, variance;
    int64_t batches = 0;
    BatchNormBuffers buffers;
  };
  std::array<Statistics, kBlocks> statistics_;
  ddh::ModelDesc desc_;
};

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"all_threads": {"type": "boolean", "default": false,
  "description": "all threads of a rank; the bits depend on their number then", "x-affects": "numerics"}}})";
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(TinyCnn, model, "tiny_cnn", "0.1.0", "a small convolutional network, for tests", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 | DDH_CAP_RECOMPUTE);
