// SPDX-License-Identifier: Apache-2.0
//
// images/image_set.hpp: labelled images by index, from files in the formats of MNIST and CIFAR-10, from folders of PNG and
// JPEG files, or generated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace images {

constexpr uint64_t kMostPixels = uint64_t{1} << 28;  // of one image; more is a damaged header

struct Image {
  int64_t channels = 0, height = 0, width = 0;  // 1 channel is gray, 3 are red, green, blue
  std::vector<uint8_t> pixels;                  // (frames, channels, height, width)
  int64_t frames = 1;                           // more than 1: a video
};

// Read by several threads at once.
class ImageSet {
 public:
  ImageSet() = default;
  ImageSet(const ImageSet&) = delete;
  ImageSet& operator=(const ImageSet&) = delete;
  virtual ~ImageSet() = default;
  [[nodiscard]] virtual uint64_t size() const = 0;
  [[nodiscard]] virtual int64_t label(uint64_t i) const = 0;
  // Throws ddh::Error if a file can't be read.
  [[nodiscard]] virtual Image image(uint64_t i) const = 0;
};

// Images of one size, all in memory.
struct PackedImages final : ImageSet {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels;  // (images, channels, height, width)
  std::vector<uint8_t> labels;  // (images)
  [[nodiscard]] uint64_t size() const override { return labels.size(); }
  [[nodiscard]] int64_t label(uint64_t i) const override { return labels[i]; }
  [[nodiscard]] Image image(uint64_t i) const override {
    const auto bytes = static_cast<int64_t>(channels * height * width);
    const auto first = pixels.begin() + static_cast<int64_t>(i) * bytes;
    return {channels, height, width, {first, first + bytes}};
  }
};

struct ImageData {
  std::unique_ptr<ImageSet> train, eval;  // eval: nullptr if there is none
  int64_t channels = 0;                   // 1 or 3
  int64_t side = 0;                       // of square images of one size; 0: sizes may differ
  std::vector<std::string> classes;       // names
  size_t videos = 0;                      // whose frames are images
};

// The images of data.path, data.val_path and data.val_fraction. If `frames` is above 0: videos with that many frames each.
// Without data.path: the folder `dataset` where ddh::find_data finds it, else made-up images; the log says which.
// moving_mnist: videos made of mnist. Throws ddh::Error.
ImageData open_images(const ddh::Host& host, const std::string& dataset, int64_t frames);

// The formats. Any folder that is neither of the first two is a folder of images.
bool is_mnist(const std::string& folder);
bool is_cifar(const std::string& folder);
ImageData read_mnist(const std::string& folder);
ImageData read_cifar(const std::string& folder);
// Files that a folder has but that can't be used.
struct BadFiles {
  size_t n = 0, of = 0;
  std::string first;  // what is wrong with the first
};
// <folder>/<class>/<image>, or <folder>/train/... with <folder>/val/... or <folder>/test/... If there is neither,
// evaluation uses the folder `val_path`, or `val_fraction` of each class, at equal distances. In a class a folder of frames
// is a video: each frame is an image, and all of them are in the training or all in the evaluation. With `frames` above 0
// there are videos in place of images: a folder of frames, or a video file. With `passed_over` every one is decoded once, and
// bad ones are left out and counted.
ImageData read_folder(const std::string& folder, const std::string& val_path, double val_fraction, int64_t frames = 0,
                      BadFiles* passed_over = nullptr);
// Ten classes of stripes in noise: 28 x 28 pixels, gray, or 32 x 32 in colour.
ImageData make_up_images(bool colour);
// Videos of the images of `still`, each moving in one of eight directions, which are the classes.
ImageData move_images(ImageData still, int64_t frames);

// A PNG or JPEG file, by its content. Throws ddh::Error for other files and truncated ones.
Image decode(const std::string& path);

// The whole content of a file, unpacked if it is a gzip file.
std::vector<uint8_t> read_unpacked(const std::string& path);
// `path`, or `path`.gz; "" if neither is a file.
std::string packed_or_not(const std::string& path);

}  // namespace images
