// SPDX-License-Identifier: Apache-2.0
//
// linear_model: linear regression, the smallest model that learns. It needs no LibTorch.
//
//   y = x W + b;  loss = |y - t|^2;  dW = x^T g, db = g with g = 2 (y - t)
//
// One unit holds W (inputs, outputs) and b (outputs). A sample is a random x and t = x V + c, with V and c fixed by the seed,
// so that the loss falls to 0. Everything is fp32.
//
// It computes on the host in the order of the call's stream, so it also trains on a device with its own memory, if the host
// reaches that: --device sim. On the CPU a stream runs at once.
#include <map>
#include <memory>
#include <vector>

#include "ddh/sdk/batch_view.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/model.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/stream.hpp"

namespace {

using Floats = std::vector<float>;

struct Batch {
  size_t n = 0;
  Floats x, t;  // (n, inputs), (n, outputs)
};

using SharedBatch = std::shared_ptr<const Batch>;

class LinearModel final : public ddh::Model {
 public:
  explicit LinearModel(const ddh_create& create)
      : Model(create),
        inputs_(static_cast<size_t>(host.i64("model.inputs"))),
        outputs_(static_cast<size_t>(host.i64("model.outputs"))),
        data_(static_cast<uint64_t>(host.i64("run.seed")), "linear_model data"),
        desc_("linear") {
    const auto rows = static_cast<int64_t>(inputs_), columns = static_cast<int64_t>(outputs_);
    const int32_t weight = desc_.add_param(0, "weight", {rows, columns}, {DDH_INIT_NORMAL, 0, 0.02});
    const int32_t bias = desc_.add_param(0, "bias", {columns}, {DDH_INIT_ZERO}, DDH_PARAM_NO_DECAY);
    const int32_t layer = desc_.add_unit("layer", {weight, bias});
    desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                       .name = "train",
                       .units = {layer},
                       .metrics = {"loss"},
                       .n_samples = 1 << 16,
                       .sample_unit = "samples"});
  }

  const ddh_model_desc& describe() override { return desc_.get(); }

  // Any thread may call it: it reads only constant data.
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    Batch batch{args.n_samples, Floats(args.n_samples * inputs_), Floats(args.n_samples * outputs_)};
    for (size_t s = 0; s < batch.n; ++s) fill(static_cast<uint64_t>(args.samples[s]), s, batch);
    info.items = args.n_samples;
    info.loss_count = args.n_samples;
    return reinterpret_cast<ddh_batch*>(
        std::make_unique<SharedBatch>(std::make_shared<Batch>(std::move(batch))).release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override { delete reinterpret_cast<SharedBatch*>(batch); }

  // Work that is queued owns what it needs: its copy of the views, and a share of the batch and of what is kept.
  void forward(const ddh_unit_call& c) override {
    const Use use(c);
    const SharedBatch batch = *reinterpret_cast<const SharedBatch*>(c.batch);
    const auto kept = std::make_shared<Kept>();
    kept_[c.micro_batch] = kept;
    const auto reads =
        ddh::Accesses().reads(use.weight.data, bytes(weight_numel())).reads(use.bias.data, bytes(outputs_));
    ddh::run_on_stream(*host.stream, host.h, c.stream, reads, "forward", [=, this] { compute(use, *batch, *kept); });
  }

  void backward(const ddh_unit_call& c) override {
    const Use use(c);
    const SharedBatch batch = *reinterpret_cast<const SharedBatch*>(c.batch);
    const auto kept = kept_.at(c.micro_batch);
    ddh::Accesses writes;
    if (use.weight.grad != nullptr) writes.updates(use.weight.grad, bytes(weight_numel()));
    if (use.bias.grad != nullptr) writes.updates(use.bias.grad, bytes(outputs_));
    const auto scale = static_cast<float>(c.seed_scale);
    ddh::run_on_stream(*host.stream, host.h, c.stream, writes, "backward",
                       [=, this] { differentiate(use, *batch, *kept, scale); });
  }

  // The host has waited for the forward.
  void metrics(int32_t, int32_t micro_batch, double* sums, double* counts) override {
    const Kept& kept = *kept_.at(micro_batch);
    sums[0] = kept.loss;
    counts[0] = static_cast<double>(kept.samples);
  }
  void discard(int32_t micro_batch) noexcept override { kept_.erase(micro_batch); }

  // For `ddhost data peek`.
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
    const Batch& of = **reinterpret_cast<const SharedBatch*>(batch);
    parts.values("x", {inputs_, 1, 1, 1}, of.x.data() + sample * inputs_);
    parts.values("t", {outputs_, 1, 1, 1}, of.t.data() + sample * outputs_);
  }
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<LinearModel>() : Model::interface(id);
  }

 private:
  struct Use {  // of the unit: its parameters and where their gradients go
    explicit Use(const ddh_unit_call& c) : weight(*ddh_view_param(c.view, 0)), bias(*ddh_view_param(c.view, 1)) {}
    ddh_param_view weight, bias;
  };
  struct Kept {    // kept from forward to discard
    Floats error;  // (n, outputs): y - t
    double loss = 0;
    size_t samples = 0;
  };

  [[nodiscard]] size_t weight_numel() const { return inputs_ * outputs_; }
  static uint64_t bytes(size_t numel) { return numel * sizeof(float); }

  void compute(const Use& use, const Batch& batch, Kept& kept) const {
    const auto* w = static_cast<const float*>(use.weight.data);
    const auto* b = static_cast<const float*>(use.bias.data);
    kept = {Floats(batch.n * outputs_), 0, batch.n};
    for (size_t s = 0; s < batch.n; ++s) {
      for (size_t o = 0; o < outputs_; ++o) {
        float y = b[o];
        for (size_t i = 0; i < inputs_; ++i) y += batch.x[s * inputs_ + i] * w[i * outputs_ + o];
        const float error = y - batch.t[s * outputs_ + o];
        kept.error[s * outputs_ + o] = error;
        kept.loss += static_cast<double>(error) * static_cast<double>(error);
      }
    }
  }

  // The view says whether to write the gradient of this use or to add it. Gradients are scaled by seed_scale.
  void differentiate(const Use& use, const Batch& batch, const Kept& kept, float scale) const {
    Floats dw(inputs_ * outputs_), db(outputs_);
    for (size_t s = 0; s < batch.n; ++s) {
      for (size_t o = 0; o < outputs_; ++o) {
        const float g = 2 * scale * kept.error[s * outputs_ + o];
        db[o] += g;
        for (size_t i = 0; i < inputs_; ++i) dw[i * outputs_ + o] += batch.x[s * inputs_ + i] * g;
      }
    }
    give(use.weight, dw);
    give(use.bias, db);
  }

  static void give(const ddh_param_view& view, const Floats& gradient) {
    auto* out = static_cast<float*>(view.grad);
    if (out == nullptr) return;  // not trained
    for (size_t i = 0; i < gradient.size(); ++i)
      out[i] = view.grad_mode == DDH_GRAD_ADD ? out[i] + gradient[i] : gradient[i];
  }

  // Numbers depend on run.seed and the sample's index, so every rank generates the same ones.
  void fill(uint64_t sample, size_t place, Batch& batch) const {
    float* const x = batch.x.data() + place * inputs_;
    float* const t = batch.t.data() + place * outputs_;
    const uint64_t first = (sample + 1) * inputs_ * (outputs_ + 1);  // after the numbers of V and c
    for (size_t i = 0; i < inputs_; ++i) x[i] = number(first + i);
    for (size_t o = 0; o < outputs_; ++o) {
      t[o] = number(inputs_ * outputs_ + o);
      for (size_t i = 0; i < inputs_; ++i) t[o] += x[i] * number(i * outputs_ + o);
    }
  }
  [[nodiscard]] float number(uint64_t counter) const { return static_cast<float>(2 * data_.uniform(counter) - 1); }

  const size_t inputs_, outputs_;
  const ddh::CounterRng data_;
  ddh::ModelDesc desc_;
  std::map<int32_t, std::shared_ptr<Kept>> kept_;  // per micro-batch
};

constexpr ddh::Option kOptions[] = {
    {"inputs", "integer", "16", R"("minimum": 1, "maximum": 65536)", "numbers in a sample"},
    {"outputs", "integer", "4", R"("minimum": 1, "maximum": 65536)", "numbers to predict"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_STREAM_IFACE, nullptr};
constexpr const char* kApis[] = {"host", nullptr};

}  // namespace

DDH_CXX_PLUGIN(LinearModel, model, "linear", "1.0.0", "linear regression, as an example", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED, .native_apis = kApis);
