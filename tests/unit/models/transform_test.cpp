// SPDX-License-Identifier: Apache-2.0
//
// The transformation of an image for a model.
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "../../models/images/loader.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/compare.hpp"

using namespace ddhost::test;
using images::TransformOptions;
using images::VisitRng;

namespace {

images::Image ramp(int64_t channels, int64_t height, int64_t width) {
  images::Image image{channels, height, width, std::vector<uint8_t>(static_cast<size_t>(channels * height * width))};
  std::iota(image.pixels.begin(), image.pixels.end(), uint8_t{0});
  return image;
}

// Pixels as bytes again.
std::vector<int> transformed(const images::Image& image, const TransformOptions& options, VisitRng* rng) {
  std::vector<float> out(static_cast<size_t>(image.frames * options.channels * options.side * options.side));
  images::transform(image, options, rng, out.data());
  std::vector<int> bytes;
  for (const float x : out) bytes.push_back(static_cast<int>(std::lround(x * 255)));
  return bytes;
}

// Row and column of an image where the middle of `side` pixels begins, without resizing.
std::pair<int, int> middle_of(int64_t height, int64_t width, int64_t side) {
  images::Image rows{1, height, width, {}}, columns = rows;
  for (int64_t i = 0; i < height * width; ++i) {
    rows.pixels.push_back(static_cast<uint8_t>(i / width));
    columns.pixels.push_back(static_cast<uint8_t>(i % width));
  }
  const TransformOptions options{.side = side, .resize = std::min(height, width), .channels = 1};
  return {transformed(rows, options, nullptr)[0], transformed(columns, options, nullptr)[0]};
}

images::ImageLoader loader(FakeHost::Options options) {
  options.insert({{"model.dataset", "made_up"}, {"data.path", ""}, {"run.seed", "7"}});
  FakeHost host(options);
  for (const ddh::Option& option : images::kOptions) {
    const nlohmann::json value = nlohmann::json::parse(option.default_value);
    host.set_default("model." + std::string(option.name), value.is_string() ? value.get<std::string>() : value.dump());
  }
  return {ddh::Host(host.get()), 0};
}

images::ImageBatch load(const images::ImageLoader& from, const std::vector<int64_t>& samples, int64_t epoch = 0,
                        bool training = true, int64_t step = 1) {
  const std::vector<int64_t> epochs(samples.size(), epoch);
  const ddh_batch_args args{
      sizeof(ddh_batch_args), training ? 0 : 1, step, 0, static_cast<uint32_t>(samples.size()), samples.data(), 0,
      epochs.data()};
  return from.load(args, training);
}

}  // namespace

TEST_CASE("resizing keeps uniform areas, and averages all pixels that a new one covers") {
  const std::vector<float> constant(12, 0.3F);
  for (const float x : images::resize_plane(constant, 3, 4, 5, 2)) CHECK(x == Approx(0.3));
  // Twice as wide: halfway between centres, as torch's bilinear with align_corners=False.
  const std::vector<float> wide = images::resize_plane({0, 1}, 1, 2, 1, 4);
  CHECK(wide == std::vector<float>{0, 0.25F, 0.75F, 1});
  // Half as wide: a triangle over four pixels, 1/8 3/8 3/8 1/8, cut at the border; as torch's antialias=True.
  const std::vector<float> narrow = images::resize_plane({0, 0, 7, 8, 0, 0, 0, 0}, 1, 8, 1, 4);
  CHECK(narrow[0] == Approx(1.0));  // (3 * 0 + 3 * 0 + 7) / 7
  CHECK(narrow[1] == Approx((21.0 + 24) / 8));
  CHECK(narrow[2] == Approx(1.0));
  CHECK(narrow[3] == Approx(0.0));
}

TEST_CASE("an evaluation crops the middle at every step") {
  const images::Image image = ramp(1, 4, 6);
  const TransformOptions options{.side = 2, .resize = 4, .crop_padding = 3, .flip = true, .channels = 1};
  CHECK(transformed(image, options, nullptr) == std::vector<int>{8, 9, 14, 15});
}

