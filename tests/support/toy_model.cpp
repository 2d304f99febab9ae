// SPDX-License-Identifier: Apache-2.0
//
// toy: a model in plain C++ for tests of everything but models. It has what schemes stumble over: uneven sizes, a
// one-element parameter, a frozen one, one that never gets a gradient, tied weights, fewer elements than ranks; by option
// (toy_desc.hpp) a unit that occurs twice, flags of positions, an update program, parameters of another dtype.
//
//   x = E[token];  per layer: x += gain * W2 tanh(W1 x + b1) + frozen;  logits = x E^T + bias;  loss = cross-entropy
//
// In a low precision, what a unit hands on (states forward, their gradients backward) is rounded to it; sums are fp32.
//
// It computes on the host in the order of the call's stream (ddh_stream.run), so it trains on every device whose memory
// the host reaches. What is queued has copies of the call and of the view, and shares batch and activations.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/model.hpp"
#include "ddh/sdk/stream.hpp"
#include "toy_desc.hpp"
#include "toy_extras.hpp"

namespace {

using toy::hash;
using Vector = std::vector<float>;

struct Batch {
  std::vector<int32_t> tokens, targets;  // (B); a target of kIgnored counts nowhere
  size_t n_counted = 0;                  // targets that count
};
constexpr int32_t kIgnored = -1;
using BatchPtr = std::shared_ptr<const Batch>;
BatchPtr& batch_of(ddh_batch* batch) { return *reinterpret_cast<BatchPtr*>(batch); }

// What a unit's work needs of a ddh_unit_call.
struct Call {
  explicit Call(const ddh_unit_call& c)
      : program(c.program),
        unit(c.unit),
        phase(c.phase),
        flags(c.flags),
        step(c.step),
        seed_scale(c.seed_scale),
        batch(batch_of(c.batch)) {
    for (uint32_t i = 0; i < c.view->n_params; ++i) views.push_back(*ddh_view_param(c.view, i));
  }
  [[nodiscard]] size_t rows() const { return batch->tokens.size(); }

  int32_t program, unit, phase;
  uint32_t flags;
  int64_t step;
  double seed_scale;
  BatchPtr batch;
  std::vector<ddh_param_view> views;
};

ddh::Accesses accesses_of(const Call& c) {
  ddh::Accesses out;
  for (const ddh_param_view& view : c.views) {
    out.reads(view.data, view.numel * ddh_dtype_bytes(view.dtype));
    if (view.grad == nullptr) continue;
    const uint64_t bytes = view.numel * sizeof(float);
    if (view.grad_mode == DDH_GRAD_ADD)
      out.updates(view.grad, bytes);
    else
      out.writes(view.grad, bytes);
  }
  return out;
}

// Stores or adds a complete gradient, as the view asks.
void give(const ddh_param_view& view, const Vector& gradient) {
  if (view.grad == nullptr) return;
  auto* to = static_cast<float*>(view.grad);
  for (size_t i = 0; i < gradient.size(); ++i)
    to[i] = view.grad_mode == DDH_GRAD_ADD ? to[i] + gradient[i] : gradient[i];
}
Vector values(const ddh_param_view& view) {
  Vector out(view.numel);
  const auto* low = static_cast<const uint16_t*>(view.data);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = view.dtype == DDH_F32    ? static_cast<const float*>(view.data)[i]
             : view.dtype == DDH_BF16 ? ddh::Bf16::to_f32(low[i])
                                      : ddh::F16::to_f32(low[i]);
  }
  return out;
}
void round_to(int32_t dtype, Vector& x) {
  for (float& value : x) {
    if (dtype == DDH_BF16) value = ddh::Bf16::to_f32(ddh::Bf16::from_f32(value));
    if (dtype == DDH_F16) value = ddh::F16::to_f32(ddh::F16::from_f32(value));
  }
}

class Toy final : public ddh::Model {
 public:
  explicit Toy(const ddh_create& create)
      : Model(create),
        o_(options),
        layers_(static_cast<int32_t>(o_.layers)),
        width_(o_.width),
        hidden_(o_.hidden),
        vocab_(o_.vocab),
        further_(o_.metrics, o_.derived, o_.metric_name),
        state_(std::make_unique<State>(State{Vector(width_), 0, Vector(width_), Vector(width_), 0})),
        desc_("toy") {
    ddhost::test::describe_toy(o_, {state_->mean.data(), &state_->forwards, state_->table.data()}, further_, desc_);
  }

