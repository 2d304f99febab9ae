// SPDX-License-Identifier: Apache-2.0
//
// tests/support/toy_desc.hpp: what the toy model says of itself, and the options that this goes by.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/sdk/model.hpp"
#include "toy_extras.hpp"

namespace ddhost::test {

struct ToyOptions {
  explicit ToyOptions(const ddh::SectionOptions& given)
      : layers(given.i64("layers")),
        width(static_cast<size_t>(given.i64("width"))),
        hidden(static_cast<size_t>(given.i64("hidden"))),
        vocab(static_cast<size_t>(given.i64("vocab"))),
        repeat(static_cast<size_t>(given.i64("repeat"))),
        programs(given.i64("programs")),
        optimizers(given.i64("optimizers")),
        samples(static_cast<uint64_t>(given.i64("samples"))),
        eval_samples(static_cast<uint64_t>(given.i64("eval_samples"))),
        update_samples(static_cast<uint64_t>(given.i64("update_samples"))),
        ignore_every(static_cast<uint64_t>(given.i64("ignore_every"))),
        nan_at_step(given.i64("nan_at_step")),
        frozen_layer(given.i64("frozen_layer")),
        deviation(given.f64("deviation")),
        lr_scale(given.f64("lr_scale")),
        metrics(static_cast<size_t>(given.i64("metrics"))),
        evals(given.i64("evals")),
        keeps_mean(given.flag("buffers")),
        folds_mean(given.text("buffer_sync") == "fold"),
        derived(given.flag("derived")),
        samples_text(given.flag("sampler")),
        input_grad_only(given.flag("input_grad_only")),
        fp32_params(given.flag("fp32_params")),
        metric_name(given.text("metric_name")),
        eval_name(given.text("eval_name")),
        encoder(given.text("encoder")),
        stored(given.text("stored")) {}

  [[nodiscard]] bool has_encoder() const { return encoder != "none"; }
  // Indices of units and programs; -1: there is none.
  [[nodiscard]] int32_t encoder_unit() const { return has_encoder() ? static_cast<int32_t>(layers) + 2 : -1; }
  [[nodiscard]] int32_t update_program() const {
    return update_samples > 0 ? static_cast<int32_t>(programs + evals) : -1;
  }