// Python's round, which torchvision's CenterCrop calls, gives the even neighbour of a half. It was rounded down, so that a
// middle was one pixel off for every fourth size.
TEST_CASE("the middle of an image of any size begins at the pixel of torchvision's CenterCrop") {
  // int(round((size - 2) / 2.0)) for sizes 2 to 18.
  const std::vector<int> of_two = {0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7, 8, 8};
  for (int64_t size = 2; size <= 18; ++size)
    CHECK(middle_of(size, 2, 2).first == of_two[static_cast<size_t>(size - 2)]);
  for (int64_t height = 1; height <= 48; ++height) {
    for (int64_t width = 1; width <= 48; ++width) {
      for (const int64_t side : {int64_t{1}, std::min(height, width) / 2 + 1, std::min(height, width)}) {
        CAPTURE(height, width, side);
        const auto [top, left] = middle_of(height, width, side);
        CHECK(top == std::lrint(static_cast<double>(height - side) / 2.0));  // to the even neighbour too
        CHECK(left == std::lrint(static_cast<double>(width - side) / 2.0));
      }
    }
  }
}

TEST_CASE("a wide image keeps its proportions") {
  const TransformOptions options{.side = 2, .resize = 2, .channels = 1};
  const std::vector<int> cut = transformed(ramp(1, 4, 8), options, nullptr);  // becomes 2 x 4
  CHECK(cut[1] - cut[0] == 2);
  // Rows 0.75, 0.75, 0.25 of the first three and the same of the last three: 11/7 rows apart.
  CHECK(std::abs(cut[2] - cut[0] - 8 * 11.0 / 7) <= 1);
}

TEST_CASE("random crops and mirroring depend only on seed, step and sample") {
  const images::Image image = ramp(1, 8, 8);
  const TransformOptions options{.side = 6, .resize = 8, .flip = true, .channels = 1};
  std::map<std::vector<int>, int> seen;
  for (int64_t step = 1; step <= 200; ++step) {
    VisitRng first(1, step, 17), again(1, step, 17), other(1, step, 18), seed(2, step, 17);
    const std::vector<int> cut = transformed(image, options, &first);
    CHECK(transformed(image, options, &again) == cut);
    seen[cut] += 1;
    seen[transformed(image, options, &other)] += 1;
    seen[transformed(image, options, &seed)] += 1;
  }
  CHECK(seen.size() == 3 * 3 * 2);  // every place, both ways
  for (const auto& [cut, times] : seen) CHECK(times > 10);
}

TEST_CASE("a border of the mean colour surrounds the image in training") {
  const images::Image image{1, 1, 1, {200}};
  const TransformOptions options{.side = 1, .resize = 1, .crop_padding = 1, .channels = 1};
  int inside = 0;
  for (int64_t step = 0; step < 900; ++step) {
    VisitRng rng(1, step, 0);
    const int pixel = transformed(image, options, &rng)[0];
    CHECK((pixel == 0 || pixel == 200));
    inside += pixel == 200 ? 1 : 0;
  }
  CHECK(inside == Approx(100).margin(35));  // one place of nine
}

