// SPDX-License-Identifier: Apache-2.0
#include "cnn.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "../ops/batch_norm.hpp"
#include "../ops/losses.hpp"
#include "../ops/model_products.hpp"

namespace cnn {
namespace {

constexpr int32_t kTrainProgram = 0;
constexpr int64_t kTop = 5;
const std::vector<std::string> kMetrics = {"loss", "accuracy", "top5"};
// An evaluation also counts for each class the images that are given it and belong to it, then those that are given it. With
// more classes that would be too much to gather of each micro-batch.
constexpr int64_t kMostCountedClasses = 1000;

// (B), in the batch's memory.
at::Tensor labels_of(const images::ImageBatch& i) {
  return at::from_blob(const_cast<int64_t*>(i.labels.data()), {i.B()}, at::kLong);
}

// Convolutions over frames and image at once get their input as a volume, which has its own layout.
bool takes_channels_last(const ddh::Host& host) {
  return host.flag("model.channels_last") && host.text("model.network") != "conv3d";
}

CnnBatch& batch_of(ddh_batch* batch) { return *reinterpret_cast<CnnBatch*>(batch); }

}  // namespace

const char* const kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, DDH_COMM_IFACE,
                              DDH_STREAM_IFACE, DDH_COPY_IFACE,  nullptr};

// The operations that the layers of a unit call while it runs.
class Cnn::UnitCall final : public Call {
 public:
  UnitCall(Cnn& cnn, const UnitRun& run, const std::vector<at::Tensor>& params, const Unit& unit)
      : cnn_(cnn), run_(run), params_(params), n_frozen_(unit.n_frozen) {
    if (unit.is_frozen()) run_.training = false;
  }
  [[nodiscard]] const at::Tensor& param(size_t i) const override { return params_[i]; }
  [[nodiscard]] at::Tensor linear(const at::Tensor& x, size_t weight) override {
    return cnn_.linear(run_, params_, weight, weight + 1, x);
  }
  [[nodiscard]] at::Tensor convolution(const at::Tensor& x, size_t weight, bool has_bias,
                                       const ops::autograd::ConvolutionOptions& o) override {
    const at::Tensor &w = params_[weight], bias = has_bias ? params_[weight + 1] : at::Tensor();
    if (!ops::autograd::is_pointwise(x, w, o)) return ops::autograd::convolution(x, w, bias, o);
    return ops::autograd::pointwise(*cnn_.products_, x, w, bias);
  }
  [[nodiscard]] at::Tensor dropout(const at::Tensor& x, double probability) override {
    return cnn_.dropout(run_, x, probability, site_++);
  }
  [[nodiscard]] at::Tensor drop_samples(const at::Tensor& x, double probability) override {
    if (probability == 0 || !run_.training) return x;
    return x.mul(dropout(at::ones({x.size(0), 1, 1, 1}, x.options()), probability));
  }
  [[nodiscard]] at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      const Norm& n) override {
    UnitRun run = run_;
    if (n.param < n_frozen_) run.training = false;
    if (run.training && x.numel() == x.size(1) && !cnn_.host.flag("model.sync_batch_norm"))
      ddh::fail(DDH_FAILED_PRECONDITION, "batch norm '", n.name, "' has no variance over a micro-batch of one image, ",
                "where each channel has one value; ",
                "set data.micro_batch to 2 or more, and data.drop_last=true where the last one of an epoch has one");
    if (cnn_.ways_.fuses_norms) return fused_norm(run, x, weight, bias, n);
    return cnn_.batch_norm(run, x, weight, bias, buffers_of(n), n.momentum, n.eps);
  }

 private:
  static BatchNormBuffers buffers_of(const Norm& n) {
    return {n.mean_buffer, n.variance_buffer, int64_t{n.batches_buffer}};
  }
  at::Tensor fused_norm(const UnitRun& run, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const Norm& n) {
    const at::Tensor w = weight.to(at::kFloat), b = bias.to(at::kFloat);
    if (!run.training)
      return ops::normalized(x, cnn_.buffer(n.mean_buffer), cnn_.buffer(n.variance_buffer), w, b, n.eps, n.activation);
    if (x.size(0) == 0) return x;
    const ops::NormedBatch normed = ops::batch_norm(x, w, b, n.eps, n.activation);
    cnn_.contribute_statistics(run, buffers_of(n), normed.mean.mul(n.momentum), normed.variance.mul(n.momentum));
    return normed.y;
  }

  Cnn& cnn_;
  UnitRun run_;
  const std::vector<at::Tensor>& params_;
  const size_t n_frozen_;
  uint64_t site_ = 0;  // index of the unit's next dropout
};