  int64_t layers;
  size_t width, hidden, vocab, repeat;
  int64_t programs, optimizers;
  uint64_t samples, eval_samples, update_samples;  // 0: no update; eval: as many as samples
  uint64_t ignore_every;                           // 0: every target counts
  int64_t nan_at_step, frozen_layer;
  double deviation, lr_scale;
  size_t metrics;  // beside the loss
  int64_t evals;   // eval programs
  bool keeps_mean, folds_mean, derived, samples_text, input_grad_only, fp32_params;
  std::string metric_name, eval_name, encoder, stored;
};

// Memory of the buffers.
struct ToyState {
  float* mean;
  int64_t* forwards;
  float* table;
};

namespace toy {

using Init = ddh::ModelDesc::Init;

inline int32_t stored_dtype(const ToyOptions& o) {
  return o.stored == "bf16" ? DDH_BF16 : o.stored == "fp16" ? DDH_F16 : DDH_F32;
}

// A layer's unit: what it owns, in the order of its view.
inline int32_t add_layer(const ToyOptions& o, int32_t layer, Init normal, ddh::ModelDesc& desc) {
  const auto C = static_cast<int64_t>(o.width), H = static_cast<int64_t>(o.hidden);
  const Init one{DDH_INIT_CONSTANT, 1, 0}, zero{DDH_INIT_ZERO, 0, 0};
  const uint32_t frozen = layer == o.frozen_layer ? DDH_PARAM_FROZEN : 0;
  const int32_t fp32 = o.fp32_params ? DDH_F32 : 0, unit = layer + 1;
  const std::string prefix = ddh::str("layers.", layer, ".");
  return desc.add_unit(
      ddh::str("layer ", layer),
      {desc.add_param(unit, prefix + "w1", {H, C}, normal, frozen, {}, {o.lr_scale, 0, stored_dtype(o)}),
       desc.add_param(unit, prefix + "b1", {H}, zero, DDH_PARAM_NO_DECAY | frozen, {}, {0, fp32, DDH_F32}),
       desc.add_param(unit, prefix + "w2", {C, H}, normal, frozen, {}, {0, 0, stored_dtype(o)}),
       desc.add_param(unit, prefix + "gain", {1}, one, DDH_PARAM_NO_DECAY | frozen, {},
                      {o.lr_scale / 4, fp32, DDH_F32}),
       desc.add_param(unit, prefix + "frozen", {C}, {DDH_INIT_UNIFORM, -0.1, 0.1}, DDH_PARAM_FROZEN, {},
                      {0, fp32, DDH_F32}),
       desc.add_param(unit, prefix + "unused", {3}, one, frozen)});
}

inline std::vector<uint32_t> flags_of(const ToyOptions& o, const std::vector<int32_t>& order) {
  std::vector<uint32_t> flags(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    if (o.encoder == "forward_only" && order[i] == o.encoder_unit()) flags[i] = DDH_POSITION_FORWARD_ONLY;
    if (o.input_grad_only && order[i] == o.frozen_layer + 1) flags[i] = DDH_POSITION_INPUT_GRAD_ONLY;
  }
  const bool is_plain = std::all_of(flags.begin(), flags.end(), [](uint32_t f) { return f == 0; });
  return is_plain ? std::vector<uint32_t>() : flags;
}

// The layers from the last to the first, of which only the gains are trained; embedding and bias as well.
inline void add_second_program(const ToyOptions& o, std::vector<int32_t> order, const ::toy::FurtherMetrics& metrics,
                               ddh::ModelDesc& desc) {
  std::reverse(order.begin() + (o.has_encoder() ? 2 : 1), order.end() - 1);
  const ddh_model_desc& described = desc.get();
  std::vector<uint8_t> trained(described.n_params, 0);
  for (uint32_t p = 0; p < described.n_params; ++p) {
    const std::string_view name = described.params[p]->name;
    trained[p] = name == "embedding" || name == "bias" || name.ends_with(".gain") ? 1 : 0;
  }
  const std::vector<uint32_t> flags = flags_of(o, order);
  desc.add_program({DDH_PROGRAM_TRAIN, "second", std::move(order), metrics.names(), o.samples / 2, "samples",
                    std::move(trained), static_cast<int32_t>(o.optimizers) - 1, flags,
                    o.evals > 1 ? "second eval" : "eval", metrics.reported()});
}

inline void add_programs(const ToyOptions& o, std::vector<int32_t> order, const ::toy::FurtherMetrics& metrics,
                         ddh::ModelDesc& desc) {
  const auto add_eval = [&](const char* name, uint64_t samples) {
    desc.add_program({.kind = DDH_PROGRAM_EVAL,
                      .name = name,
                      .units = order,
                      .metrics = metrics.names(),
                      .n_samples = samples,
                      .sample_unit = "samples",
                      .reported = metrics.reported()});
  };
  desc.add_program({.kind = DDH_PROGRAM_TRAIN,
                    .name = "train",
                    .units = order,
                    .metrics = metrics.names(),
                    .n_samples = o.samples,
                    .sample_unit = "samples",
                    .position_flags = flags_of(o, order),
                    .eval_program = o.eval_name,
                    .reported = metrics.reported()});
  if (o.programs > 1) add_second_program(o, order, metrics, desc);
  add_eval("eval", o.eval_samples > 0 ? o.eval_samples : o.samples);
  if (o.evals > 1) add_eval("second eval", o.samples / 2);
  if (o.update_samples == 0) return;
  order.pop_back();  // the head
  desc.add_program({DDH_PROGRAM_UPDATE, "renew", order, {}, o.update_samples, "samples"});
}

}  // namespace toy

inline void describe_toy(const ToyOptions& o, const ToyState& state, const ::toy::FurtherMetrics& metrics,
                         ddh::ModelDesc& desc) {
  const auto V = static_cast<int64_t>(o.vocab), C = static_cast<int64_t>(o.width);
  const auto layers = static_cast<int32_t>(o.layers);
  const toy::Init normal{DDH_INIT_NORMAL, 0, o.deviation}, zero{DDH_INIT_ZERO, 0, 0};
  const int32_t embedding = desc.add_param(0, "embedding", {V, C}, normal, 0, {"head.weight"});
  std::vector<int32_t> order = {desc.add_unit("embed", {embedding})};
  for (int32_t l = 0; l < layers; ++l) order.push_back(toy::add_layer(o, l, normal, desc));
  order.insert(order.begin() + 1, o.repeat, 1);
  const int32_t bias =
      desc.add_param(layers + 1, "bias", {V}, zero, DDH_PARAM_NO_DECAY, {}, {0, o.fp32_params ? DDH_F32 : 0, DDH_F32});
  order.push_back(desc.add_unit("head", {bias, embedding}));
  if (o.has_encoder()) {
    const int32_t weight = desc.add_param(o.encoder_unit(), "encoder.weight", {V, C}, normal, DDH_PARAM_FROZEN);
    order.insert(order.begin(), desc.add_unit("encoder", {weight}));
  }
  if (o.keeps_mean) {
    const int32_t sync = o.folds_mean ? DDH_SYNC_FOLD : DDH_SYNC_STEP;
    desc.add_buffer("running_mean", {C}, DDH_F32, state.mean, sync, o.folds_mean ? 0.9 : 0);
    desc.add_buffer("forwards", {1}, DDH_I64, state.forwards, sync, o.folds_mean ? 1 : 0);
  }
  if (o.update_samples > 0) desc.add_buffer("table", {C}, DDH_F32, state.table, DDH_SYNC_NEVER);
  toy::add_programs(o, std::move(order), metrics, desc);
}

inline constexpr const char* kToySchema = R"({"properties": {
  "layers": {"type": "integer", "default": 3, "minimum": 1, "maximum": 100, "description": "hidden layers"},
  "width": {"type": "integer", "default": 5, "minimum": 1, "description": "elements of a state"},
  "hidden": {"type": "integer", "default": 9, "minimum": 1, "description": "elements of a hidden layer"},
  "vocab": {"type": "integer", "default": 31, "minimum": 2, "description": "tokens"},
  "repeat": {"type": "integer", "default": 0, "minimum": 0, "description": "further occurrences of the first layer"},
  "eval_samples": {"type": "integer", "default": 0, "minimum": 0, "description": "those of evaluation; 0: all"},
  "deviation": {"type": "number", "default": 0.3, "minimum": 0, "description": "of the first weights"},
  "buffers": {"type": "boolean", "default": false, "description": "keep a running mean, which an evaluation takes off"},
  "buffer_sync": {"type": "string", "default": "fold", "enum": ["fold", "step"],
    "description": "fold: of all ranks, by the host; step: rank 0's"},
  "metrics": {"type": "integer", "default": 0, "minimum": 0, "description": "further metrics: p1, p2 ..."},
  "metric_name": {"type": "string", "default": "p1", "description": "name of the first of them"},
  "eval_name": {"type": "string", "default": "eval", "description": "what evaluates the first program; empty: nothing"},
  "evals": {"type": "integer", "default": 1, "minimum": 1, "maximum": 2, "description": "2: the second has its own"},
  "derived": {"type": "boolean", "default": false, "description": "report perplexity and F1"},
  "sampler": {"type": "boolean", "default": false, "description": "make tokens at the end of a run"},
  "programs": {"type": "integer", "default": 1, "minimum": 1, "maximum": 2,
    "description": "2: a second one, in another order of units, that trains a part"},
  "optimizers": {"type": "integer", "default": 1, "minimum": 1, "maximum": 3,
    "description": "2: the second program has the second optimizer; 3: the third"},
  "encoder": {"type": "string", "enum": ["none", "frozen", "forward_only"], "default": "none",
    "description": "a frozen unit beside the embedding, with a backward or without one"},
  "frozen_layer": {"type": "integer", "default": -1, "minimum": -1,
    "description": "a layer that is not trained; -1: none"},
  "input_grad_only": {"type": "boolean", "default": false,
    "description": "the backward of the frozen layer gives the gradient of its input alone"},
  "fp32_params": {"type": "boolean", "default": false,
    "description": "gains, biases and what is frozen in a layer stay in fp32 whatever the run computes in"},
  "stored": {"type": "string", "enum": ["fp32", "bf16", "fp16"], "default": "fp32",
    "description": "how files of weights hold matrices"},
  "lr_scale": {"type": "number", "default": 0, "description": "of first matrices; gains get a quarter; 0: none"},
  "update_samples": {"type": "integer", "default": 0, "minimum": 0,
    "description": "samples of an update program, which renews a table that is added to states; 0: none"},
  "ignore_every": {"type": "integer", "default": 0, "minimum": 0,
    "description": "the targets of samples whose index this divides do not count; 0: all count"},
  "samples": {"type": "integer", "default": 4096, "minimum": 1, "description": "size of the sample space"},
  "nan_at_step": {"type": "integer", "default": 0, "description": "step whose gradient holds a NaN; 0: none"}}})";

}  // namespace ddhost::test