TEST_CASE("cutout fills a square at a random place with the mean colour, only in training, alike in all planes") {
  const TransformOptions options{.side = 6, .resize = 6, .cutout = 2, .channels = 3};
  images::Image image = ramp(1, 6, 6);
  for (uint8_t& pixel : image.pixels) ++pixel;
  const auto is_hole = [](int pixel) { return pixel == 0; };
  TransformOptions whole = options;
  whole.cutout = 0;
  const std::vector<int> before = transformed(image, whole, nullptr);
  CHECK(transformed(image, options, nullptr) == before);
  std::set<std::vector<int>> seen;
  for (int sample = 0; sample < 60; ++sample) {
    VisitRng rng(1, 0, sample);
    const std::vector<int> cut = transformed(image, options, &rng);
    const std::vector<int> plane(cut.begin(), cut.begin() + 36);
    CHECK(std::vector<int>(cut.begin() + 36, cut.begin() + 72) == plane);
    CHECK(std::vector<int>(cut.begin() + 72, cut.end()) == plane);
    // At a border a part of the square lies outside.
    const auto n = std::count_if(plane.begin(), plane.end(), is_hole);
    const bool whole_or_part = n == 4 || n == 2 || n == 1;
    CHECK(whole_or_part);
    for (size_t i = 0; i < plane.size(); ++i) CHECK((plane[i] == 0 || plane[i] == before[i]));
    seen.insert(plane);
  }
  CHECK(seen.size() > 20);
}

TEST_CASE("trivial_augment changes training images, all frames of a video alike") {
  const TransformOptions plain{.side = 6, .resize = 6, .channels = 3};
  TransformOptions options = plain;
  options.trivial_augment = true;
  images::Image video = ramp(1, 6, 6);
  const std::vector<uint8_t> frame = video.pixels;
  video.frames = 2;
  video.pixels.insert(video.pixels.end(), frame.begin(), frame.end());
  CHECK(transformed(video, options, nullptr) == transformed(video, plain, nullptr));
  std::set<std::vector<int>> seen;
  for (int sample = 0; sample < 60; ++sample) {
    VisitRng rng(1, 0, sample);
    const std::vector<int> pixels = transformed(video, options, &rng);
    const auto second = pixels.begin() + static_cast<std::ptrdiff_t>(pixels.size() / 2);
    CHECK(std::equal(pixels.begin(), second, second));
    seen.insert(pixels);
  }
  CHECK(seen.size() > 20);
}

TEST_CASE("gray images are repeated for three channels, colours become luminance for one") {
  CHECK(transformed(ramp(1, 2, 2), {.side = 2, .resize = 2, .channels = 3}, nullptr) ==
        std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  const images::Image red{3, 1, 1, {200, 0, 0}}, white{3, 1, 1, {200, 200, 200}};
  CHECK(transformed(red, {.side = 1, .resize = 1, .channels = 1}, nullptr) == std::vector<int>{60});
  CHECK(transformed(white, {.side = 1, .resize = 1, .channels = 1}, nullptr) == std::vector<int>{200});
}

TEST_CASE("frames of a moving image are the image at other places, and its class is the direction") {
  const images::ImageData still = images::make_up_images(false);
  const images::ImageData moving = images::move_images(images::make_up_images(false), 4);
  REQUIRE(moving.train->size() == still.train->size());
  REQUIRE(moving.classes.size() == 8);
  std::set<int64_t> seen;
  constexpr int64_t kSide = 28;
  for (uint64_t i = 0; i < 64; ++i) {
    const images::Image image = moving.train->image(i), from = still.train->image(i);
    REQUIRE((image.frames == 4 && image.pixels.size() == 4 * kSide * kSide));
    const std::string direction = moving.classes[static_cast<size_t>(moving.train->label(i))];
    const auto holds = [&](const char* word) { return direction.find(word) != std::string::npos ? 1 : 0; };
    const int64_t down = 3 * (holds("south") - holds("north")), right = 3 * (holds("east") - holds("west"));
    for (int64_t f = 0; f + 1 < 4; ++f) {
      for (int64_t y = 0; y < kSide; ++y) {
        for (int64_t x = 0; x < kSide; ++x) {
          const int64_t to = ((f + 1) * kSide + (y + down + kSide) % kSide) * kSide + (x + right + kSide) % kSide;
          REQUIRE(image.pixels[static_cast<size_t>(to)] ==
                  image.pixels[static_cast<size_t>((f * kSide + y) * kSide + x)]);
        }
      }
    }
    std::vector<uint8_t> sorted(image.pixels.begin(), image.pixels.begin() + kSide * kSide), original = from.pixels;
    std::sort(sorted.begin(), sorted.end());
    std::sort(original.begin(), original.end());
    CHECK(sorted == original);
    seen.insert(moving.train->label(i));
  }
  CHECK(seen.size() == 8);
}

TEST_CASE("draws of the Beta distribution have its mean and variance") {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    VisitRng rng(1, 2, 3);
    double sum = 0, squares = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = images::draw_beta(rng, alpha);
      REQUIRE((x >= 0 && x <= 1));
      sum += x, squares += x * x;
    }
    const double mean = sum / kDraws;
    CHECK(mean == Approx(0.5).margin(0.01));
    CHECK(squares / kDraws - mean * mean == Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.04));
  }
}

