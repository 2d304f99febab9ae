// SPDX-License-Identifier: Apache-2.0
#include "gpt.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstdlib>

#include "../ops/matrix.hpp"
#include "../ops/view.hpp"

namespace gpt {
namespace {

constexpr int32_t kWte = 0, kWpe = 1;
constexpr int32_t kTrainProgram = 0;

std::unique_ptr<GptBatch> empty_batch(int64_t B, int64_t T) {
  auto batch = std::make_unique<GptBatch>();
  batch->B = B;
  batch->T = T;
  batch->ids = at::empty({B, T}, at::kLong);
  batch->targets = at::empty({B, T}, at::kLong);
  batch->counted_targets = B * T;
  return batch;
}

}  // namespace

const char* const kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, DDH_COMM_IFACE,
                              DDH_STREAM_IFACE, DDH_COPY_IFACE,  nullptr};

Gpt::Gpt(const ddh_create& create)
    : UnitModel(create, ddh::Host(create.host).text("model.operators")),
      tokens_(host, context_of(host)),
      config_(host, tokens_.vocab()),
      desc_(ddh::str("gpt ", host.text("model.size"))),
      products_(host, device(), "gpt", config_.compute) {
  build_description();
}

void Gpt::prepare() {
  products_.settle({host.i64("data.micro_batch") * config_.context, config_.width, 4 * config_.width});
}

ddh_batch* Gpt::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  const bool trains = args.program == kTrainProgram;
  const TokenSpan span = trains ? tokens_.train() : tokens_.val();
  const int64_t stride = trains ? 1 : config_.eval_stride;
  std::unique_ptr<GptBatch> batch = empty_batch(args.n_samples, config_.context);
  for (int64_t b = 0; b < batch->B; ++b) copy_sample(span, args.samples[b] * stride, *batch, b);
  info.items = static_cast<uint64_t>(batch->B * batch->T);
  info.loss_count = static_cast<double>(batch->counted_targets);
  return give_away(std::move(batch));
}

ddh_batch* Gpt::batch_of_ids(const std::vector<int64_t>& ids, const std::vector<int64_t>& targets, int64_t B) {
  const auto N = static_cast<int64_t>(ids.size());
  std::unique_ptr<GptBatch> batch = empty_batch(B, B > 0 ? N / B : 0);
  std::copy(ids.begin(), ids.end(), batch->ids.mutable_data_ptr<int64_t>());
  std::copy(targets.begin(), targets.end(), batch->targets.mutable_data_ptr<int64_t>());
  batch->counted_targets = N - std::count(targets.begin(), targets.end(), kIgnoredTarget);
  return give_away(std::move(batch));
}

namespace {
template <class Saved>
Saved only_input(const Saved& saved) {
  Saved out;
  out.x = saved.x;
  return out;
}
}  // namespace

void Gpt::run_forward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  Context& context = contexts_[c.micro_batch];
  const bool recompute = c.phase == DDH_PHASE_RECOMPUTE;  // then context.x is a gradient
  const bool keeps_input_alone = c.phase == DDH_PHASE_FORWARD && (c.flags & DDH_CALL_RECOMPUTED) != 0;
  if (c.unit == kWte && !recompute) context.reset(config_.n_layer);
  if (batch_of(c.batch).B == 0) return;
  const UnitContext u = unit_context(c);
  if (c.unit == kWte || c.unit == kWpe) {
    if (recompute) return;  // these units keep nothing
    context.x = c.unit == kWte ? token_embedding(u) : position_embedding(u, std::move(context.x));
  } else if (c.unit < head_unit()) {
    BlockSaved& saved = context.blocks[static_cast<size_t>(c.unit - kWpe - 1)];
    at::Tensor y = block(u, recompute ? saved.x : context.x, saved);
    if (!recompute) context.x = std::move(y);
    if (keeps_input_alone) saved = only_input<BlockSaved>(saved);
    if (c.phase == DDH_PHASE_EVAL) saved = {};
  } else {
    const at::Tensor loss = head(u, recompute ? context.head.x : context.x, context.head);
    if (!recompute) transfers().send(c.micro_batch, loss, c.stream);
    context.loss_count = static_cast<double>(u.batch.counted_targets);
    if (keeps_input_alone) context.head = only_input<HeadSaved>(context.head);
    if (c.phase == DDH_PHASE_EVAL) sampler_.see(context.head.logits);
  }
}

