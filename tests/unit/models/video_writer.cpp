// SPDX-License-Identifier: Apache-2.0
#include "video_writer.hpp"

#include <cstring>
#include <stdexcept>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

namespace ddhost::test {
namespace {

int check(int rc) {
  if (rc < 0) throw std::runtime_error("FFmpeg's writer failed with " + std::to_string(rc));
  return rc;
}

void fill(AVFrame& frame, const std::vector<uint8_t>& rgb) {
  check(av_frame_make_writable(&frame));
  const bool is_rgb = frame.format == AV_PIX_FMT_BGR0;
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const uint8_t* const from = rgb.data() + 3 * (y * frame.width + x);
      uint8_t* const to = frame.data[0] + y * frame.linesize[0] + (is_rgb ? 4 * x : x);
      *to = from[is_rgb ? 2 : 0];
      if (is_rgb) to[1] = from[1], to[2] = from[0], to[3] = 0;
    }
  }
  for (int plane = 1; plane < 3 && !is_rgb; ++plane)
    std::memset(frame.data[plane], 128, static_cast<size_t>(frame.linesize[plane] * frame.height / 2));
}

void add_matrix(AVStream& stream, const std::vector<int32_t>& matrix) {
  const size_t bytes = matrix.size() * sizeof(int32_t);
#if LIBAVCODEC_VERSION_INT < AV_VERSION_INT(60, 31, 100)
  uint8_t* const to = av_stream_new_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, bytes);
#else
  uint8_t* const to = av_packet_side_data_new(&stream.codecpar->coded_side_data, &stream.codecpar->nb_coded_side_data,
                                              AV_PKT_DATA_DISPLAYMATRIX, bytes, 0)
                          ->data;
#endif
  std::memcpy(to, matrix.data(), bytes);
}

// Sends a frame, or nullptr at the end, and writes the packets that come of it.
void encode(AVCodecContext& encoder, const AVFrame* frame, AVFormatContext& file, AVPacket& packet) {
  check(avcodec_send_frame(&encoder, frame));
  while (avcodec_receive_packet(&encoder, &packet) >= 0) {
    packet.duration = 1;
    av_packet_rescale_ts(&packet, encoder.time_base, file.streams[0]->time_base);
    packet.stream_index = 0;
    check(av_interleaved_write_frame(&file, &packet));
  }
}

}  // namespace

void write_video(const std::string& path, const std::string& codec, const Video& video) {
  av_log_set_level(AV_LOG_ERROR);
  AVFormatContext* file = nullptr;
  check(avformat_alloc_output_context2(&file, nullptr, nullptr, path.c_str()));
  const AVCodec* const kind = avcodec_find_encoder_by_name(codec.c_str());
  AVCodecContext* encoder = avcodec_alloc_context3(kind);
  encoder->width = video.width, encoder->height = video.height;
  encoder->time_base = {1, 25}, encoder->framerate = {25, 1};
  encoder->pix_fmt = codec == "ffv1" ? AV_PIX_FMT_BGR0 : AV_PIX_FMT_YUV420P;
  if (codec == "mpeg4") encoder->max_b_frames = 2, encoder->bit_rate = 4000000;
  if ((file->oformat->flags & AVFMT_GLOBALHEADER) != 0) encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  check(avcodec_open2(encoder, kind, nullptr));
  AVStream* const stream = avformat_new_stream(file, nullptr);
  stream->time_base = encoder->time_base;
  check(avcodec_parameters_from_context(stream->codecpar, encoder));
  if (!video.display_matrix.empty()) add_matrix(*stream, video.display_matrix);
  if (video.hidden > 0) file->avoid_negative_ts = AVFMT_AVOID_NEG_TS_DISABLED;
  check(avio_open(&file->pb, path.c_str(), AVIO_FLAG_WRITE));
  check(avformat_write_header(file, nullptr));
  AVFrame* frame = av_frame_alloc();
  frame->pts = -video.hidden, frame->format = encoder->pix_fmt, frame->width = video.width,
  frame->height = video.height;
  check(av_frame_get_buffer(frame, 0));
  AVPacket* packet = av_packet_alloc();
  for (const std::vector<uint8_t>& rgb : video.frames) {
    fill(*frame, rgb);
    encode(*encoder, frame, *file, *packet);
    ++frame->pts;
  }
  encode(*encoder, nullptr, *file, *packet);
  check(av_write_trailer(file));
  av_packet_free(&packet);
  av_frame_free(&frame);
  avcodec_free_context(&encoder);
  check(avio_closep(&file->pb));
  avformat_free_context(file);
}

}  // namespace ddhost::test
