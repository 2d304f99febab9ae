// SPDX-License-Identifier: Apache-2.0
#include "loader.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ddh/sdk/model.hpp"

namespace images {
namespace {

int64_t given_or(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

}  // namespace

ImageLoader::ImageLoader(const ddh::Host& host, int64_t side, int64_t frames, int64_t least_side)
    : frames_(frames),
      data_(open_images(host, host.text("model.dataset"), frames)),
      seed_(static_cast<uint64_t>(host.i64("run.seed"))),
      smoothing_(host.f64("model.label_smoothing")),
      mixup_(host.f64("model.mixup")),
      classes_(given_or(host.i64("model.classes"), static_cast<int64_t>(data_.classes.size()))) {
  TransformOptions& t = transform_;
  t.side = given_or(host.i64("model.image_size"), given_or(side, data_.side));
  if (t.side == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "the files of data.path may have several sizes; give model.image_size");
  if (t.side < least_side && host.i64("model.image_size") == 0) {
    host.log(DDH_LOG_INFO, "images of ", t.side, " x ", t.side, " pixels are enlarged to ", least_side, " x ",
             least_side, ", the least that this network takes; model.image_size=N gives another size");
    t.side = least_side;
  }
  t.resize = given_or(host.i64("model.resize"), t.side);
  if (t.resize < t.side)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.resize=", t.resize, " is less than the side of ", t.side,
              " pixels that is cut out; raise it or lower model.image_size");
  t.crop_padding = host.i64("model.crop_padding");
  t.flip = host.flag("model.flip");
  t.trivial_augment = host.flag("model.trivial_augment");
  t.cutout = host.i64("model.cutout");
  t.channels = given_or(host.i64("model.channels"), data_.channels);
  set_scale(t, host.text("model.normalize"));
  if (classes_ < static_cast<int64_t>(data_.classes.size()))
    ddh::fail(DDH_INVALID_ARGUMENT, "model.classes=", classes_, " is less than the ", data_.classes.size(),
              " classes of the data; raise it or set it to 0");
  class_weights_ = read_class_weights(host);
}

std::vector<double> ImageLoader::read_class_weights(const ddh::Host& host) const {
  const char* const key = "model.class_weights";
  const char* given = nullptr;
  ddh_err ignored{};
  const bool is_text = host.config->get_str(host.h, key, &given, &ignored) == DDH_OK && *given != '[';
  const auto n = static_cast<size_t>(classes_);
  std::vector<double> weights(n);
  if (!is_text) {
    uint32_t n_given = 0;
    ddh::call(host.config->get_f64s, host.h, key, weights.data(), static_cast<uint32_t>(n), &n_given);
    const bool are_legal = std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; });
    if (n_given != n || !are_legal || *std::max_element(weights.begin(), weights.end()) == 0)
      ddh::fail(DDH_INVALID_ARGUMENT, key, " has ", n_given, " weights; the model has ", n,
                " classes; give one weight for each, none below 0, not all 0");
    return weights;
  }
  const std::string name = given;
  if (name == "none") return {};
  if (name != "balanced")
    ddh::fail(DDH_INVALID_ARGUMENT, key, " = \"", name, "\" is neither none, balanced nor a list of weights; give one");
  for (uint64_t i = 0; i < data_.train->size(); ++i) weights[static_cast<size_t>(data_.train->label(i))] += 1;
  for (double& w : weights) w = w > 0 ? static_cast<double>(data_.train->size()) / (static_cast<double>(n) * w) : 0;
  return weights;
}

std::string ImageLoader::meaning_of_ids() const {
  std::string text = ddh::str(data_.classes.size(), " classes: ");
  for (const std::string& name : data_.classes) text += name + (&name == &data_.classes.back() ? "" : ", ");
  return text;
}

ImageBatch ImageLoader::load(const ddh_batch_args& args, bool training) const {
  ImageBatch batch = empty_batch(args.n_samples);
  for (int64_t b = 0; b < batch.B(); ++b) {
    const int64_t sample = args.samples[b];
    if (training) {
      batch.weight += load_training(batch, b, ddh::epoch_of(args, static_cast<uint64_t>(b)), sample);
      continue;
    }
    const auto i = static_cast<uint64_t>(sample);
    transform(data_.eval->image(i), transform_, nullptr, batch.pixels.mutable_data_ptr<float>() + b * sample_numel());
    batch.labels[static_cast<size_t>(b)] = data_.eval->label(i);
    add_target(batch, b, data_.eval->label(i), 1);
    batch.weight += 1;
  }
  return batch;
}

