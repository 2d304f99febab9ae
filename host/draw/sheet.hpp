// SPDX-License-Identifier: Apache-2.0
//
// draw/sheet.hpp: pictures beside and below one another as one PNG file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddhost {

// Bytes (height, width, channels); channels is 1 (gray) or 3 (red, green, blue). They outlive the sheet.
struct Picture {
  size_t height = 0, width = 0, channels = 1;
  const uint8_t* pixels = nullptr;
};

// Rows of pictures; they may have several sizes.
using Sheet = std::vector<std::vector<Picture>>;

// Pixels between pictures, and around them, of a middle gray.
inline constexpr size_t kSheetGap = 2;
// Small pictures are enlarged by a whole factor, each pixel to a square, so that a person sees them. 1: they stay.
size_t sheet_scale(const Sheet& sheet);

// The content of a PNG file, gray where all pictures are. Error: it would be too large, or libpng fails. `what`: names the
// sheet in errors.
std::string as_png(const Sheet& sheet, const std::string& what);

}  // namespace ddhost
