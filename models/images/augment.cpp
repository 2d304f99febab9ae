// SPDX-License-Identifier: Apache-2.0
#include "augment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace images {
namespace {

constexpr double kMostShear = 0.99, kMostShift = 32, kMostDegrees = 135, kMostBlend = 0.99;
constexpr int kStrengths = 31, kMostBitsLost = 6;

bool has_direction(Operation operation) {
  return operation >= Operation::kShearX && operation <= Operation::kSharpness;
}

uint8_t byte_of(float value) { return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 1.0F) * 255)); }

// A pixel of the new image at (x, y) from the centre is the old one's at (xx x + xy y + dx, yx x + yy y + dy).
struct Affine {
  double xx = 1, xy = 0, dx = 0, yx = 0, yy = 1, dy = 0;
};

Affine affine_of(const Augmentation& a) {
  const double angle = a.strength * kMostDegrees * std::numbers::pi / 180;
  switch (a.operation) {
    case Operation::kShearX:
      return {.xy = a.strength * kMostShear};
    case Operation::kShearY:
      return {.yx = a.strength * kMostShear};
    case Operation::kTranslateX:
      return {.dx = -std::trunc(a.strength * kMostShift)};
    case Operation::kTranslateY:
      return {.dy = -std::trunc(a.strength * kMostShift)};
    default:
      return {std::cos(angle), -std::sin(angle), 0, std::sin(angle), std::cos(angle), 0};
  }
}

// Between the four pixels around (x, y); those outside of the plane have the value `fill`.
float linear_at(const std::vector<float>& plane, int64_t height, int64_t width, double x, double y, float fill) {
  const double left = std::floor(x), top = std::floor(y);
  const auto at = [&](double column, double row) {
    const bool inside =
        row >= 0 && row < static_cast<double>(height) && column >= 0 && column < static_cast<double>(width);
    return inside ? plane[static_cast<size_t>(row) * static_cast<size_t>(width) + static_cast<size_t>(column)] : fill;
  };
  const auto right_share = static_cast<float>(x - left), low_share = static_cast<float>(y - top);
  const float above = at(left, top) * (1 - right_share) + at(left + 1, top) * right_share;
  const float below = at(left, top + 1) * (1 - right_share) + at(left + 1, top + 1) * right_share;
  return above * (1 - low_share) + below * low_share;
}

void move(const Affine& m, int64_t height, int64_t width, float fill, std::vector<float>& plane) {
  const std::vector<float> old = plane;
  const double centre_x = static_cast<double>(width - 1) / 2, centre_y = static_cast<double>(height - 1) / 2;
  auto* to = plane.data();
  for (int64_t row = 0; row < height; ++row) {
    const double y = static_cast<double>(row) - centre_y;
    for (int64_t column = 0; column < width; ++column) {
      const double x = static_cast<double>(column) - centre_x;
      *to++ = linear_at(old, height, width, centre_x + m.xx * x + m.xy * y + m.dx,
                        centre_y + m.yx * x + m.yy * y + m.dy, fill);
    }
  }
}

// Luminance as of ITU-R BT.601; of a gray image its only channel.
std::vector<float> luminance(const Planes& planes) {
  std::vector<float> gray = planes[0];
  if (planes.size() < 3) return gray;
  for (size_t i = 0; i < gray.size(); ++i)
    gray[i] = 0.299F * planes[0][i] + 0.587F * planes[1][i] + 0.114F * planes[2][i];
  return gray;
}

// Each pixel is a weighted mean of its neighbours; those at the border stay.
std::vector<float> smooth(const std::vector<float>& plane, int64_t height, int64_t width) {
  std::vector<float> out = plane;
  for (int64_t row = 1; row + 1 < height; ++row) {
    for (int64_t column = 1; column + 1 < width; ++column) {
      const auto at = static_cast<size_t>(row * width + column);
      float sum = 4 * plane[at];
      for (int64_t dy = -1; dy <= 1; ++dy)
        for (int64_t dx = -1; dx <= 1; ++dx) sum += plane[static_cast<size_t>((row + dy) * width + column + dx)];
      out[at] = sum / 13;
    }
  }
  return out;
}

