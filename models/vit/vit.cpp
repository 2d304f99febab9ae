// SPDX-License-Identifier: Apache-2.0
#include "vit.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>

#include "../ops/losses.hpp"
#include "names.hpp"

namespace vit {
namespace {

constexpr int32_t kTrainProgram = 0;
constexpr int64_t kTop = 5;
constexpr int64_t kMetrics = 3;

template <class Saved>
Saved only_input(const Saved& saved) {
  Saved out;
  out.x = saved.x;
  return out;
}

}  // namespace

const char* const kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, DDH_COMM_IFACE,
                              DDH_STREAM_IFACE, DDH_COPY_IFACE,  nullptr};

Vit::Vit(const ddh_create& create)
    : UnitModel(create, ddh::Host(create.host).text("model.operators")),
      loader_(host, side_of(host)),
      config_(host, loader_.side(), loader_.channels(), loader_.classes()),
      desc_(ddh::str("vit ", host.text("model.size"))),
      products_(host, device(), "vit", config_.compute) {
  build_description();
}

void Vit::prepare() {
  products_.settle({host.i64("data.micro_batch") * config_.tokens(), config_.width, config_.mlp_width});
}

ddh_batch* Vit::make_batch(images::ImageBatch images, ddh_batch_info* info) {
  auto batch = std::make_unique<VitBatch>();
  batch->B = images.B();
  batch->patches = patches_of(images.pixels, config_.patch);
  batch->targets = std::move(images.targets);
  batch->labels = std::move(images.labels);
  batch->weight = images.weight;
  if (info != nullptr) {
    info->items = static_cast<uint64_t>(batch->B);
    info->loss_count = batch->weight;
  }
  return give_away(std::move(batch));
}

ddh_batch* Vit::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  return make_batch(loader_.load(args, args.program == kTrainProgram), &info);
}

ddh_batch* Vit::batch_of_pixels(const std::vector<float>& pixels, const std::vector<int64_t>& labels) {
  return make_batch(loader_.batch_of(pixels, labels), nullptr);
}

void Vit::view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
  const auto& of_batch = *reinterpret_cast<const VitBatch*>(batch);
  const at::Tensor pixels =
      pixels_of(of_batch.patches.narrow(0, sample * config_.n_patches(), config_.n_patches()), config_.patch);
  loader_.show(pixels.const_data_ptr<float>(), of_batch.labels[sample], of_batch.targets[sample], parts);
}

VitBatch Vit::batch_on_device(const ddh_unit_call& c) {
  VitBatch batch = batch_of(c.batch);
  if (!device().by_operators()) return batch;
  const at::Tensor labels = at::from_blob(batch_of(c.batch).labels.data(), {batch.B}, at::kLong);
  const std::vector<at::Tensor> copies = on_device(c.micro_batch, {batch.patches, batch.targets, labels}, c.stream);
  batch.patches = copies[0], batch.targets = copies[1], batch.labels_on_device = copies[2];
  return batch;
}

void Vit::run_forward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  Context& context = contexts_[c.micro_batch];
  if (c.unit == kEmbeddingUnit && c.phase != DDH_PHASE_RECOMPUTE) context.reset(config_.n_layer);
  if (batch_of(c.batch).B == 0) return;
  const UnitContext u = unit_context(c);
  const bool again = c.phase == DDH_PHASE_RECOMPUTE;
  const bool keeps_input_alone = !again && (c.flags & DDH_CALL_RECOMPUTED) != 0;
  if (c.unit == kEmbeddingUnit) {
    if (!again) context.x = embedding(u);
  } else if (c.unit < head_unit()) {
    BlockSaved& saved = context.blocks[static_cast<size_t>(u.layer)];
    const at::Tensor y = block(u, again ? saved.x : context.x, saved);
    if (!again) context.x = y;
    if (keeps_input_alone) saved = only_input(saved);
    if (c.phase == DDH_PHASE_EVAL) saved = {};
  } else {
    // The head is not recomputed: it keeps less data than a second forward would need.
    if (again) return;
    const at::Tensor loss = head(u, context.x, context.head);
    transfers().send(c.micro_batch, results(loss, context.head.logits, u.batch), c.stream);
    context.count = static_cast<double>(u.batch.B);
    context.weight = u.batch.weight;
    context.x = at::Tensor();
  }
}