ImageBatch ImageLoader::batch_of(const std::vector<float>& pixels, const std::vector<int64_t>& labels) const {
  ImageBatch batch = empty_batch(static_cast<int64_t>(labels.size()));
  std::copy(pixels.begin(), pixels.end(), batch.pixels.mutable_data_ptr<float>());
  batch.labels = labels;
  batch.weight = static_cast<double>(batch.B());
  for (int64_t b = 0; b < batch.B(); ++b) add_target(batch, b, labels[static_cast<size_t>(b)], 1);
  return batch;
}

// Targets: (classes). Smoothing, mixup and class weights change them.
void ImageLoader::show(const float* pixels, int64_t label, const at::Tensor& targets,
                       const ddh::SampleParts& parts) const {
  const int64_t frames = std::max<int64_t>(1, frames_);
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  parts.pixels(frames_ > 0 ? "frames" : "image", {size(frames), size(side()), size(side()), size(channels())},
               shown_pixels(pixels, frames, transform_));
  const auto number = static_cast<size_t>(label);
  const std::string digits = ddh::str(label), name = number < data_.classes.size() ? data_.classes[number] : digits;
  parts.text("label", name == digits ? digits : digits + " " + name);
  const auto* const shares = targets.const_data_ptr<float>();
  std::vector<float> alone(static_cast<size_t>(classes_));
  alone[number] = 1;
  if (!std::equal(alone.begin(), alone.end(), shares)) parts.values("targets", {size(classes_), 1, 1, 1}, shares);
}

ImageBatch ImageLoader::empty_batch(int64_t B) const {
  const TransformOptions& t = transform_;
  std::vector<int64_t> shape = {B, t.channels, t.side, t.side};
  if (frames_ > 0) shape.insert(shape.begin() + 1, frames_);
  return {at::empty(shape, at::kFloat), at::zeros({B, classes_}, at::kFloat),
          std::vector<int64_t>(static_cast<size_t>(B))};
}

void ImageLoader::add_target(ImageBatch& batch, int64_t b, int64_t label, double share) const {
  batch.targets.mutable_data_ptr<float>()[b * classes_ + label] += static_cast<float>(share);
}

// Targets are smoothed, and with mixup (Zhang et al. 2018) those of two images, which are mixed alike. The other image is
// drawn from all training data, not from the micro-batch, so a sample does not depend on its neighbours. Class weights scale
// the target, and the sample's weight is that of its label before smoothing, as in torch's cross_entropy.
double ImageLoader::load_training(ImageBatch& batch, int64_t b, int64_t epoch, int64_t sample) const {
  const auto i = static_cast<uint64_t>(sample);
  const int64_t label = data_.train->label(i), numel = sample_numel();
  auto* const pixels = batch.pixels.mutable_data_ptr<float>() + b * numel;
  VisitRng rng(seed_, epoch, sample);
  transform(data_.train->image(i), transform_, &rng, pixels);
  batch.labels[static_cast<size_t>(b)] = label;
  batch.targets[b].fill_(smoothing_ / static_cast<double>(classes_));
  const auto weight_of = [&](int64_t k) {
    return class_weights_.empty() ? 1.0 : class_weights_[static_cast<size_t>(k)];
  };
  double own = 1, weight = weight_of(label);  // share of the sample's own image; weight of the labels
  if (mixup_ > 0) {
    own = draw_beta(rng, mixup_);
    const auto other = static_cast<uint64_t>(rng.below(static_cast<int64_t>(data_.train->size())));
    std::vector<float> others(static_cast<size_t>(numel));
    transform(data_.train->image(other), transform_, &rng, others.data());
    const auto share = static_cast<float>(own), rest = static_cast<float>(1 - own);
    for (int64_t k = 0; k < numel; ++k) pixels[k] = share * pixels[k] + rest * others[static_cast<size_t>(k)];
    add_target(batch, b, data_.train->label(other), (1 - smoothing_) * (1 - own));
    weight += (1 - own) * (weight_of(data_.train->label(other)) - weight);
  }
  add_target(batch, b, label, (1 - smoothing_) * own);
  for (size_t k = 0; k < class_weights_.size(); ++k)
    batch.targets.mutable_data_ptr<float>()[b * classes_ + static_cast<int64_t>(k)] *=
        static_cast<float>(class_weights_[k]);
  return weight;
}

}  // namespace images
