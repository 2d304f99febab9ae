// SPDX-License-Identifier: Apache-2.0
#include "shapes.hpp"

#include <array>
#include <cmath>
#include <numbers>

#include "data.hpp"

namespace cad {

const char* const kCaptions[kShapes] = {"Generate a CAD model with a rectangular shape.",
                                        "Generate a CAD model with a cylindrical component.",
                                        "Generate a CAD model with a circular base and vertical walls.",
                                        "Generate a CAD model featuring curved surfaces and smooth edges.",
                                        "Generate a CAD model with multiple circular holes arranged symmetrically."};
const char* const kSequences[kShapes] = {
    R"({"type":"rectangle","width":10,"height":5})", R"({"type":"cylinder","radius":3,"height":8})",
    R"({"type":"circle","radius":5,"extrude":10})", R"({"type":"curve","points":[[0,0],[5,5],[10,0]]})",
    R"({"type":"pattern","base":"circle","count":4})"};

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kPointNoise = 0.02, kPixelNoise = 0.2;

struct SurfacePoint {
  std::array<double, 3> at, normal;
};

// Box of the half sizes 0.9, 0.45, 0.25: a face by its area, then a place on it.
SurfacePoint on_box(double u, double v, double w) {
  constexpr std::array<double, 3> kHalf = {0.9, 0.45, 0.25};
  const std::array<double, 3> areas = {kHalf[1] * kHalf[2], kHalf[0] * kHalf[2], kHalf[0] * kHalf[1]};
  double left = u * 2 * (areas[0] + areas[1] + areas[2]);
  size_t axis = 0;
  while (axis < 2 && left >= 2 * areas.at(axis)) left -= 2 * areas.at(axis++);
  const double side = left < areas.at(axis) ? -1 : 1;
  SurfacePoint p{{}, {}};
  p.at.at(axis) = side * kHalf.at(axis);
  p.normal.at(axis) = side;
  p.at.at((axis + 1) % 3) = (2 * v - 1) * kHalf.at((axis + 1) % 3);
  p.at.at((axis + 2) % 3) = (2 * w - 1) * kHalf.at((axis + 2) % 3);
  return p;
}

// Cylinder with caps about the vertical axis.
SurfacePoint on_cylinder(double radius, double half_height, double u, double v, double w) {
  const double angle = 2 * kPi * v, wall = 2 * half_height, cap = radius;  // areas over 2 pi radius
  if (u * (wall + cap) < wall)
    return {{radius * std::cos(angle), radius * std::sin(angle), (2 * w - 1) * half_height},
            {std::cos(angle), std::sin(angle), 0}};
  const double side = u * (wall + cap) - wall < cap / 2 ? -1 : 1, r = radius * std::sqrt(w);
  return {{r * std::cos(angle), r * std::sin(angle), side * half_height}, {0, 0, side}};
}

// Sheet z = 0.7 - 1.4 x^2, 1.2 wide in y.
SurfacePoint on_curve(double u, double v) {
  const double x = 1.8 * u - 0.9, slope = -2.8 * x, length = std::hypot(1.0, slope);
  return {{x, 1.2 * v - 0.6, 0.7 - 1.4 * x * x}, {-slope / length, 0, 1 / length}};
}

// Walls of four holes on a ring, whose normals point to their axes.
SurfacePoint on_holes(double u, double v, double w) {
  const double hole = std::floor(4 * u), around = kPi / 4 + hole * kPi / 2, angle = 2 * kPi * v;
  return {
      {0.65 * std::cos(around) + 0.2 * std::cos(angle), 0.65 * std::sin(around) + 0.2 * std::sin(angle), 0.4 * w - 0.2},
      {-std::cos(angle), -std::sin(angle), 0}};
}

SurfacePoint on_shape(int64_t shape, double u, double v, double w) {
  switch (shape) {
    case 0:
      return on_box(u, v, w);
    case 1:
      return on_cylinder(0.35, 0.9, u, v, w);
    case 2:
      return on_cylinder(0.8, 0.1, u, v, w);
    case 3:
      return on_curve(u, v);
    default:
      return on_holes(u, v, w);
  }
}

// Whether a place of the picture lies in the silhouette.
bool covers(int64_t shape, double x, double y) {
  switch (shape) {
    case 0:
      return std::abs(x) < 0.9 && std::abs(y) < 0.45;
    case 1: {  // from the side, slightly from above
      const double lid = 0.15 * std::sqrt(std::max(0.0, 1 - x * x / (0.4 * 0.4)));
      return std::abs(x) < 0.4 && std::abs(y) < 0.75 + lid;
    }
    case 2:
      return std::hypot(x, y) < 0.75;
    case 3:
      return std::abs(x) < 0.9 && std::abs(y - (0.6 - 1.4 * x * x)) < 0.15;
    default:
      return std::hypot(std::abs(x) - 0.5, std::abs(y) - 0.5) < 0.28;
  }
}

class MadeUp final : public ItemSet {
 public:
  MadeUp(const Config& config, uint64_t n, uint64_t first)
      : image_(config.image), point_(config.point), seed_(config.seed), n_(n), first_(first) {}
  [[nodiscard]] uint64_t size() const override { return n_; }
  [[nodiscard]] std::pair<std::string, std::string> texts(uint64_t i) const override {
    return {std::string(kCaptions[i % kShapes]) + "\n", kSequences[i % kShapes]};
  }
  [[nodiscard]] Item item(uint64_t i, Inputs wanted) const override {
    const auto shape = static_cast<int64_t>(i % kShapes);
    const Perturbation p(seed_, first_ + i);
    const auto [prompt, target] = texts(i);
    Item item{prompt, target, {}, {}};
    if (wanted.image) item.pixels = views_of(shape, p);
    if (wanted.points) item.points = shape_points(shape, point_.points, p);
    return item;
  }