// plane = base + factor (plane - base). A factor above 1 exaggerates the difference.
void blend(const std::vector<float>& base, double factor, std::vector<float>& plane) {
  for (size_t i = 0; i < plane.size(); ++i)
    plane[i] = std::clamp(base[i] + static_cast<float>(factor) * (plane[i] - base[i]), 0.0F, 1.0F);
}

// Brightness, colour, contrast and sharpness move away from black, gray, the mean and the smoothed image, or towards them.
void blend_planes(const Augmentation& a, int64_t height, int64_t width, Planes& planes) {
  const double factor = 1 + a.strength * kMostBlend;
  std::vector<float> base(planes[0].size(), 0.0F);
  if (a.operation == Operation::kColor) base = luminance(planes);
  if (a.operation == Operation::kContrast) {
    const std::vector<float> gray = luminance(planes);
    double sum = 0;
    for (const float value : gray) sum += value;
    std::fill(base.begin(), base.end(), static_cast<float>(sum / static_cast<double>(gray.size())));
  }
  for (std::vector<float>& plane : planes)
    blend(a.operation == Operation::kSharpness ? smooth(plane, height, width) : base, factor, plane);
}

void posterize(double strength, std::vector<float>& plane) {
  const auto lost = static_cast<unsigned>(std::lround(strength * kMostBitsLost));
  for (float& value : plane)
    value = static_cast<float>((static_cast<unsigned>(byte_of(value)) >> lost) << lost) / 255.0F;
}

void solarize(double strength, std::vector<float>& plane) {
  const auto threshold = static_cast<float>(1 - strength);
  for (float& value : plane)
    if (value >= threshold) value = 1 - value;
}

void stretch(std::vector<float>& plane) {
  const auto [low, high] = std::minmax_element(plane.begin(), plane.end());
  const float from = *low, range = *high - *low;
  if (range <= 0) return;
  for (float& value : plane) value = (value - from) / range;
}

// The histogram becomes as flat as 256 levels allow, in the way of Pillow's ImageOps.equalize.
void equalize(std::vector<float>& plane) {
  std::array<int64_t, 256> count{};
  for (const float value : plane) ++count[byte_of(value)];
  const auto last = std::find_if(count.rbegin(), count.rend(), [](int64_t n) { return n > 0; });
  const int64_t step = (static_cast<int64_t>(plane.size()) - *last) / 255;
  if (step == 0) return;
  std::array<float, 256> level{};
  int64_t sum = step / 2;
  for (size_t i = 0; i < level.size(); ++i) {
    level[i] = static_cast<float>(std::min<int64_t>(255, sum / step)) / 255.0F;
    sum += count[i];
  }
  for (float& value : plane) value = level[byte_of(value)];
}

void apply(const Augmentation& a, int64_t height, int64_t width, float fill, std::vector<float>& plane) {
  switch (a.operation) {
    case Operation::kPosterize:
      return posterize(a.strength, plane);
    case Operation::kSolarize:
      return solarize(a.strength, plane);
    case Operation::kAutoContrast:
      return stretch(plane);
    case Operation::kEqualize:
      return equalize(plane);
    default:
      return move(affine_of(a), height, width, fill, plane);
  }
}

}  // namespace

Augmentation draw_augmentation(VisitRng& rng) {
  Augmentation a;
  a.operation = static_cast<Operation>(rng.below(static_cast<int64_t>(Operation::kCount)));
  a.strength = static_cast<double>(rng.below(kStrengths)) / (kStrengths - 1);
  if (rng.uniform() < 0.5 && has_direction(a.operation)) a.strength = -a.strength;
  return a;
}

void augment(const Augmentation& a, int64_t height, int64_t width, const std::array<float, 3>& fill, Planes& planes) {
  if (a.operation == Operation::kIdentity) return;
  if (a.operation >= Operation::kBrightness && a.operation <= Operation::kSharpness)
    return blend_planes(a, height, width, planes);
  for (size_t c = 0; c < planes.size(); ++c) apply(a, height, width, fill[c], planes[c]);
}

}  // namespace images