Cnn::Cnn(const ddh_create& create)
    : TorchModel(create, ddh::TorchThreads::kOne, ddh::Host(create.host).text("model.operators")),
      loader_(host, 0, frames_of(host), least_side(host)),
      compute_(ops::compute_type(host, "cnn")),
      products_(host, device(), "cnn", compute_),
      layout_(takes_channels_last(host) ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Preserve),
      ways_(ways()),
      net_(make_net(net_options(host, image_shape(), loader_.classes(), ways_))),
      desc_("cnn " + host.text("model.network")) {
  if (host.flag("model.sync_batch_norm")) sync_batch_norm();
  build_description();
}

Ways Cnn::ways() const {
  const bool channels_last = layout_ == at::MemoryFormat::ChannelsLast;
  const bool own_kernels = channels_last && !device().by_operators() && compute_ != at::kHalf;
  return {channels_last, own_kernels, own_kernels && !host.flag("model.sync_batch_norm")};
}

at::Tensor Cnn::product(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
  return ops::autograd::linear(*products_, x, w, b);
}

void Cnn::prepare() {
  const Unit::Product widest = net_.widest_product();
  products_.settle({host.i64("data.micro_batch") * widest.rows, widest.in, widest.out});
}

Shape Cnn::image_shape() const {
  return {loader_.channels(), loader_.side(), loader_.side(), std::max<int64_t>(1, loader_.frames())};
}

ddh_batch* Cnn::give_away(images::ImageBatch images) {
  auto batch = std::make_unique<CnnBatch>();
  batch->images = std::move(images);
  host.alloc->account(host.h, DDH_TAG_DATA, batch->images.bytes());
  return reinterpret_cast<ddh_batch*>(batch.release());
}

ddh_batch* Cnn::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  if (args.n_samples == 0 && host.flag("model.sync_batch_norm"))
    ddh::fail(DDH_FAILED_PRECONDITION, "a rank has no samples in the last step of an epoch, but model.sync_batch_norm",
              " takes statistics of all ranks; set data.drop_last=true");
  images::ImageBatch images = loader_.load(args, args.program == kTrainProgram);
  info.items = args.n_samples;
  info.loss_count = images.weight;
  return give_away(std::move(images));
}

ddh_batch* Cnn::batch_of_pixels(const std::vector<float>& pixels, const std::vector<int64_t>& labels) {
  ddh_batch* batch = give_away(loader_.batch_of(pixels, labels));
  batch_of(batch).keeps_logits = true;
  return batch;
}

void Cnn::view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
  const images::ImageBatch& i = reinterpret_cast<const CnnBatch*>(batch)->images;
  const at::Tensor pixels = i.pixels[sample];  // of a contiguous tensor
  loader_.show(pixels.const_data_ptr<float>(), i.labels[sample], i.targets[sample], parts);
}

void Cnn::batch_destroy(ddh_batch* batch) noexcept {
  host.alloc->account(host.h, DDH_TAG_DATA, -batch_of(batch).images.bytes());
  std::unique_ptr<CnnBatch>(&batch_of(batch)).reset();
}

ddh::Tensors Cnn::run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const ddh::Tensors& inputs) {
  CnnBatch& batch = batch_of(run.batch);
  const bool is_last = static_cast<size_t>(run.unit) + 1 == net_.units().size();
  if (batch.images.B() == 0) {
    for (uint32_t m = 0; is_last && m < kMetrics.size(); ++m) report(run, m, 0, 0);
    return at::zeros({}, device().options(at::kFloat));
  }
  const Unit& unit = *net_.units()[static_cast<size_t>(run.unit)];
  ddh::Tensors waiting = inputs;  // earlier ones wait for a join; the last is the unit's input
  if (run.unit == 0 || unit.restarts) {
    waiting.push_back(pixels_of(tensors_of(run, batch).pixels));
  } else if (unit.joins) {
    waiting = at::cat(waiting, 1);
  }
  UnitCall unit_call(*this, run, params, unit);
  waiting.back() = unit.run(unit_call, waiting.back());
  return is_last ? loss(run, batch, waiting.back().to(at::kFloat)) : waiting;
}

Cnn::BatchTensors Cnn::tensors_of(const UnitRun& run, CnnBatch& batch) {
  const images::ImageBatch& i = batch.images;
  if (!device().by_operators()) return {i.pixels, i.targets, {}};
  const std::vector<at::Tensor> t = on_device(run, {i.pixels, i.targets, labels_of(i)});
  return {t[0], t[1], t[2]};
}

// (B [frames], channels, side, side). The layers hand its memory layout on from one to the next.
at::Tensor Cnn::pixels_of(const at::Tensor& pixels) const {
  const at::Tensor x = loader_.frames() > 0 ? pixels.flatten(0, 1) : pixels;
  if (layout_ == at::MemoryFormat::ChannelsLast && x.size(1) == 1)  // a copy would have the same order
    return x.to(compute_).as_strided(x.sizes(), {x.size(2) * x.size(3), 1, x.size(3), 1});
  return x.to(compute_, /*non_blocking*/ false, /*copy*/ false, layout_);
}

