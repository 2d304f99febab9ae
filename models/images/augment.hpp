// SPDX-License-Identifier: Apache-2.0
//
// images/augment.hpp: TrivialAugment (Mueller and Hutter 2021, "wide"): one random operation of random strength on each
// training image. Names and ranges are those of torchvision's TrivialAugmentWide. Other than there, images are interpolated
// linearly, sheared about their centre, and filled with the mean colour.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transform.hpp"

namespace images {

// The channels of a frame: (height * width) each, in [0, 1].
using Planes = std::vector<std::vector<float>>;

enum class Operation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kCount
};

struct Augmentation {
  Operation operation = Operation::kIdentity;
  // In [-1, 1]: the fraction of the operation's range. Negative only for operations with a direction.
  double strength = 0;
};

// Each operation is as likely as any other, and so are 31 strengths from 0 on.
Augmentation draw_augmentation(VisitRng& rng);

// `fill`: per channel, what appears where the old image ends.
void augment(const Augmentation& augmentation, int64_t height, int64_t width, const std::array<float, 3>& fill,
             Planes& planes);

}  // namespace images
