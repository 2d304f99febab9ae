// SPDX-License-Identifier: Apache-2.0
//
// images/video_file.hpp: video files, read with FFmpeg's libraries where this build and the machine have them.
#pragma once

#include <memory>
#include <string>

#include "image_set.hpp"

namespace images {

struct Ffmpeg;  // functions of the libraries

// Opens the libraries of the versions that this build has headers of; tests give a folder that ends with a slash. Throws
// ddh::Error, a clause that says why it can't: none was found, it has another version, or the build has no headers.
std::shared_ptr<const Ffmpeg> open_ffmpeg(const std::string& folder = "");

// `frames` evenly spaced frames of a video file, in colour. Called by several threads at once. Throws ddh::Error if the file is
// torn or no video.
Image read_video(const Ffmpeg& av, const std::string& path, int64_t frames);

// The place of the frame in the middle of a part, if `numel` frames are divided into `parts` parts.
inline int64_t middle_of_part(int64_t part, int64_t parts, int64_t numel) {
  return (2 * part + 1) * numel / (2 * parts);
}

}  // namespace images