void Gpt::run_backward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  if (batch_of(c.batch).B == 0) {
    keep_zeros(*c.view);
    return ops::give_zeros(*c.view, device().where());
  }
  Context& context = contexts_.at(c.micro_batch);
  const UnitContext u = unit_context(c);
  if (c.unit == head_unit()) {
    context.x = head_backward(u, c.seed_scale, context.head);
    context.head = {};
  } else if (c.unit > kWpe) {
    BlockSaved& saved = context.blocks[static_cast<size_t>(c.unit - kWpe - 1)];
    context.x = block_backward(u, std::move(context.x), saved);
    saved = {};
  } else if (c.unit == kWpe) {
    position_embedding_backward(u, context.x);
  } else {
    token_embedding_backward(u, context.x);
    context.x = at::Tensor();
  }
}

void Gpt::give_metrics(int32_t, int32_t micro_batch, double* sums, double* counts) {
  const at::Tensor loss = transfers().read(micro_batch);
  sums[0] = loss.defined() ? loss.item<double>() : 0;
  counts[0] = contexts_.at(micro_batch).loss_count;
}

void Gpt::sampler_begin(const ddh_sample_args& args) {
  if (args.condition >= 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "gpt generates from a prompt only, not from sample ", args.condition,
              "; leave run.sample_condition out");
  const std::vector<int64_t> ids = tokens_.encode(args.prompt);
  const int64_t start = tokens_.start();
  for (const int64_t id : ids) {
    if (id >= 0 && id < config_.vocab) continue;
    ddh::fail(DDH_INVALID_ARGUMENT, "run.sample_prompt holds token ", id, "; the model's tokens are 0 to ",
              config_.vocab - 1);
  }
  sampler_.begin(ids, start < config_.vocab ? start : 0, args, config_);
}

ddh_batch* Gpt::sampler_next() {
  std::unique_ptr<GptBatch> batch = sampler_.next();
  return batch != nullptr ? give_away(std::move(batch)) : nullptr;
}

const char* Gpt::sampler_text() {
  text_ = tokens_.decode(sampler_.shown_ids());
  return text_.c_str();
}

void Gpt::view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
  const auto& of_batch = *reinterpret_cast<const GptBatch*>(batch);
  const auto text_of = [&](const at::Tensor& ids) {
    const int64_t* const first = ids.const_data_ptr<int64_t>() + sample * of_batch.T;
    std::vector<int64_t> row(first, first + of_batch.T);
    std::erase(row, kIgnoredTarget);
    return tokens_.decode(row);
  };
  parts.text("tokens", text_of(of_batch.ids));
  parts.text("targets", text_of(of_batch.targets));
}

UnitContext Gpt::unit_context(const ddh_unit_call& c) {
  ops::require_dtype(host, *c.view, ops::dtype_of(config_.compute), "gpt");
  const ddh::DropoutKey key{config_.seed, c.step, c.global_micro_batch, c.position, 0};
  GptBatch batch = batch_of(c.batch);
  const std::vector<at::Tensor> copies = on_device(c.micro_batch, {batch.ids, batch.targets}, c.stream);
  batch.ids = copies[0], batch.targets = copies[1];
  return {config_, *products_, std::move(batch), *c.view, key, c.phase != DDH_PHASE_EVAL, later()};
}

void Gpt::copy_sample(const TokenSpan& span, int64_t start, GptBatch& batch, int64_t b) const {
  auto* ids = batch.ids.mutable_data_ptr<int64_t>() + b * batch.T;
  auto* targets = batch.targets.mutable_data_ptr<int64_t>() + b * batch.T;
  for (int64_t t = 0; t <= batch.T; ++t) {
    const int64_t id = span.ids[start + t];
    if (id >= config_.vocab) {
      ddh::fail(DDH_OUT_OF_RANGE, "token ", id, " at position ", start + t, " of '", span.file,
                "' is beyond model.vocab=", config_.vocab, "; set model.vocab to at least ", id + 1,
                " if the file is right");
    }
    if (t < batch.T) ids[t] = id;
    if (t > 0) targets[t - 1] = id;
  }
}