at::Tensor Cnn::loss(const UnitRun& run, CnnBatch& batch, const at::Tensor& logits) {
  const BatchTensors tensors = tensors_of(run, batch);
  const at::Tensor sum = at::cross_entropy_loss(logits, tensors.targets, {}, /*reduction: sum*/ 2);
  const at::Tensor values = logits.detach().contiguous();
  const std::vector<int64_t>& labels = batch.images.labels;
  const auto count = static_cast<double>(labels.size());
  report(run, 0, sum, batch.images.weight);
  if (describe().programs[run.program]->n_reported > 0) report_classes(run, batch, tensors.labels, values);
  if (tensors.labels.defined()) {
    report(run, 1, ops::counted_among_largest(values, tensors.labels, 1), count);
    report(run, 2, ops::counted_among_largest(values, tensors.labels, kTop), count);
  } else {
    report(run, 1, static_cast<double>(ops::count_among_largest(values, labels, 1)), count);
    report(run, 2, static_cast<double>(ops::count_among_largest(values, labels, kTop)), count);
  }
  if (batch.keeps_logits && values.is_cpu())
    batch.logits.assign(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  return sum;
}

void Cnn::report_classes(const UnitRun& run, CnnBatch& batch, const at::Tensor& labels, const at::Tensor& logits) {
  const auto classes = static_cast<size_t>(loader_.classes());
  std::vector<double> counts(2 * classes, static_cast<double>(batch.images.B()));
  std::fill_n(counts.begin(), classes, 0);
  for (const int64_t label : batch.images.labels) counts[static_cast<size_t>(label)] += 1;
  report(run, static_cast<uint32_t>(kMetrics.size()),
         ops::counts_of_classes(logits, labels.defined() ? labels : labels_of(batch.images)), counts);
}

// Precision, recall and F1 of each class, weighted by its part of the images, as in scikit-learn.
void Cnn::derive(int32_t, const double* sums, const double* counts, double* values) {
  const size_t n = kMetrics.size(), classes = static_cast<size_t>(loader_.classes());
  for (size_t i = 0; i < n; ++i) values[i] = sums[i] / counts[i];
  const double *hits = sums + n, *of_class = counts + n, *given = hits + classes, images = counts[1];
  double precision = 0, f1 = 0;
  for (size_t c = 0; c < classes; ++c) {
    if (hits[c] == 0) continue;
    precision += of_class[c] / images * hits[c] / given[c];
    f1 += of_class[c] / images * 2 * hits[c] / (given[c] + of_class[c]);
  }
  values[n] = precision, values[n + 1] = values[1], values[n + 2] = f1;
}

void Cnn::build_description() {
  std::vector<int32_t> order;
  std::vector<uint32_t> flags;
  bool is_leading = true, has_flags = false;
  for (const auto& unit : net_.units()) {
    const auto index = static_cast<int32_t>(order.size());
    std::vector<int32_t> params;
    for (const ParamSpec& spec : unit->params()) {
      const uint32_t attributes =
          (spec.shape.size() < 2 ? DDH_PARAM_NO_DECAY : 0U) | (params.size() < unit->n_frozen ? DDH_PARAM_FROZEN : 0U);
      params.push_back(
          desc_.add_param(index, spec.name, spec.shape, spec.init, attributes, {}, {.grad_block = spec.grad_block}));
    }
    for (Norm& norm : unit->norms()) add_norm(norm, norm.param < unit->n_frozen);
    order.push_back(desc_.add_unit(unit->name(), params));
    // Later towers pass on the gradients of waiting results, so only the first frozen units have no backward.
    is_leading = is_leading && unit->is_frozen();
    flags.push_back(is_leading ? DDH_POSITION_FORWARD_ONLY : 0U);
    has_flags = has_flags || is_leading;
  }
  const bool evaluates = loader_.n_eval() > 0;
  desc_.set_meaning_of_ids(loader_.meaning_of_ids());
  desc_.add_program({.kind = DDH_PROGRAM_TRAIN,
                     .name = "train",
                     .units = order,
                     .metrics = kMetrics,
                     .n_samples = loader_.n_train(),
                     .sample_unit = "images",
                     .position_flags = has_flags ? flags : std::vector<uint32_t>{},
                     .eval_program = evaluates ? "eval" : ""});
  if (!evaluates) return;
  std::vector<std::string> metrics = kMetrics, reported;
  if (loader_.classes() <= kMostCountedClasses) {
    for (const char* what : {"found of class ", "given class "})
      for (int64_t c = 0; c < loader_.classes(); ++c) metrics.push_back(ddh::str(what, c));
    reported = kMetrics;
    for (const char* name : {"precision", "recall", "f1"}) reported.emplace_back(name);
  }
  desc_.add_program({.kind = DDH_PROGRAM_EVAL,
                     .name = "eval",
                     .units = order,
                     .metrics = metrics,
                     .n_samples = loader_.n_eval(),
                     .sample_unit = "images",
                     .reported = reported});
}

// Running statistics are folded over the micro-batches of all ranks; those of a frozen trunk do not change.
void Cnn::add_norm(Norm& norm, bool frozen) {
  const auto channels = static_cast<int64_t>(norm.mean.size());
  const int32_t sync = frozen ? DDH_SYNC_NEVER : DDH_SYNC_FOLD;
  const double decay = frozen ? 0 : 1 - norm.momentum;
  norm.mean_buffer = desc_.add_buffer(norm.name + ".running_mean", {channels}, DDH_F32, norm.mean.data(), sync, decay);
  norm.variance_buffer =
      desc_.add_buffer(norm.name + ".running_var", {channels}, DDH_F32, norm.variance.data(), sync, decay);
  norm.batches_buffer =
      desc_.add_buffer(norm.name + ".num_batches_tracked", {}, DDH_I64, &norm.batches, sync, frozen ? 0 : 1);
}

const Unit* Cnn::unit_before(int32_t unit) const {
  const auto index = static_cast<size_t>(unit);
  return unit > 0 && !net_.units()[index]->restarts ? net_.units()[index - 1].get() : nullptr;
}

bool Cnn::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const Unit& u = *net_.units()[static_cast<size_t>(unit)];
  const double B = args.n_samples;
  const bool learns = program.kind == DDH_PROGRAM_TRAIN && !u.is_frozen();
  const Unit* const before = unit_before(unit);
  const bool follows_frozen = before != nullptr && before->is_frozen();
  out = {sizeof out, 0, B * u.flops(), 0, 0, 0, 0, 0};
  if (!learns) return true;
  out.backward_flops = B * u.backward_flops(before != nullptr && !follows_frozen);
  const double element = compute_ == at::kFloat ? 4 : 2;
  double bytes = u.kept_bytes(B, compute_, device().where());
  const bool copies_pixels =
      compute_ != at::kFloat || (layout_ == at::MemoryFormat::ChannelsLast && image_shape().channels > 1);
  if (copies_pixels && (unit == 0 || u.restarts))
    bytes += ddh::ActivationAllocator::block_bytes(B * static_cast<double>(image_shape().numel()) * element);
  if (follows_frozen)  // the frozen trunk's result
    bytes += ddh::ActivationAllocator::block_bytes(B * static_cast<double>(before->shape().numel()) * element);
  out.activation_bytes = static_cast<uint64_t>(bytes);
  add_peaks(args, out);
  return true;
}

