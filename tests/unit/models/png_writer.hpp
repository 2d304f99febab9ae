// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/models/png_writer.hpp: writes PNG files.
#pragma once

#include <png.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ddhost::test {

// `pixels`: (height, width, channels), of 1 or 3 channels.
inline void write_png(const std::string& path, unsigned width, unsigned height, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width, image.height = height;
  image.format = pixels.size() == width * height ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

}  // namespace ddhost::test
