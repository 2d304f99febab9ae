// SPDX-License-Identifier: Apache-2.0
//
// images/transform.hpp: converts an image to the numbers that a model takes: resizes, crops to a square, flips and scales
// it. Random choices in training depend only on (seed, epoch, sample index), not on the step, the ranks or the thread that
// loads the data.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "image_set.hpp"

namespace images {

struct TransformOptions {
  int64_t side = 0;              // of the square that comes out
  int64_t resize = 0;            // length of the shorter side before the square is cut
  int64_t crop_padding = 0;      // pixels of the mean colour around the image, in training
  bool flip = false;             // half of the images are mirrored, in training
  bool trivial_augment = false;  // one random operation (images/augment.hpp), in training
  int64_t cutout = 0;            // side of a square of the mean colour at a random place, in training
  int64_t channels = 0;          // 1 or 3
  std::array<float, 3> mean{}, deviation{1, 1, 1};  // of each channel, pixels being in [0, 1]
};

// Mean and deviation by their name: none, half, imagenet or mnist; auto: of MNIST for one channel, else of ImageNet.
void set_scale(TransformOptions& options, std::string_view name);

// Random numbers for one use of a sample. An epoch uses a sample once.
class DDH_HIDDEN VisitRng {
 public:
  VisitRng(uint64_t seed, int64_t epoch, int64_t sample)
      : stream_(seed, "images"),
        first_(ddh::mix64(ddh::mix64(static_cast<uint64_t>(epoch) + ddh::kMixStep) + static_cast<uint64_t>(sample))) {}
  double uniform() { return stream_.uniform(first_ + draws_++); }  // in [0, 1)
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }

 private:
  const ddh::CounterRng stream_;
  const uint64_t first_;
  uint64_t draws_ = 0;
};

// Writes (frames, channels, side, side) to `out`, with the same choices for all frames. `rng`: nullptr in an evaluation,
// which crops the middle, as torchvision. A gray image is repeated for three channels; one channel of a colour image is its
// luminance.
void transform(const Image& image, const TransformOptions& options, VisitRng* rng, float* out);

// One plane, (height, width) -> (to_height, to_width): bilinear, and averaged over the covered pixels if it shrinks.
std::vector<float> resize_plane(const std::vector<float>& from, int64_t height, int64_t width, int64_t to_height,
                                int64_t to_width);

// Pixels that transform has written, (frames, channels, side, side), back in 0 to 255: (frames, side, side, channels). What
// augmentation has made brighter than white, or darker than black, is cut.
std::vector<uint8_t> shown_pixels(const float* pixels, int64_t frames, const TransformOptions& options);

// A draw from Beta(alpha, alpha), alpha > 0.
double draw_beta(VisitRng& rng, double alpha);

}  // namespace images
