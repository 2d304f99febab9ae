// SPDX-License-Identifier: Apache-2.0
#include "transform.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "augment.hpp"

namespace images {
namespace {

// The weights of one new pixel: those of the old pixels first, first + 1, ..; their sum is 1.
struct Taps {
  int64_t first;
  std::vector<float> weights;
};

// A triangle over the old pixels around the new one's centre, wider where the image shrinks.
std::vector<Taps> taps(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), radius = std::max(scale, 1.0);
  std::vector<Taps> out;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - radius + 0.5)));
    const auto end = std::min(from, static_cast<int64_t>(std::floor(centre + radius + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (int64_t at = first; at < end; ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / radius));
      sum += weights.back();
    }
    Taps& t = out.emplace_back(Taps{first, {}});
    for (const double w : weights) t.weights.push_back(static_cast<float>(w / sum));
  }
  return out;
}

// The planes of a frame in [0, 1], as many as the model takes.
std::vector<std::vector<float>> planes_of(const Image& image, int64_t frame, int64_t channels) {
  const auto numel = static_cast<size_t>(image.height * image.width);
  const uint8_t* pixels = image.pixels.data() + static_cast<size_t>(frame * image.channels) * numel;
  std::vector<std::vector<float>> planes;
  for (size_t c = 0; c < static_cast<size_t>(image.channels); ++c) {
    std::vector<float>& plane = planes.emplace_back(numel);
    for (size_t i = 0; i < numel; ++i) plane[i] = static_cast<float>(pixels[c * numel + i]) / 255.0F;
  }
  if (channels == 1 && image.channels == 3) {  // luminance as of ITU-R BT.601
    for (size_t i = 0; i < numel; ++i)
      planes[0][i] = 0.299F * planes[0][i] + 0.587F * planes[1][i] + 0.114F * planes[2][i];
    planes.resize(1);
  }
  return planes;
}

// A draw from Gamma(shape, 1) (Marsaglia and Tsang 2000).
double draw_gamma(VisitRng& rng, double shape) {
  if (shape < 1) {
    const double u = 1 - rng.uniform();
    return draw_gamma(rng, shape + 1) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
    const double x = radius * std::cos(2 * std::numbers::pi * rng.uniform());
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - rng.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// A square of the mean colour around a random pixel (DeVries and Taylor 2017). A part of it may lie outside of the image.
void cut_out(int64_t planes, const TransformOptions& options, VisitRng& rng, float* pixels) {
  const int64_t side = options.side;
  const auto ends = [&] {
    const int64_t first = rng.below(side) - options.cutout / 2;
    return std::pair(std::max<int64_t>(0, first), std::min(side, first + options.cutout));
  };
  const auto [top, bottom] = ends();
  const auto [left, right] = ends();
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = top; y < bottom; ++y) {
      float* const row = pixels + (plane * side + y) * side;
      std::fill(row + left, row + right, 0.0F);
    }
  }
}

// Where the middle begins if `spare` pixels are left over: a half goes to the even neighbour, as in torchvision's CenterCrop.
int64_t middle(int64_t spare) { return spare / 2 + (spare % 4 == 3 ? 1 : 0); }

}  // namespace

void set_scale(TransformOptions& options, std::string_view name) {
  if (name == "auto") name = options.channels == 1 ? "mnist" : "imagenet";
  if (name == "half") {
    options.mean = options.deviation = {0.5F, 0.5F, 0.5F};
  } else if (name == "imagenet") {
    options.mean = {0.485F, 0.456F, 0.406F}, options.deviation = {0.229F, 0.224F, 0.225F};
  } else if (name == "mnist") {
    options.mean = {0.1307F, 0.1307F, 0.1307F}, options.deviation = {0.3081F, 0.3081F, 0.3081F};
  }
}