void Gpt::build_description() {
  const int64_t C = config_.width, L = config_.n_layer;
  const ddh::ModelDesc::Init narrow{DDH_INIT_NORMAL, 0, 0.02};
  const ddh::ModelDesc::Init residual{DDH_INIT_NORMAL, 0, 0.02 / std::sqrt(2.0 * static_cast<double>(L))};
  std::vector<std::string> tied;
  if (config_.tied) tied = {"lm_head.weight"};
  const ddh::ParamOptions in_blocks{.grad_block = config_.grad_block()};
  const int32_t wte = desc_.add_param(kWte, "transformer.wte.weight", {config_.vocab, C}, narrow, DDH_PARAM_SPARSE_GRAD,
                                      tied, in_blocks);
  std::vector<int32_t> order = {desc_.add_unit("wte", {wte})};
  order.push_back(
      desc_.add_unit("wpe", {desc_.add_param(kWpe, "transformer.wpe.weight", {config_.positions, C}, narrow)}));
  std::vector<int32_t> linear;  // weights
  const auto add_linear = [&](std::vector<int32_t>& params, int32_t unit, const std::string& name,
                              const std::vector<int64_t>& shape, ddh::ModelDesc::Init init) {
    const size_t weight = params.size();
    add_layer(params, unit, name, shape, init);
    linear.push_back(params[weight]);
  };
  for (int64_t l = 0; l < L; ++l) {
    const auto unit = static_cast<int32_t>(l) + 2;
    const std::string prefix = ddh::str("transformer.h.", l, ".");
    std::vector<int32_t> params;
    add_layer(params, unit, prefix + "ln_1", {C}, {DDH_INIT_CONSTANT, 1, 0});
    add_linear(params, unit, prefix + "attn.c_attn", {3 * C, C}, narrow);
    add_linear(params, unit, prefix + "attn.c_proj", {C, C}, residual);
    add_layer(params, unit, prefix + "ln_2", {C}, {DDH_INIT_CONSTANT, 1, 0});
    add_linear(params, unit, prefix + "mlp.c_fc", {4 * C, C}, narrow);
    add_linear(params, unit, prefix + "mlp.c_proj", {C, 4 * C}, residual);
    order.push_back(desc_.add_unit(ddh::str("h.", l), params));
  }
  std::vector<int32_t> head;
  add_layer(head, head_unit(), "transformer.ln_f", {C}, {DDH_INIT_CONSTANT, 1, 0});
  head.push_back(config_.tied
                     ? wte
                     : desc_.add_param(head_unit(), "lm_head.weight", {config_.vocab, C}, narrow, 0, {}, in_blocks));
  order.push_back(desc_.add_unit("head", head));
  const bool evaluates = tokens_.val().numel > 0;
  desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                     .name = "train",
                     .units = order,
                     .metrics = {"loss"},
                     .n_samples = tokens_.train().samples(config_.context, 1),
                     .sample_unit = "tokens",
                     .eval_program = evaluates ? "eval" : ""});
  if (evaluates) {
    desc_.add_program({.kind = DDH_PROGRAM_EVAL,
                       .name = "eval",
                       .units = order,
                       .metrics = {"loss"},
                       .n_samples = tokens_.val().samples(config_.context, config_.eval_stride),
                       .sample_unit = "tokens"});
  }
  // transformers' class Conv1D, which its GPT-2 has in place of linear layers. All of them have a bias there.
  desc_.add_layout(
      "transformers", linear,
      config_.bias ? "" : "it is of a model without biases (model.bias=off), which the GPT-2 of transformers can't be");
  desc_.set_meaning_of_ids(tokens_.meaning_of_ids());
}

// A weight, and a bias if the model has biases.
void Gpt::add_layer(std::vector<int32_t>& params, int32_t unit, const std::string& name,
                    const std::vector<int64_t>& shape, ddh::ModelDesc::Init init) {
  const uint32_t attributes = shape.size() < 2 ? DDH_PARAM_NO_DECAY : 0;
  params.push_back(desc_.add_param(unit, name + ".weight", shape, init, attributes));
  if (config_.bias) params.push_back(desc_.add_param(unit, name + ".bias", {shape[0]}, {}, DDH_PARAM_NO_DECAY));
}

}  // namespace gpt
