// SPDX-License-Identifier: Apache-2.0
//
// images/loader.hpp: batches of images and targets for a classifier, and their options in section model.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/kind/model.h"
#include "ddh/sdk/batch_view.hpp"
#include "ddh/sdk/files/find_data.hpp"
#include "ddh/sdk/options.hpp"
#include "image_set.hpp"
#include "transform.hpp"

namespace images {

struct ImageBatch {
  at::Tensor pixels;            // (B, channels, side, side) fp32; of videos (B, frames, channels, side, side)
  at::Tensor targets;           // (B, classes) fp32: the distribution that the loss compares with
  std::vector<int64_t> labels;  // (B): the class that accuracy counts
  double weight = 0;            // of all labels: what the loss is divided by; B without class weights
  [[nodiscard]] int64_t B() const { return static_cast<int64_t>(labels.size()); }
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(pixels.nbytes() + targets.nbytes()); }
};

inline constexpr ddh::Option kOptions[] = {
    {"dataset", "string", R"("mnist")", R"("enum": ["mnist", "cifar10_subset", "made_up", "moving_mnist"])",
     "data if data.path is empty: " DDH_DATA_PLACES "; made_up: generated; moving_mnist: videos"},
    {"bad_data", "string", R"("refuse")", R"("enum": ["refuse", "skip"])",
     "images or videos of a folder that cannot be decoded; skip: every rank decodes all of them once at the start, bad "
     "ones are passed over, and their number is logged"},
    {"image_size", "integer", "0", R"("minimum": 0, "maximum": 4096, "x-unit": "pixels", "x-affects": "memory")",
     "side of the square that the model sees; 0: that of the model's size, or of the data, or the least that the "
     "network basic takes"},
    {"resize", "integer", "0", R"("minimum": 0, "maximum": 8192, "x-unit": "pixels")",
     "shorter side of an image before a square is cropped (randomly in training); 0: image_size"},
    {"crop_padding", "integer", "0", R"("minimum": 0, "maximum": 1024, "x-unit": "pixels")",
     "border around the image before a random square is cropped in training"},
    {"flip", "boolean", "false", "", "mirror half of the images in training"},
    {"trivial_augment", "boolean", "false", "",
     "one random operation of random strength on each training image: TrivialAugment, with the ranges of torchvision's "
     "TrivialAugmentWide"},
    {"cutout", "integer", "0", R"("minimum": 0, "maximum": 4096, "x-unit": "pixels")",
     "side of a square at a random place of each training image that gets the mean colour; 0: off"},
    {"normalize", "string", R"("auto")", R"("enum": ["auto", "none", "half", "imagenet", "mnist"])",
     "mean and deviation of pixels; none: in 0 to 1; half: in -1 to 1; auto: of MNIST for gray images, else of "
     "ImageNet"},
    {"channels", "integer", "0", R"("enum": [0, 1, 3])",
     "channels of the images that the model sees; 0: as in the data"},
    {"classes", "integer", "0", R"("minimum": 0, "maximum": 1048576)",
     "number of outputs; 0: the number of classes in the data"},
    {"label_smoothing", "number", "0.0", R"("minimum": 0, "maximum": 0.9)",
     "fraction of the target that is spread over all classes in training"},
    {"mixup", "number", "0.0", R"("minimum": 0, "maximum": 100)",
     "training: each image is mixed with another of the training data by a share from Beta(alpha, alpha); this is "
     "alpha; "
     "0: off"},
    {"class_weights", "array|string", R"("none")", R"("items": {"type": "number"})",
     "weights of the classes in the training loss, which is divided by the sum of the weights of the samples' labels: "
     "none, a list of one weight for each class, or balanced: inverse to the number of training samples of the class"},
};

class ImageLoader {
 public:
  // Reads section model and data. `side`: of the model's size, 0: it has none. `frames`: of a video; 0: the model takes
  // images. `least_side`: without model.image_size, smaller images are enlarged to it. Throws ddh::Error.
  ImageLoader(const ddh::Host& host, int64_t side, int64_t frames = 0, int64_t least_side = 0);

  // Samples of the training or evaluation data. Several threads may call it at once.
  [[nodiscard]] ImageBatch load(const ddh_batch_args& args, bool training) const;
  // A batch of given pixels (B, [frames,] channels, side, side), as in an evaluation.
  [[nodiscard]] ImageBatch batch_of(const std::vector<float>& pixels, const std::vector<int64_t>& labels) const;

  // A sample as the model reads it: its pixels (as in a batch), its class, and its targets unless they say the same.
  void show(const float* pixels, int64_t label, const at::Tensor& targets, const ddh::SampleParts& parts) const;

  [[nodiscard]] int64_t side() const { return transform_.side; }
  [[nodiscard]] int64_t frames() const { return frames_; }  // 0: images
  [[nodiscard]] int64_t channels() const { return transform_.channels; }
  [[nodiscard]] int64_t classes() const { return classes_; }
  // For ddh_model_desc: the names of the classes.
  [[nodiscard]] std::string meaning_of_ids() const;
  [[nodiscard]] uint64_t n_train() const { return data_.train->size(); }
  [[nodiscard]] uint64_t n_eval() const { return data_.eval != nullptr ? data_.eval->size() : 0; }

 private:
  [[nodiscard]] ImageBatch empty_batch(int64_t B) const;
  // Pixels of a sample in a batch.
  [[nodiscard]] int64_t sample_numel() const {
    return (frames_ > 0 ? frames_ : 1) * transform_.channels * transform_.side * transform_.side;
  }
  // Writes the pixels and the target of sample `b` in training. Returns the weight of its label, with mixup of both labels.
  double load_training(ImageBatch& batch, int64_t b, int64_t epoch, int64_t sample) const;
  void add_target(ImageBatch& batch, int64_t b, int64_t label, double share) const;
  [[nodiscard]] std::vector<double> read_class_weights(const ddh::Host& host) const;

  const int64_t frames_;
  const ImageData data_;
  const uint64_t seed_;
  const double smoothing_, mixup_;
  TransformOptions transform_;
  int64_t classes_;
  std::vector<double> class_weights_;  // empty: none
};

}  // namespace images
