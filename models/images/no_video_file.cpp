// SPDX-License-Identifier: Apache-2.0
//
// Instead of ffmpeg.cpp and video_file.cpp in a build without FFmpeg's headers.
#include "video_file.hpp"

namespace images {

std::shared_ptr<const Ffmpeg> open_ffmpeg(const std::string& /*folder*/) {
  ddh::fail(DDH_UNAVAILABLE, "this build has no reader of video files, because FFmpeg's headers were not found");
}

Image read_video(const Ffmpeg& /*av*/, const std::string& /*path*/, int64_t /*frames*/) {
  ddh::fail(DDH_INTERNAL, "read_video was called without a reader of video files");
}

}  // namespace images