 private:
  // Each further view is turned and has its own noise. A silhouette lies in -1 to 1, its noise beyond.
  [[nodiscard]] std::vector<float> views_of(int64_t shape, const Perturbation& p) const {
    const images::TransformOptions scale = transform_of(image_);
    std::vector<float> out;
    Perturbation seen = p;
    for (int64_t view = 0; view < image_.views; ++view) {
      const std::vector<float> pixels = shape_silhouette(shape, image_.side, seen);
      for (size_t i = 0; i < pixels.size(); ++i) {
        const float mean = scale.mean.at(3 * i / pixels.size()), deviation = scale.deviation.at(3 * i / pixels.size());
        out.push_back(pixels[i] * (0.5F / deviation) + (0.5F - mean) / deviation);
      }
      seen.angle += 2 * kPi / static_cast<double>(image_.views);
      seen.first += uint64_t{1} << 33;
    }
    return out;
  }

  const ImageShape image_;
  const PointShape point_;
  const uint64_t seed_, n_, first_;
};

}  // namespace

Perturbation::Perturbation(uint64_t seed, uint64_t sample)
    : noise(seed, "cad_mllm.shapes"), first(ddh::mix64(sample + ddh::kMixStep)) {
  const auto between = [&](uint64_t i, double low, double high) {
    return low + (high - low) * noise.uniform(first + i);
  };
  angle = between(0, -0.3, 0.3);
  scale = between(1, 0.85, 1.1);
  shift_x = between(2, -0.1, 0.1);
  shift_y = between(3, -0.1, 0.1);
}

std::vector<float> shape_points(int64_t shape, int64_t n, const Perturbation& p) {
  std::vector<float> out;
  const double c = std::cos(p.angle), s = std::sin(p.angle);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t draws = p.first + 16 + 8 * static_cast<uint64_t>(i);
    const auto uniform = [&](uint64_t k) { return p.noise.uniform(draws + k); };
    const SurfacePoint q = on_shape(shape, uniform(0), uniform(1), uniform(2));
    const auto noise = [&](uint64_t k) { return kPointNoise * (2 * uniform(3 + k) - 1); };
    const std::array<double, 6> values = {p.scale * (c * q.at[0] - s * q.at[1]) + p.shift_x + noise(0),
                                          p.scale * (s * q.at[0] + c * q.at[1]) + p.shift_y + noise(1),
                                          p.scale * q.at[2] + noise(2),
                                          c * q.normal[0] - s * q.normal[1],
                                          s * q.normal[0] + c * q.normal[1],
                                          q.normal[2]};
    for (const double value : values) out.push_back(static_cast<float>(value));
  }
  return out;
}

std::vector<float> shape_silhouette(int64_t shape, int64_t side, const Perturbation& p) {
  constexpr int kSub = 2;  // places of a pixel in each direction
  std::vector<float> plane;
  const double c = std::cos(p.angle), s = std::sin(p.angle), pixel = 2.2 / static_cast<double>(side);
  for (int64_t row = 0; row < side; ++row) {
    for (int64_t column = 0; column < side; ++column) {
      int covered = 0;
      for (int k = 0; k < kSub * kSub; ++k) {
        const int sub_row = k / kSub;
        const double x = (static_cast<double>(column) + (k % kSub + 0.5) / kSub) * pixel - 1.1 - p.shift_x;
        const double y = 1.1 - (static_cast<double>(row) + (sub_row + 0.5) / kSub) * pixel - p.shift_y;
        covered += covers(shape, (c * x + s * y) / p.scale, (c * y - s * x) / p.scale) ? 1 : 0;
      }
      const double noise = kPixelNoise * (p.noise.uniform(p.first + (uint64_t{1} << 32) + plane.size()) - 0.5);
      plane.push_back(static_cast<float>(2.0 * covered / (kSub * kSub) - 1 + noise));
    }
  }
  std::vector<float> out;
  for (int channel = 0; channel < 3; ++channel) out.insert(out.end(), plane.begin(), plane.end());
  return out;
}

CadData make_up_data(const Config& config, int64_t n_train) {
  const auto n = static_cast<uint64_t>(n_train), n_eval = (n + kShapes - 1) / kShapes;
  CadData data;
  data.train = std::make_unique<MadeUp>(config, n, 0);
  data.eval = std::make_unique<MadeUp>(config, n_eval, uint64_t{1} << 40);  // perturbed otherwise than any of training
  return data;
}

}  // namespace cad
