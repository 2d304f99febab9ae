// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/models/video_writer.hpp: writes small videos with FFmpeg's encoders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddhost::test {

struct Video {
  int width = 0, height = 0;
  std::vector<std::vector<uint8_t>> frames =
      {};                                    // (height, width, 3): red, green, blue; of mpeg4 the red counts as luma
  std::vector<int32_t> display_matrix = {};  // empty, or 9 numbers as in libavutil/display.h
  int64_t hidden = 0;                        // frames before time 0, which an edit list of .mov hides
};

// `codec`: ffv1, which is exact, or mpeg4, whose decoder gives frames late. The ending of `path` says the container. Throws.
void write_video(const std::string& path, const std::string& codec, const Video& video);

}  // namespace ddhost::test
