// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/shapes.hpp: five shapes as CAD sequences, as captions, as point clouds with normals and as silhouettes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace cad {

inline constexpr int64_t kShapes = 5;
extern const char* const kCaptions[kShapes];
extern const char* const kSequences[kShapes];

// How a sample differs from its shape: turned about the vertical axis, scaled, moved, with noise.
struct DDH_HIDDEN Perturbation {
  double angle, scale, shift_x, shift_y;
  ddh::CounterRng noise;
  uint64_t first;  // of its numbers in `noise`
  Perturbation(uint64_t seed, uint64_t sample);
};

// (n, 6): points on the surface within about [-1, 1], and their normals.
std::vector<float> shape_points(int64_t shape, int64_t n, const Perturbation& p);
// (3, side, side) in [-1, 1].
std::vector<float> shape_silhouette(int64_t shape, int64_t side, const Perturbation& p);

}  // namespace cad
