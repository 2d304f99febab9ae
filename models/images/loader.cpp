// SPDX-License-Identifier: Apache-2.0
#include "loader.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace images {
namespace {

void set_scale(TransformOptions& t, std::string name) {
  if (name == "auto") name = t.channels == 1 ? "mnist" : "imagenet";
  if (name == "half") {
    t.mean = t.deviation = {0.5F, 0.5F, 0.5F};
  } else if (name == "imagenet") {
    t.mean = {0.485F, 0.456F, 0.406F}, t.deviation = {0.229F, 0.224F, 0.225F};
  } else if (name == "mnist") {
    t.mean = {0.1307F, 0.1307F, 0.1307F}, t.deviation = {0.3081F, 0.3081F, 0.3081F};
  }
}

int64_t given_or(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

}  // namespace

ImageLoader::ImageLoader(const ddh::Host& host, int64_t side, int64_t frames)
    : frames_(frames),
      data_(open_images(host, host.text("model.dataset"), frames)),
      seed_(static_cast<uint64_t>(host.i64("run.seed"))),
      smoothing_(host.f64("model.label_smoothing")),
      mixup_(host.f64("model.mixup")),
      classes_(given_or(host.i64("model.classes"), static_cast<int64_t>(data_.classes.size()))) {
  if ((frames > 0) != (host.text("model.dataset") == "moving_mnist"))
    ddh::fail(DDH_INVALID_ARGUMENT,
              "model.dataset=moving_mnist is for networks of videos (model.network=cnn_lstm of cnn),",
              " and these take only this data; change one of them");
  TransformOptions& t = transform_;
  t.side = given_or(host.i64("model.image_size"), given_or(side, data_.side));
  if (t.side == 0) ddh::fail(DDH_INVALID_ARGUMENT, "the images of data.path have several sizes; give model.image_size");
  t.resize = given_or(host.i64("model.resize"), t.side);
  if (t.resize < t.side)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.resize=", t.resize, " is less than the side of ", t.side,
              " pixels that is cut out; raise it or lower model.image_size");
  t.crop_padding = host.i64("model.crop_padding");
  t.flip = host.flag("model.flip");
  t.channels = given_or(host.i64("model.channels"), data_.channels);
  set_scale(t, host.text("model.normalize"));
  if (classes_ < static_cast<int64_t>(data_.classes.size()))
    ddh::fail(DDH_INVALID_ARGUMENT, "model.classes=", classes_, " is less than the ", data_.classes.size(),
              " classes of the data; raise it or set it to 0");
}

ImageBatch ImageLoader::load(const ddh_batch_args& args, bool training) const {
  const ImageSet& set = training ? *data_.train : *data_.eval;
  ImageBatch batch = empty_batch(args.n_samples);
  const int64_t numel = sample_numel();
  for (int64_t b = 0; b < batch.B(); ++b) {
    const auto sample = static_cast<uint64_t>(args.samples[b]);
    VisitRng rng(seed_, args.step, args.samples[b]);
    transform(set.image(sample), transform_, training ? &rng : nullptr,
              batch.pixels.mutable_data_ptr<float>() + b * numel);
    batch.labels[static_cast<size_t>(b)] = set.label(sample);
  }
  if (training) {
    mix(batch, args);
  } else {
    for (int64_t b = 0; b < batch.B(); ++b) set_target(batch, b, batch.labels[static_cast<size_t>(b)], 1);
  }
  return batch;
}

ImageBatch ImageLoader::batch_of(const std::vector<float>& pixels, const std::vector<int64_t>& labels) const {
  ImageBatch batch = empty_batch(static_cast<int64_t>(labels.size()));
  std::copy(pixels.begin(), pixels.end(), batch.pixels.mutable_data_ptr<float>());
  batch.labels = labels;
  for (int64_t b = 0; b < batch.B(); ++b) set_target(batch, b, labels[static_cast<size_t>(b)], 1);
  return batch;
}

ImageBatch ImageLoader::empty_batch(int64_t B) const {
  const TransformOptions& t = transform_;
  std::vector<int64_t> shape = {B, t.channels, t.side, t.side};
  if (frames_ > 0) shape.insert(shape.begin() + 1, frames_);
  return {at::empty(shape, at::kFloat), at::zeros({B, classes_}, at::kFloat),
          std::vector<int64_t>(static_cast<size_t>(B))};
}

void ImageLoader::set_target(ImageBatch& batch, int64_t b, int64_t label, double share) const {
  batch.targets.mutable_data_ptr<float>()[b * classes_ + label] += static_cast<float>(share);
}

// Targets of training: smoothed, and with mixup (Zhang et al. 2018) those of two images, which are mixed alike.
void ImageLoader::mix(ImageBatch& batch, const ddh_batch_args& args) const {
  double own = 1;  // share of the sample's own image
  if (mixup_ > 0 && batch.B() > 0) {
    // By the micro-batch's place, which no sample index reaches.
    VisitRng rng(seed_, args.step, -1 - args.global_micro_batch);
    own = draw_beta(rng, mixup_);
    const int64_t numel = sample_numel();
    auto *first = batch.pixels.mutable_data_ptr<float>(), *second = first + (batch.B() - 1) * numel;
    const auto a = static_cast<float>(own), b = static_cast<float>(1 - own);
    for (; first < second; first += numel, second -= numel) {
      for (int64_t i = 0; i < numel; ++i) {
        const float x = first[i], y = second[i];
        first[i] = a * x + b * y, second[i] = a * y + b * x;
      }
    }
  }
  batch.targets.fill_(smoothing_ / static_cast<double>(classes_));
  for (int64_t b = 0; b < batch.B(); ++b) {
    set_target(batch, b, batch.labels[static_cast<size_t>(b)], (1 - smoothing_) * own);
    if (own < 1)
      set_target(batch, b, batch.labels[static_cast<size_t>(batch.B() - 1 - b)], (1 - smoothing_) * (1 - own));
  }
}

}  // namespace images