void Cnn::add_peaks(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const Unit& u = *net_.units()[static_cast<size_t>(unit)];
  const double B = args.n_samples, element = compute_ == at::kFloat ? 4 : 2;
  const auto result_of = [&](const Unit& of) {
    return ddh::ActivationAllocator::block_bytes(B * static_cast<double>(of.shape().numel()) * element);
  };
  const Unit* const before = unit_before(unit);
  const bool follows_frozen = before != nullptr && before->is_frozen();
  const bool is_last = static_cast<size_t>(unit) + 1 == net_.units().size();
  // oneDNN's, as they were measured: a weight in its layout, and a gradient in its layout beside the plain one; with
  // channels_last the weight is copied first, and the gradient once more.
  const bool copies_twice = layout_ == at::MemoryFormat::ChannelsLast;
  Unit::WeightCopies copies =
      device().where().is_cpu() ? Unit::WeightCopies{copies_twice ? 2 : 1, copies_twice ? 3 : 1} : Unit::WeightCopies{};
  copies.has_parts = !device().by_operators();
  const Unit::Peaks peaks = u.peaks(B, compute_, before != nullptr && !follows_frozen, copies);
  // The last one gives a loss, whose operators have three tensors like the logits.
  const double of_loss =
      is_last ? 3 * ddh::ActivationAllocator::block_bytes(4 * B * static_cast<double>(u.shape().numel())) : 0;
  out.lasting_bytes = static_cast<uint64_t>((is_last ? 0 : result_of(u)) + (follows_frozen ? result_of(*before) : 0));
  out.forward_peak_bytes = static_cast<uint64_t>(peaks.forward + of_loss);
  out.backward_peak_bytes = static_cast<uint64_t>(peaks.backward + of_loss);
}

}  // namespace cnn