std::vector<float> resize_plane(const std::vector<float>& from, int64_t height, int64_t width, int64_t to_height,
                                int64_t to_width) {
  if (height == to_height && width == to_width) return from;
  const std::vector<Taps> columns = taps(width, to_width), rows = taps(height, to_height);
  std::vector<float> narrow(static_cast<size_t>(height * to_width)), out(static_cast<size_t>(to_height * to_width));
  auto* to = narrow.data();
  for (int64_t y = 0; y < height; ++y) {
    const float* row = from.data() + y * width;
    for (const Taps& t : columns) {
      float sum = 0;
      for (size_t k = 0; k < t.weights.size(); ++k) sum += t.weights[k] * row[t.first + static_cast<int64_t>(k)];
      *to++ = sum;
    }
  }
  to = out.data();
  for (const Taps& t : rows) {
    for (size_t k = 0; k < t.weights.size(); ++k) {
      const float* row = narrow.data() + (t.first + static_cast<int64_t>(k)) * to_width;
      for (int64_t x = 0; x < to_width; ++x) to[x] += t.weights[k] * row[x];
    }
    to += to_width;
  }
  return out;
}

void transform(const Image& image, const TransformOptions& options, VisitRng* rng, float* out) {
  const int64_t shorter = std::min(image.height, image.width), side = options.side;
  // The shorter side becomes `resize`, the other in proportion, without its fraction: torchvision's Resize.
  const int64_t height = image.height * options.resize / shorter, width = image.width * options.resize / shorter;
  const int64_t padding = rng != nullptr ? options.crop_padding : 0;
  const int64_t spare_y = height + 2 * padding - side, spare_x = width + 2 * padding - side;
  const int64_t top = (rng != nullptr ? rng->below(spare_y + 1) : middle(spare_y)) - padding;
  const int64_t left = (rng != nullptr ? rng->below(spare_x + 1) : middle(spare_x)) - padding;
  const bool mirrored = rng != nullptr && options.flip && rng->uniform() < 0.5;
  const Augmentation augmentation =
      rng != nullptr && options.trivial_augment ? draw_augmentation(*rng) : Augmentation{};
  float* const pixels = out;
  const auto write_plane = [&](const std::vector<float>& plane, float mean, float scale) {
    for (int64_t y = 0; y < side; ++y) {
      for (int64_t x = 0; x < side; ++x) {
        const int64_t from_y = top + y, from_x = left + (mirrored ? side - 1 - x : x);
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        *out++ = inside ? (plane[static_cast<size_t>(from_y * width + from_x)] - mean) * scale : 0.0F;
      }
    }
  };
  for (int64_t frame = 0; frame < image.frames; ++frame) {
    std::vector<std::vector<float>> planes = planes_of(image, frame, options.channels);
    for (std::vector<float>& plane : planes) plane = resize_plane(plane, image.height, image.width, height, width);
    augment(augmentation, height, width, options.mean, planes);
    for (size_t c = 0; c < static_cast<size_t>(options.channels); ++c)
      write_plane(planes[std::min(c, planes.size() - 1)], options.mean[c], 1 / options.deviation[c]);
  }
  if (rng != nullptr && options.cutout > 0) cut_out(image.frames * options.channels, options, *rng, pixels);
}

std::vector<uint8_t> shown_pixels(const float* pixels, int64_t frames, const TransformOptions& options) {
  const int64_t channels = options.channels, numel = options.side * options.side;
  std::vector<uint8_t> out(static_cast<size_t>(frames * channels * numel));
  for (int64_t plane = 0; plane < frames * channels; ++plane) {
    const auto channel = static_cast<size_t>(plane % channels);
    const int64_t first = plane / channels * numel * channels + plane % channels;
    for (int64_t i = 0; i < numel; ++i) {
      const float value = pixels[plane * numel + i] * options.deviation[channel] + options.mean[channel];
      out[static_cast<size_t>(first + i * channels)] =
          static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 1.0F) * 255.0F));
    }
  }
  return out;
}

double draw_beta(VisitRng& rng, double alpha) {
  const double a = draw_gamma(rng, alpha), b = draw_gamma(rng, alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

}  // namespace images