TEST_CASE("label smoothing spreads a part of the target, only in training") {
  const images::ImageLoader from = loader({{"model.label_smoothing", "0.2"}});
  const images::ImageBatch train = load(from, {4}), eval = load(from, {4}, 0, false);
  for (int64_t k = 0; k < 10; ++k) {
    CHECK(train.targets[0][k].item().toDouble() == Approx(k == train.labels[0] ? 0.82 : 0.02));
    CHECK(eval.targets[0][k].item().toFloat() == (k == eval.labels[0] ? 1 : 0));
  }
}

TEST_CASE("mixup mixes an image and its target alike with another of the training data") {
  const images::ImageLoader plain = loader({}), from = loader({{"model.mixup", "1.0"}});
  const images::ImageBatch mixed = load(from, {4}), own = load(plain, {4});
  const double share = mixed.targets[0][own.labels[0]].item().toDouble();
  REQUIRE((share > 0 && share < 1));
  CHECK(mixed.targets.sum().item().toDouble() == Approx(1));
  CHECK(mixed.labels == own.labels);
  const at::Tensor rest = mixed.pixels[0].sub(own.pixels[0], share).div(1 - share);
  const auto distance = [&](int64_t i) { return rest.sub(load(plain, {i}).pixels[0]).abs().max().item().toDouble(); };
  int64_t found = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(plain.n_train()) && found < 0; ++i) {
    if (distance(i) < 1e-3) found = i;
  }
  REQUIRE(found >= 0);
  CHECK(mixed.targets[0][load(plain, {found}).labels[0]].item().toDouble() == Approx(1 - share));
}

// They depended on the step and on the micro-batch, so a resumed run of other micro-batches trained on other images.
TEST_CASE("an augmented image depends on its epoch and its index, not on the step or its neighbours") {
  const images::ImageLoader from =
      loader({{"model.mixup", "0.4"}, {"model.crop_padding", "3"}, {"model.flip", "true"}});
  const images::ImageBatch together = load(from, {4, 5, 6}, 2), alone = load(from, {5}, 2, true, 9);
  CHECK(together.pixels[1].equal(alone.pixels[0]));
  CHECK(together.targets[1].equal(alone.targets[0]));
  CHECK(!load(from, {5}, 3).pixels.equal(alone.pixels));
}

TEST_CASE("class weights scale the targets of training, and the loss is divided by their sum") {
  std::string weights = "[2, 0.5, 1, 1, 1, 1, 1, 1, 1, 3]";
  const images::ImageLoader plain = loader({}), from = loader({{"model.class_weights", weights}});
  const std::vector<double> expected = {2, 0.5, 1, 1, 1, 1, 1, 1, 1, 3};
  const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  const images::ImageBatch weighted = load(from, samples), other = load(plain, samples);
  double sum = 0;
  for (size_t b = 0; b < samples.size(); ++b) {
    const auto label = weighted.labels[b];
    const auto weight = expected[static_cast<size_t>(label)];
    CHECK(weighted.targets[static_cast<int64_t>(b)][label].item().toDouble() == weight);
    sum += weight;
  }
  CHECK(weighted.weight == Approx(sum));
  CHECK(other.weight == 8);
  CHECK(load(from, samples, 0, false).weight == 8);  // an evaluation is not weighted
}