void Vit::run_backward(const ddh_unit_call& c) {
  const c10::InferenceMode no_autograd;
  if (batch_of(c.batch).B == 0) return ops::give_zeros(*c.view, device().where());
  Context& context = contexts_.at(c.micro_batch);
  const UnitContext u = unit_context(c);
  if (c.unit == head_unit()) {
    context.x = head_backward(u, c.seed_scale, context.head);
    context.head = {};
  } else if (c.unit != kEmbeddingUnit) {
    BlockSaved& saved = context.blocks[static_cast<size_t>(u.layer)];
    context.x = block_backward(u, std::move(context.x), saved);
    saved = {};
  } else {
    embedding_backward(u, std::move(context.x));
    context.x = at::Tensor();
  }
}

at::Tensor Vit::results(const at::Tensor& loss, const at::Tensor& logits, const VitBatch& batch) {
  const auto correct = [&](int64_t k) {
    if (batch.labels_on_device.defined()) return ops::counted_among_largest(logits, batch.labels_on_device, k);
    return at::scalar_tensor(ops::count_among_largest(logits, batch.labels, k), at::kDouble);
  };
  return at::stack({loss, correct(1), correct(kTop)});
}

void Vit::give_metrics(int32_t, int32_t micro_batch, double* sums, double* counts) {
  const Context& context = contexts_.at(micro_batch);
  const at::Tensor values = transfers().read(micro_batch);
  for (int64_t m = 0; m < kMetrics; ++m) {
    sums[m] = values.defined() ? values.const_data_ptr<double>()[m] : 0;
    counts[m] = m == 0 ? context.weight : context.count;
  }
}

UnitContext Vit::unit_context(const ddh_unit_call& c) {
  ops::require_dtype(host, *c.view, ops::dtype_of(config_.compute), "vit");
  const ddh::DropoutKey key{config_.seed, c.step, c.global_micro_batch, c.position, 0};
  return {config_, *products_, batch_on_device(c), *c.view, c.unit - 1, key, c.phase != DDH_PHASE_EVAL};
}

void Vit::build_description() {
  const auto add_unit = [&](int32_t unit, const std::string& name, const std::vector<ParamSpec>& specs) {
    std::vector<int32_t> params;
    for (const ParamSpec& spec : specs)
      params.push_back(desc_.add_param(unit, spec.name, spec.shape, spec.init, spec.attributes()));
    return desc_.add_unit(name, params);
  };
  std::vector<int32_t> order = {add_unit(kEmbeddingUnit, "embedding", embedding_params(config_))};
  for (int64_t l = 0; l < config_.n_layer; ++l)
    order.push_back(add_unit(static_cast<int32_t>(l) + 1, ddh::str("layer.", l), block_params(config_, l)));
  order.push_back(add_unit(head_unit(), "head", head_params(config_)));
  const std::vector<std::string> metrics = {"loss", "accuracy", "top5"};
  const bool evaluates = loader_.n_eval() > 0;
  desc_.set_meaning_of_ids(loader_.meaning_of_ids());
  desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                     .name = "train",
                     .units = order,
                     .metrics = metrics,
                     .n_samples = loader_.n_train(),
                     .sample_unit = "images",
                     .eval_program = evaluates ? "eval" : ""});
  if (evaluates) {
    desc_.add_program({.kind = DDH_PROGRAM_EVAL,
                       .name = "eval",
                       .units = order,
                       .metrics = metrics,
                       .n_samples = loader_.n_eval(),
                       .sample_unit = "images"});
  }
}

}  // namespace vit
