// SPDX-License-Identifier: Apache-2.0
#include "draw/sheet.hpp"

#include <png.h>

#include <algorithm>
#include <limits>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kSeen = 112;  // a picture that is narrower and lower is enlarged to nearly this
constexpr size_t kMostScale = 16;
constexpr uint64_t kMostSheetBytes = uint64_t{1} << 29;  // of a sheet in memory
constexpr uint8_t kGapValue = 128;

struct Extent {
  size_t height = 0, width = 0;
};
// Of the largest picture.
Extent largest_picture(const Sheet& sheet) {
  Extent out;
  for (const std::vector<Picture>& row : sheet)
    for (const Picture& picture : row) out = {std::max(out.height, picture.height), std::max(out.width, picture.width)};
  return out;
}

bool are_gray(const Sheet& sheet) {
  return std::all_of(sheet.begin(), sheet.end(), [](const std::vector<Picture>& row) {
    return std::all_of(row.begin(), row.end(), [](const Picture& picture) { return picture.channels == 1; });
  });
}

// Rows of bytes, each pixel of `channels`.
struct Bitmap {
  size_t width, channels;
  std::vector<uint8_t> bytes;

  void put(const Picture& picture, size_t top, size_t left, size_t scale) {
    for (size_t y = 0; y < picture.height * scale; ++y)
      for (size_t x = 0; x < picture.width * scale; ++x) {
        const uint8_t* const from = picture.pixels + (y / scale * picture.width + x / scale) * picture.channels;
        uint8_t* const to = bytes.data() + ((top + y) * width + left + x) * channels;
        for (size_t c = 0; c < channels; ++c) to[c] = from[picture.channels == 1 ? 0 : c];
      }
  }
};

}  // namespace

size_t sheet_scale(const Sheet& sheet) {
  const Extent most = largest_picture(sheet);
  return std::clamp<size_t>(kSeen / std::max<size_t>({most.height, most.width, 1}), 1, kMostScale);
}

std::string as_png(const Sheet& sheet, const std::string& what) {
  const Extent most = largest_picture(sheet);
  const size_t scale = sheet_scale(sheet), channels = are_gray(sheet) ? 1 : 3;
  size_t columns = 0;
  for (const std::vector<Picture>& row : sheet) columns = std::max(columns, row.size());
  const size_t step_y = most.height * scale + kSheetGap, step_x = most.width * scale + kSheetGap;
  const size_t height = sheet.size() * step_y + kSheetGap, width = columns * step_x + kSheetGap;
  if (height > kMostSheetBytes / width || height * width > kMostSheetBytes / channels)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "the sheet of ", what, " would have ", width, " x ", height,
              " pixels, which is too many for one file; give fewer --samples");
  Bitmap bitmap{width, channels, std::vector<uint8_t>(height * width * channels, kGapValue)};
  for (size_t r = 0; r < sheet.size(); ++r)
    for (size_t c = 0; c < sheet[r].size(); ++c)
      bitmap.put(sheet[r][c], r * step_y + kSheetGap, c * step_x + kSheetGap, scale);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string out(bytes, '\0');
  if (png_image_write_to_memory(&image, out.data(), &bytes, 0, bitmap.bytes.data(), 0, nullptr) == 0)
    ddh::fail(DDH_INTERNAL, "the sheet of ", what, " can't be written as PNG: ", image.message);
  out.resize(bytes);
  return out;
}

}  // namespace ddhost