// The loss was divided by the sum of the smoothed targets.
TEST_CASE("weighted and smoothed targets give the loss of torch's cross_entropy") {
  const std::vector<double> weights = {2, 0.5, 1, 1, 4, 0.25, 1, 1, 1, 3};
  constexpr double kSmoothing = 0.1;
  const images::ImageBatch batch = load(loader({{"model.class_weights", "[2, 0.5, 1, 1, 4, 0.25, 1, 1, 1, 3]"},
                                                {"model.label_smoothing", std::to_string(kSmoothing)}}),
                                        {0, 1, 2, 3, 4, 5, 6, 7});
  const at::Tensor logits = at::arange(80, at::kDouble).sin().mul(3).view({8, 10}), nll = logits.log_softmax(1).neg();
  const double loss = batch.targets.mul(nll).sum().item<double>() / batch.weight;
  double sum = 0, weight = 0;
  for (int64_t b = 0; b < 8; ++b) {
    const int64_t y = batch.labels[static_cast<size_t>(b)];
    weight += weights[static_cast<size_t>(y)];
    sum += (1 - kSmoothing) * weights[static_cast<size_t>(y)] * nll[b][y].item<double>();
    for (int64_t c = 0; c < 10; ++c)
      sum += kSmoothing / 10 * weights[static_cast<size_t>(c)] * nll[b][c].item<double>();
  }
  CHECK(loss == Approx(sum / weight).epsilon(1e-6));
  CHECK(loss == Approx(at::cross_entropy_loss(logits, at::tensor(batch.labels), at::tensor(weights, at::kDouble),
                                              at::Reduction::Mean, -100, kSmoothing)
                           .item<double>())
                    .epsilon(1e-6));
}

TEST_CASE("mixup mixes the weights of both labels by the shares of their images") {
  const images::ImageLoader from =
      loader({{"model.class_weights", "[2, 0.5, 1, 1, 4, 0.25, 1, 1, 1, 3]"}, {"model.mixup", "1.0"}});
  const images::ImageLoader plain = loader({{"model.mixup", "1.0"}});
  const at::Tensor weights = at::tensor(std::vector<double>{2, 0.5, 1, 1, 4, 0.25, 1, 1, 1, 3}, at::kDouble);
  for (int64_t i = 0; i < 8; ++i) {
    const at::Tensor shares = load(plain, {i}).targets[0].to(at::kDouble);  // of the classes
    CHECK(load(plain, {i}).weight == 1);
    CHECK(load(from, {i}).weight == Approx(shares.mul(weights).sum().item<double>()).epsilon(1e-6));
  }
}

TEST_CASE("balanced class weights give every class the same weight in an epoch") {
  const images::ImageLoader from = loader({{"model.class_weights", "balanced"}});
  std::vector<int64_t> samples(from.n_train());
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  const images::ImageBatch all = load(from, samples);
  const at::Tensor of_class = all.targets.sum(0);
  for (int64_t k = 0; k < 10; ++k)
    CHECK(of_class[k].item().toDouble() == Approx(static_cast<double>(samples.size()) / 10).epsilon(1e-4));
  CHECK(all.weight == Approx(static_cast<double>(samples.size())).epsilon(1e-4));
}

TEST_CASE("class weights that do not fit are refused") {
  CHECK_THAT(sentence_of([] {
               loader({{"model.class_weights", "[1, 2]"}});
             }),
             Catch::Contains("has 2 weights; the model has 10 classes"));
  CHECK_THAT(sentence_of([] {
               loader({{"model.class_weights", "[1, 1, 1, 1, 1, 1, 1, 1, 1, -1]"}});
             }),
             Catch::Contains("none below 0"));
  CHECK_THAT(sentence_of([] { loader({{"model.class_weights", "even"}}); }), Catch::Contains("neither none, balanced"));
}
