// SPDX-License-Identifier: Apache-2.0
//
// models/images/augment.hpp: each operation of TrivialAugment, and how they are drawn.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "../../../models/images/augment.hpp"

using namespace images;

namespace {

constexpr int64_t kHeight = 4, kWidth = 5;
const std::array<float, 3> kFill = {0.5F, 0.25F, 0.125F};

// Values that are whole 255ths, as those of a file, and differ between channels.
Planes picture() {
  Planes planes(3, std::vector<float>(kHeight * kWidth));
  for (size_t c = 0; c < planes.size(); ++c)
    for (size_t i = 0; i < planes[c].size(); ++i) planes[c][i] = static_cast<float>((37 * i + 71 * c) % 256) / 255.0F;
  return planes;
}

Planes after(Operation operation, double strength, Planes planes = picture()) {
  augment({operation, strength}, kHeight, kWidth, kFill, planes);
  return planes;
}

float at(const Planes& planes, size_t channel, int64_t row, int64_t column) {
  return planes[channel][static_cast<size_t>(row * kWidth + column)];
}

float mean(const std::vector<float>& plane) {
  float sum = 0;
  for (const float value : plane) sum += value;
  return sum / static_cast<float>(plane.size());
}

}  // namespace

TEST_CASE("a translation moves whole pixels and fills what becomes free") {
  const Planes before = picture(), right = after(Operation::kTranslateX, 2.0 / 32),
               up = after(Operation::kTranslateY, -1.0 / 32);
  for (size_t c = 0; c < 3; ++c) {
    for (int64_t row = 0; row < kHeight; ++row) {
      for (int64_t column = 0; column < kWidth; ++column) {
        CHECK(at(right, c, row, column) == (column < 2 ? kFill[c] : at(before, c, row, column - 2)));
        CHECK(at(up, c, row, column) == (row + 1 < kHeight ? at(before, c, row + 1, column) : kFill[c]));
      }
    }
  }
}

TEST_CASE("a rotation turns against the clock around the centre, and a shear leaves the middle row") {
  Planes square(1, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  for (float& value : square[0]) value /= 8;
  augment({Operation::kRotate, 90.0 / 135}, 3, 3, kFill, square);
  const std::vector<float> turned = {2, 5, 8, 1, 4, 7, 0, 3, 6};
  for (size_t i = 0; i < 9; ++i) CHECK(8 * square[0][i] == Approx(turned[i]).margin(1e-5));
  Planes odd(1, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  augment({Operation::kShearX, 1 / 0.99}, 3, 3, {9}, odd);  // one pixel for each row
  const std::vector<float> sheared = {9, 0, 1, 3, 4, 5, 7, 8, 9};
  for (size_t i = 0; i < 9; ++i) CHECK(odd[0][i] == Approx(sheared[i]).margin(1e-5));
}

TEST_CASE("brightness, colour, contrast and sharpness blend with black, gray, the mean and the smoothed image") {
  const Planes before = picture();
  const float gray = 0.299F * at(before, 0, 1, 1) + 0.587F * at(before, 1, 1, 1) + 0.114F * at(before, 2, 1, 1);
  CHECK(at(after(Operation::kBrightness, -0.5 / 0.99), 1, 1, 1) == Approx(0.5F * at(before, 1, 1, 1)));
  CHECK(at(after(Operation::kColor, -1 / 0.99), 0, 1, 1) == Approx(gray));
  CHECK(at(after(Operation::kColor, -1 / 0.99), 2, 1, 1) == Approx(gray));
  const Planes flat = after(Operation::kContrast, -1 / 0.99);
  const float level = 0.299F * mean(before[0]) + 0.587F * mean(before[1]) + 0.114F * mean(before[2]);
  for (const float value : flat[1]) CHECK(value == Approx(level).margin(1e-5));
  const Planes smoothed = after(Operation::kSharpness, -1 / 0.99);
  float sum = 4 * at(before, 0, 1, 1);
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t column = 0; column < 3; ++column) sum += at(before, 0, row, column);
  CHECK(at(smoothed, 0, 1, 1) == Approx(sum / 13));
  CHECK(at(smoothed, 0, 0, 3) == at(before, 0, 0, 3));  // the border stays
  const Planes bright = after(Operation::kBrightness, 1);
  for (const float value : bright[0]) CHECK((value >= 0 && value <= 1));
}

TEST_CASE("posterize clears low bits, solarize inverts bright pixels, and contrast is stretched") {
  const Planes before = picture(), coarse = after(Operation::kPosterize, 1), light = after(Operation::kSolarize, 0.5);
  Planes narrow(1, std::vector<float>(kHeight * kWidth, 0.25F));
  narrow[0][3] = 0.75F;
  narrow[0][4] = 0.5F;
  const Planes stretched = after(Operation::kAutoContrast, 0.3, narrow);
  CHECK(stretched[0][0] == 0);
  CHECK(stretched[0][3] == 1);
  CHECK(stretched[0][4] == 0.5F);
  for (size_t i = 0; i < before[1].size(); ++i) {
    const float value = before[1][i];
    CHECK(std::lround(coarse[1][i] * 255) == (std::lround(value * 255) & ~63));
    CHECK(light[1][i] == (value >= 0.5F ? 1 - value : value));
  }
}

// Pillow's ImageOps.equalize changes nothing in an image of few pixels with one main colour. Two equal halves become 0 and
// 255.
TEST_CASE("equalize flattens the histogram as Pillow does") {
  Planes few(1, std::vector<float>(20, 10.0F / 255));
  few[0][3] = 20.0F / 255, few[0][4] = 200.0F / 255;
  CHECK(after(Operation::kEqualize, 1, few) == few);
  Planes halves(1, std::vector<float>(1024, 100.0F / 255));
  std::fill(halves[0].begin() + 512, halves[0].end(), 101.0F / 255);
  augment({Operation::kEqualize, 0}, 32, 32, kFill, halves);
  CHECK(halves[0].front() == 0);
  CHECK(halves[0].back() == 1);
}

TEST_CASE("every operation and both directions are drawn, as a function of seed, epoch and sample") {
  std::map<Operation, std::set<double>> drawn;
  for (int64_t sample = 0; sample < 20000; ++sample) {
    VisitRng rng(5, 2, sample), again(5, 2, sample);
    const Augmentation a = draw_augmentation(rng), b = draw_augmentation(again);
    CHECK((a.operation == b.operation && a.strength == b.strength));
    drawn[a.operation].insert(a.strength);
  }
  CHECK(drawn.size() == static_cast<size_t>(Operation::kCount));
  CHECK(drawn[Operation::kRotate].size() == 61);  // 0 to 30 in both directions
  CHECK(drawn[Operation::kPosterize].size() == 31);
  CHECK(*drawn[Operation::kPosterize].begin() == 0);
  CHECK(*drawn[Operation::kRotate].begin() == -1);
}