  const ddh_model_desc& describe() override { return desc_.get(); }

  // By several threads at once: it reads nothing but what the constructor set.
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    auto batch = std::make_shared<Batch>();
    for (uint32_t i = 0; i < args.n_samples; ++i) {
      const uint64_t h = hash(static_cast<uint64_t>(args.samples[i]));
      batch->tokens.push_back(static_cast<int32_t>(h % vocab_));
      const auto target = static_cast<int32_t>((h >> 32) % 3 == 0 ? (h >> 40) % vocab_ : (h + 1) % vocab_);
      const bool ignored = o_.ignore_every > 0 && static_cast<uint64_t>(args.samples[i]) % o_.ignore_every == 0;
      batch->targets.push_back(ignored ? kIgnored : target);
      batch->n_counted += ignored ? 0 : 1;
    }
    info.items = args.n_samples;
    info.loss_count = static_cast<double>(batch->n_counted);
    return reinterpret_cast<ddh_batch*>(std::make_unique<BatchPtr>(std::move(batch)).release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override { std::unique_ptr<BatchPtr>(&batch_of(batch)).reset(); }

  void forward(const ddh_unit_call& c) override { queue(c, "forward", &Toy::run_forward); }
  void backward(const ddh_unit_call& c) override { queue(c, "backward", &Toy::run_backward); }

  void metrics(int32_t, int32_t micro_batch, double* sums, double* counts) override {
    ddh::call(host.stream->synchronize, host.h, stream_);
    const Context& context = *contexts_.at(micro_batch);
    sums[0] = context.loss_sum;
    std::copy(context.further.begin(), context.further.end(), sums + 1);
    std::fill_n(counts, 1 + further_.size(), context.count);
  }
  void derive(int32_t, const double* sums, const double* counts, double* values) override {
    further_.derive(sums, counts, values);
  }
  bool contribution(uint32_t buffer, int32_t, int32_t micro_batch, void* out) override {
    ddh::call(host.stream->synchronize, host.h, stream_);
    const Context& context = *contexts_.at(micro_batch);
    if (context.mean.empty()) return false;
    if (buffer == 0)
      std::copy(context.mean.begin(), context.mean.end(), static_cast<float*>(out));
    else
      *static_cast<int64_t*>(out) = 1;
    return true;
  }
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override {
    const ddh_program_desc& program = *desc_.get().programs[args.program];
    out = toy::estimate({layers_, width_, hidden_, vocab_}, program.units[args.position], args.n_samples);
    return true;
  }
  void discard(int32_t micro_batch) noexcept override { contexts_.erase(micro_batch); }

  [[nodiscard]] bool has_sampler() const override { return o_.samples_text; }
  void sampler_begin(const ddh_sample_args& args) override { sampler_.begin(args, vocab_); }
  ddh_batch* sampler_next() override {
    if (!sampler_.is_at_start()) {
      ddh::call(host.stream->synchronize, host.h, stream_);
      sampler_.draw(contexts_.at(0)->probabilities);
    }
    if (sampler_.next() == nullptr) return nullptr;
    const Batch batch{{*sampler_.next()}, {kIgnored}, 0};
    return reinterpret_cast<ddh_batch*>(std::make_unique<BatchPtr>(std::make_shared<Batch>(batch)).release());
  }
  const char* sampler_text() override { return sampler_.text(); }

 private:
  struct Context {
    std::vector<Vector> inputs;  // per layer, (B, C); the last: input of the head
    std::vector<Vector> hidden;  // per layer, (B, H)
    Vector probabilities;        // (B, V)
    Vector encoded;              // (B, C), until the embedding has added it
    Vector encoder_hidden;       // (B, C), for the encoder's backward, where it has one
    Vector gradient;             // of the current unit's output, (B, C)
    double loss_sum = 0, count = 0;
    std::vector<double> further;  // sums of the metrics after the loss
    Vector mean;                  // (C), what the micro-batch contributes to the running mean; empty: nothing
    toy::ActBytes bytes;
  };
  // What the model keeps from step to step.
  struct State {
    // What the head's input was like; an evaluation takes it off. Folded by the host over all ranks, or by this rank over
    // its own micro-batches.
    Vector mean;
    int64_t forwards;
    // A part of the mean state after the layers, over all samples, which the embedding adds: updates renew it.
    Vector table;
    Vector table_sum;  // of the samples of an update so far
    uint64_t table_samples;
  };
  void note_mean(const Vector& x, size_t rows, Context& context) const {
    if (rows == 0) return;
    context.mean.resize(width_);
    for (size_t k = 0; k < width_; ++k) {
      float sum = 0;
      for (size_t b = 0; b < rows; ++b) sum += x[b * width_ + k];
      context.mean[k] = 0.1F * (sum / static_cast<float>(rows));
      if (!o_.folds_mean) state_->mean[k] = 0.9F * state_->mean[k] + context.mean[k];
    }
    if (!o_.folds_mean) ++state_->forwards;
  }
  using Work = void (Toy::*)(const Call&, Context&) const;

  void queue(const ddh_unit_call& c, const char* what, Work work) {
    std::shared_ptr<Context>& context = contexts_[c.micro_batch];
    if (context == nullptr) context = std::make_shared<Context>();
    stream_ = c.stream;
    const Call call(c);
    const std::string name = ddh::str(what, " of unit ", c.unit);
    ddh::run_on_stream(*host.stream, host.h, c.stream, accesses_of(call), name.c_str(),
                       [this, work, call, shared = context] { (this->*work)(call, *shared); });
  }

  void run_forward(const Call& c, Context& context) const {
    if (c.unit == 0) {
      embed(c, context);
    } else if (c.unit <= layers_) {
      layer_forward(c, context);
      if (c.program == o_.update_program() && c.unit == layers_) renew_table(c, context.inputs.back());
    } else if (c.unit == o_.encoder_unit()) {
      encode(c, context);
    } else {
      head_forward(c, context);
    }
  }
  void run_backward(const Call& c, Context& context) const {
    if (c.unit == 0) {
      embed_backward(c, context);
    } else if (c.unit <= layers_) {
      layer_backward(c, context);
    } else if (c.unit == o_.encoder_unit()) {
      encode_backward(c, context);
    } else {
      head_backward(c, context);
    }
  }

  static size_t rows(const Call& c) { return c.rows(); }
  static const ddh_param_view& view(const Call& c, uint32_t i) { return c.views[i]; }

  void embed(const Call& c, Context& context) const {
    if (c.phase == DDH_PHASE_RECOMPUTE) return;  // it keeps nothing
    if (!o_.has_encoder()) context = {};
    const Vector embedding = values(view(c, 0)), encoded = std::exchange(context.encoded, {});
    Vector x(rows(c) * width_);
    for (size_t b = 0; b < rows(c); ++b) {
      const size_t row = static_cast<size_t>(c.batch->tokens[b]) * width_;
      for (size_t k = 0; k < width_; ++k) {
        x[b * width_ + k] = embedding[row + k] + state_->table[k];
        if (!encoded.empty()) x[b * width_ + k] += encoded[b * width_ + k];
      }
    }
    context.inputs.push_back(std::move(x));
  }

  // Frozen, from the tokens alone: no gradient goes through it.
  void encode(const Call& c, Context& context) const {
    const bool again = c.phase == DDH_PHASE_RECOMPUTE;
    if (!again) context = {};
    const Vector weight = values(view(c, 0));
    Vector out(rows(c) * width_);
    for (size_t b = 0; b < rows(c); ++b) {
      const size_t row = static_cast<size_t>(c.batch->tokens[b]) * width_;
      for (size_t k = 0; k < width_; ++k) out[b * width_ + k] = std::tanh(weight[row + k]);
    }
    const bool is_kept = c.phase != DDH_PHASE_EVAL && (c.flags & (DDH_CALL_FORWARD_ONLY | DDH_CALL_RECOMPUTED)) == 0;
    if (is_kept) context.encoder_hidden = out;
    if (!again) context.encoded = std::move(out);
  }
  void encode_backward(const Call& c, Context& context) const {
    if (context.encoder_hidden.size() != rows(c) * width_)
      ddh::fail(DDH_INTERNAL, "the toy's encoder has a backward and kept nothing for it");
    context.encoder_hidden.clear();
  }

  // In the order of the samples, so that it does not matter how they are cut into micro-batches.
  void renew_table(const Call& c, const Vector& x) const {
    for (size_t b = 0; b < rows(c); ++b) {
      for (size_t k = 0; k < width_; ++k) state_->table_sum[k] += x[b * width_ + k];
    }
    state_->table_samples += rows(c);
    if (state_->table_samples < o_.update_samples) return;
    for (size_t k = 0; k < width_; ++k)
      state_->table[k] = 0.1F * (state_->table_sum[k] / static_cast<float>(o_.update_samples));
    state_->table_sum.assign(width_, 0.0F);
    state_->table_samples = 0;
  }

  void embed_backward(const Call& c, Context& context) const {
    Vector gradient(vocab_ * width_, 0.0F);
    for (size_t b = 0; b < rows(c); ++b) {
      const auto token = static_cast<size_t>(c.batch->tokens[b]);
      for (size_t k = 0; k < width_; ++k) gradient[token * width_ + k] += context.gradient[b * width_ + k];
    }
    give(view(c, 0), gradient);
  }

  void layer_forward(const Call& c, Context& context) const {
    const Vector w1 = values(view(c, 0)), b1 = values(view(c, 1)), w2 = values(view(c, 2)), gain = values(view(c, 3)),
                 frozen = values(view(c, 4));
    const bool again = c.phase == DDH_PHASE_RECOMPUTE;
    const Vector& x = context.inputs[context.inputs.size() - (again ? 2 : 1)];
    Vector hidden(rows(c) * hidden_), out = x;
    for (size_t b = 0; b < rows(c); ++b) {
      for (size_t h = 0; h < hidden_; ++h) {
        float sum = b1[h];
        for (size_t k = 0; k < width_; ++k) sum += w1[h * width_ + k] * x[b * width_ + k];
        hidden[b * hidden_ + h] = std::tanh(sum);
      }
      for (size_t k = 0; k < width_; ++k) {
        float sum = 0;
        for (size_t h = 0; h < hidden_; ++h) sum += w2[k * hidden_ + h] * hidden[b * hidden_ + h];
        out[b * width_ + k] += gain[0] * sum + frozen[k];
      }
    }
    round_to(view(c, 0).dtype, out);
    if (again) {
      context.hidden.back() = std::move(hidden);
      return;
    }
    if ((c.flags & DDH_CALL_RECOMPUTED) != 0) hidden.clear();
    context.hidden.push_back(std::move(hidden));
    context.inputs.push_back(std::move(out));
  }

  void layer_backward(const Call& c, Context& context) const {
    const Vector w1 = values(view(c, 0)), w2 = values(view(c, 2)), gain = values(view(c, 3));
    const bool gives = (c.flags & DDH_CALL_INPUT_GRAD_ONLY) == 0;
    for (const ddh_param_view& v : c.views) {
      if (!gives && v.grad != nullptr)
        ddh::fail(DDH_INTERNAL, "a view has room for a gradient where the input's alone is asked for");
    }
    context.inputs.pop_back();  // this layer's output
    const Vector& x = context.inputs.back();
    const Vector& hidden = context.hidden.back();
    Vector g_w1(hidden_ * width_), g_b1(hidden_), g_w2(width_ * hidden_), g_gain(1), g_x = context.gradient;
    for (size_t b = 0; b < rows(c); ++b) {
      Vector g_hidden(hidden_);
      for (size_t k = 0; k < width_; ++k) {
        const float g = context.gradient[b * width_ + k];
        float sum = 0;
        for (size_t h = 0; h < hidden_; ++h) {
          sum += w2[k * hidden_ + h] * hidden[b * hidden_ + h];
          if (gives) g_w2[k * hidden_ + h] += gain[0] * g * hidden[b * hidden_ + h];
          g_hidden[h] += gain[0] * g * w2[k * hidden_ + h];
        }
        g_gain[0] += g * sum;
      }
      for (size_t h = 0; h < hidden_; ++h) {
        const float t = hidden[b * hidden_ + h], g = g_hidden[h] * (1 - t * t);
        g_b1[h] += g;
        for (size_t k = 0; k < width_; ++k) {
          if (gives) g_w1[h * width_ + k] += g * x[b * width_ + k];
          g_x[b * width_ + k] += g * w1[h * width_ + k];
        }
      }
    }
    give(view(c, 0), g_w1);
    give(view(c, 1), g_b1);
    give(view(c, 2), g_w2);
    give(view(c, 3), g_gain);
    give(view(c, 5), Vector(3, 0.0F));
    context.hidden.pop_back();
    round_to(view(c, 0).dtype, g_x);
    context.gradient = std::move(g_x);
  }

  void head_forward(const Call& c, Context& context) const {
    const Vector bias = values(view(c, 0)), embedding = values(view(c, 1));
    Vector x = context.inputs.back();
    if (o_.keeps_mean && c.phase == DDH_PHASE_FORWARD) note_mean(x, rows(c), context);
    for (size_t i = 0; o_.keeps_mean && c.phase == DDH_PHASE_EVAL && i < x.size(); ++i)
      x[i] -= state_->mean[i % width_];
    context.probabilities.assign(rows(c) * vocab_, 0.0F);
    context.further.resize(further_.size());
    for (size_t b = 0; b < rows(c); ++b) {
      float* row = &context.probabilities[b * vocab_];
      double total = 0;
      for (size_t v = 0; v < vocab_; ++v) {
        float sum = bias[v];
        for (size_t k = 0; k < width_; ++k) sum += x[b * width_ + k] * embedding[v * width_ + k];
        row[v] = std::exp(sum);
        total += row[v];
      }
      for (size_t v = 0; v < vocab_; ++v) row[v] = static_cast<float>(row[v] / total);
      const int32_t target = c.batch->targets[b];
      if (c.phase == DDH_PHASE_RECOMPUTE || target == kIgnored) continue;
      context.loss_sum -= std::log(static_cast<double>(row[target]));
      further_.add(row, vocab_, static_cast<size_t>(target), context.further);
    }
    if ((c.flags & DDH_CALL_RECOMPUTED) != 0) context.probabilities.clear();
    context.count = static_cast<double>(c.batch->n_counted);
    context.bytes = {};
    context.bytes = toy::ActBytes(host, context.inputs, context.hidden, context.probabilities);
  }

  void head_backward(const Call& c, Context& context) const {
    const Vector embedding = values(view(c, 1));
    const Vector& x = context.inputs.back();
    Vector g_bias(vocab_), g_embedding(vocab_ * width_), g_x(rows(c) * width_);
    for (size_t b = 0; b < rows(c); ++b) {
      if (c.batch->targets[b] == kIgnored) continue;
      for (size_t v = 0; v < vocab_; ++v) {
        const float hit = static_cast<size_t>(c.batch->targets[b]) == v ? 1.0F : 0.0F;
        const float g = (context.probabilities[b * vocab_ + v] - hit) * static_cast<float>(c.seed_scale);
        g_bias[v] += g;
        for (size_t k = 0; k < width_; ++k) {
          g_embedding[v * width_ + k] += g * x[b * width_ + k];
          g_x[b * width_ + k] += g * embedding[v * width_ + k];
        }
      }
    }
    if (c.step == o_.nan_at_step) g_bias[0] = std::nanf("");
    give(view(c, 0), g_bias);
    give(view(c, 1), g_embedding);
    round_to(view(c, 1).dtype, g_x);
    context.gradient = std::move(g_x);
  }

  const ddhost::test::ToyOptions o_;
  const int32_t layers_;
  const size_t width_, hidden_, vocab_;
  const toy::FurtherMetrics further_;
  const std::unique_ptr<State> state_;
  ddh::ModelDesc desc_;
  std::map<int32_t, std::shared_ptr<Context>> contexts_;  // per micro-batch
  ddh_stream* stream_ = nullptr;                          // of the last call
  toy::Sampler sampler_;
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_STREAM_IFACE, nullptr};

// Built a second time without this one, to see it refused.
#ifdef DDH_TOY_NEEDS_SAMPLES
constexpr uint64_t kEmptyBatch = 0;
#else
constexpr uint64_t kEmptyBatch = DDH_CAP_EMPTY_BATCH;
#endif
// And with these, for the options that need them: strategies that do not understand them train the plain toy.
#ifdef DDH_TOY_FEATURES
constexpr uint64_t kUses = DDH_FEATURES_ALL;
#else
constexpr uint64_t kUses = 0;
#endif

}  // namespace

DDH_CXX_PLUGIN(Toy, model, "toy", "0.1.0", "a small model for tests, without LibTorch", ddhost::test::kToySchema,
               kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_COMPUTE_BF16 | DDH_CAP_COMPUTE_F16 |
                   DDH_CAP_RECOMPUTE | kEmptyBatch,
               kUses);
