// SPDX-License-Identifier: Apache-2.0
//
// images/ffmpeg.hpp: the functions of FFmpeg's libraries that read videos, found at run time. No library is linked, so a
// plugin loads on machines without them, and as fast.
#pragma once

#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace images {

// clang-format off
#define DDH_AVUTIL_FUNCTIONS(X)                                                                                     \
  X(avutil_version) X(av_log_set_level) X(av_strerror) X(av_dict_set) X(av_dict_free) X(av_frame_alloc)             \
  X(av_frame_free) X(av_frame_get_buffer)
#define DDH_AVCODEC_FUNCTIONS(X)                                                                                    \
  X(avcodec_version) X(avcodec_alloc_context3) X(avcodec_free_context) X(avcodec_parameters_to_context)             \
  X(avcodec_open2) X(avcodec_send_packet) X(avcodec_receive_frame) X(av_packet_alloc) X(av_packet_free)             \
  X(av_packet_unref)
#define DDH_AVFORMAT_FUNCTIONS(X)                                                                                   \
  X(avformat_version) X(avformat_open_input) X(avformat_find_stream_info) X(avformat_close_input)                   \
  X(av_find_best_stream) X(av_read_frame)
#define DDH_SWSCALE_FUNCTIONS(X)                                                                                    \
  X(swscale_version) X(sws_getContext) X(sws_freeContext) X(sws_getColorspaceDetails)                               \
  X(sws_setColorspaceDetails) X(sws_getCoefficients) X(sws_scale)
// clang-format on

struct Ffmpeg {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a field
#define DDH_FFMPEG_FIELD(F) decltype(::F)* F = nullptr;
  DDH_AVUTIL_FUNCTIONS(DDH_FFMPEG_FIELD)
  DDH_AVCODEC_FUNCTIONS(DDH_FFMPEG_FIELD)
  DDH_AVFORMAT_FUNCTIONS(DDH_FFMPEG_FIELD)
  DDH_SWSCALE_FUNCTIONS(DDH_FFMPEG_FIELD)
#undef DDH_FFMPEG_FIELD

  // "Invalid data found when processing input"
  [[nodiscard]] std::string text_of(int error) const;
};

}  // namespace images
