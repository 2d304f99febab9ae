// SPDX-License-Identifier: Apache-2.0
//
// Videos made from images: each image moves in one of eight directions over a frame that wraps around at its borders. The
// start differs from image to image. The class is the direction, so a single frame does not show it.
#include <array>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "image_set.hpp"

namespace images {
namespace {

constexpr int64_t kStep = 3;  // pixels from frame to frame
struct Direction {
  const char* name;
  int64_t down, right;
};
constexpr std::array<Direction, 8> kDirections = {{{"north", -1, 0},
                                                   {"north east", -1, 1},
                                                   {"east", 0, 1},
                                                   {"south east", 1, 1},
                                                   {"south", 1, 0},
                                                   {"south west", 1, -1},
                                                   {"west", 0, -1},
                                                   {"north west", -1, -1}}};

class MovingImages final : public ImageSet {
 public:
  MovingImages(std::unique_ptr<ImageSet> still, int64_t frames, const char* part)
      : still_(std::move(still)), frames_(frames), rng_(0, std::string("images.moving.") + part) {}
  [[nodiscard]] uint64_t size() const override { return still_->size(); }
  [[nodiscard]] int64_t label(uint64_t i) const override {
    return static_cast<int64_t>(rng_.bits(3 * i) % kDirections.size());
  }
  [[nodiscard]] Image image(uint64_t i) const override {
    const Image from = still_->image(i);
    const Direction& direction = kDirections.at(static_cast<size_t>(label(i)));
    auto down = static_cast<int64_t>(rng_.bits(3 * i + 1) % static_cast<uint64_t>(from.height));
    auto right = static_cast<int64_t>(rng_.bits(3 * i + 2) % static_cast<uint64_t>(from.width));
    Image out{from.channels, from.height, from.width, {}, frames_};
    for (int64_t f = 0; f < frames_; ++f) {
      append_shifted(from, down, right, out);
      down += kStep * direction.down, right += kStep * direction.right;
    }
    return out;
  }

 private:
  static int64_t around(int64_t at, int64_t side) { return (at % side + side) % side; }
  static void append_shifted(const Image& from, int64_t down, int64_t right, Image& out) {
    for (int64_t c = 0; c < from.channels; ++c) {
      for (int64_t y = 0; y < from.height; ++y) {
        const int64_t row = (c * from.height + around(y - down, from.height)) * from.width;
        for (int64_t x = 0; x < from.width; ++x)
          out.pixels.push_back(from.pixels[static_cast<size_t>(row + around(x - right, from.width))]);
      }
    }
  }

  const std::unique_ptr<ImageSet> still_;
  const int64_t frames_;
  const ddh::CounterRng rng_;
};

}  // namespace

ImageData move_images(ImageData still, int64_t frames) {
  still.train = std::make_unique<MovingImages>(std::move(still.train), frames, "train");
  if (still.eval != nullptr) still.eval = std::make_unique<MovingImages>(std::move(still.eval), frames, "eval");
  still.classes.clear();
  for (const Direction& direction : kDirections) still.classes.emplace_back(direction.name);
  return still;
}

}  // namespace images
