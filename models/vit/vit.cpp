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

VitBatch& batch_of(ddh_batch* batch) { return *reinterpret_cast<VitBatch*>(batch); }

int64_t batch_bytes(const VitBatch& batch) {
  return static_cast<int64_t>(batch.patches.nbytes() + batch.targets.nbytes());
}

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
    : Model(create),
      loader_(host, side_of(host)),
      config_(host, loader_.side(), loader_.channels(), loader_.classes()),
      desc_(ddh::str("vit ", host.text("model.size"))),
      device_(host, host.text("model.operators")),
      products_(host, device_, "vit", config_.compute) {
  ddh::prepare_torch();
  build_description();
}

void Vit::prepare() {
  products_.settle({host.i64("data.micro_batch") * config_.tokens(), config_.width, config_.mlp_width});
}

ddh_batch* Vit::give_away(images::ImageBatch images, ddh_batch_info* info) {
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
  host.alloc->account(host.h, DDH_TAG_DATA, batch_bytes(*batch));
  return reinterpret_cast<ddh_batch*>(batch.release());
}

ddh_batch* Vit::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  return give_away(loader_.load(args, args.program == kTrainProgram), &info);
}

ddh_batch* Vit::batch_of_pixels(const std::vector<float>& pixels, const std::vector<int64_t>& labels) {
  return give_away(loader_.batch_of(pixels, labels), nullptr);
}

void Vit::batch_destroy(ddh_batch* batch) noexcept {
  host.alloc->account(host.h, DDH_TAG_DATA, -batch_bytes(batch_of(batch)));
  std::unique_ptr<VitBatch>(&batch_of(batch)).reset();
}

ddh::Transfers& Vit::transfers(int32_t micro_batch) {
  return transfers_.try_emplace(micro_batch, host, device_).first->second;
}

// The batch itself on the CPU with its own code. Otherwise a copy, made with the first unit's forward.
const VitBatch& Vit::batch_on_device(const ddh_unit_call& c) {
  const VitBatch& batch = batch_of(c.batch);
  if (!device_.by_operators()) return batch;
  VitBatch& copy = contexts_.at(c.micro_batch).on_device;
  if (!copy.patches.defined()) {
    const at::Tensor labels = at::from_blob(const_cast<int64_t*>(batch.labels.data()), {batch.B}, at::kLong);
    const std::vector<at::Tensor> tensors =
        transfers(c.micro_batch).upload({batch.patches, batch.targets, labels.clone()}, c.stream);
    copy = {tensors[0], tensors[1], {}, tensors[2], batch.B, batch.weight};
  }
  return copy;
}

void Vit::forward(const ddh_unit_call& c) {
  const ddh::TorchCall scope(host, device_, c.stream);
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
    transfers(c.micro_batch).send(results(loss, context.head.logits, u.batch), c.stream);
    context.count = static_cast<double>(u.batch.B);
    context.weight = u.batch.weight;
    context.x = at::Tensor();
  }
}

void Vit::backward(const ddh_unit_call& c) {
  const ddh::TorchCall scope(host, device_, c.stream);
  const c10::InferenceMode no_autograd;
  if (batch_of(c.batch).B == 0) return ops::give_zeros(*c.view, device_.where());
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

void Vit::metrics(int32_t, int32_t micro_batch, double* sums, double* counts) {
  const ddh::TorchCall scope(host, device_);
  const Context& context = contexts_.at(micro_batch);
  std::vector<double> values = transfers(micro_batch).read();
  values.resize(3);
  std::copy(values.begin(), values.end(), sums);
  std::fill_n(counts, values.size(), context.count);
  counts[0] = context.weight;
}

void Vit::discard(int32_t micro_batch) noexcept {
  const ddh::TorchCall scope(host, device_);
  contexts_.erase(micro_batch);
  if (const auto at = transfers_.find(micro_batch); at != transfers_.end()) at->second.discard();
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
