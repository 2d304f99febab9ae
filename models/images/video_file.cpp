// SPDX-License-Identifier: Apache-2.0
//
// Video files by FFmpeg's libraries. A file is decoded to its end by one thread, without seeking, so the frames are the same
// for every machine and reader. A first pass counts packets; a decoder that gives another number of frames is run again.
#include "video_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>

#include "ddh/sdk/files/input_file.hpp"
#include "ffmpeg.hpp"

namespace images {
namespace {

// Names of FFmpeg's demuxers. Playlists and devices, which open other files, are not among them.
constexpr const char* kContainers = "mov,mp4,matroska,webm,avi,mpeg,mpegts,yuv4mpegpipe";
constexpr const char* kCut = "a part of it is damaged or missing";

[[noreturn]] void fail_torn(const std::string& path, const std::string& why) {
  ddh::fail(DDH_DATA_LOSS, "video '", path, "' cannot be decoded: ", why, "; replace or remove it");
}

// What a Matroska file announces of its own bytes, 0: nothing. Its demuxer takes an early end for the end.
uint64_t announced_bytes(const std::string& path) {
  std::array<uint8_t, 256> head{};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(head.data()), head.size());
  uint64_t at = 0;                                        // in the file
  for (const uint32_t id : {0x1A45DFA3U, 0x18538067U}) {  // the header, the segment
    if (at > head.size() - 13) return 0;
    uint32_t found = 0;
    for (int i = 0; i < 4; ++i) found = found << 8 | head[at++];
    if (found != id) return 0;
    // A size has as many leading zeros as further bytes; all ones: unknown.
    const int more = std::countl_zero(head[at]);
    if (more > 7) return 0;
    uint64_t size = head[at++] & (0x7FU >> more);
    for (int i = 0; i < more; ++i) size = size << 8 | head[at++];
    if (size == (uint64_t{1} << 7 * (more + 1)) - 1) return 0;
    at += size;
  }
  return at;
}

struct Free {
  const Ffmpeg* av;
  void operator()(AVFormatContext* p) const { av->avformat_close_input(&p); }
  void operator()(AVCodecContext* p) const { av->avcodec_free_context(&p); }
  void operator()(AVPacket* p) const { av->av_packet_free(&p); }
  void operator()(AVFrame* p) const { av->av_frame_free(&p); }
  void operator()(SwsContext* p) const { av->sws_freeContext(p); }
};

template <class T>
using Owned = std::unique_ptr<T, Free>;

template <class T>
Owned<T> owned(const Ffmpeg& av, T* p) {
  if (p == nullptr) ddh::fail(DDH_RESOURCE_EXHAUSTED, "no memory is left for decoding a video; lower data.workers");
  return Owned<T>(p, Free{&av});
}

// How the camera was turned or mirrored: one step to the right in the file goes (xx, xy) as shown, one step down (yx, yy).
struct Turn {
  int64_t xx = 1, xy = 0, yx = 0, yy = 1;
};

// The packets of a file's video stream.
class Packets {
 public:
  Packets(const Ffmpeg& av, const std::string& path);
  // The next one; nullptr at the end.
  const AVPacket* next();
  // A decoder for them.
  [[nodiscard]] Owned<AVCodecContext> decoder() const;
  [[nodiscard]] Turn turn() const;

 private:
  const Ffmpeg& av_;
  const std::string& path_;
  const Owned<AVPacket> packet_;
  Owned<AVFormatContext> file_;
  const AVCodec* codec_ = nullptr;
  int stream_ = 0;
  uint64_t bytes_ = 0;  // of the file
  int64_t end_ = 0;     // of the last packet in the file
};

Packets::Packets(const Ffmpeg& av, const std::string& path)
    : av_(av), path_(path), packet_(owned(av, av.av_packet_alloc())), file_(nullptr, Free{&av}) {
  bytes_ = ddh::InputFile(path, {"video", "check data.path"}).bytes();
  if (bytes_ == 0) fail_torn(path, "it is empty");
  if (announced_bytes(path) > bytes_) fail_torn(path, kCut);
  AVDictionary* options = nullptr;
  av.av_dict_set(&options, "protocol_whitelist", "file", 0);
  av.av_dict_set(&options, "format_whitelist", kContainers, 0);
  AVFormatContext* file = nullptr;
  int rc = av.avformat_open_input(&file, ("file:" + path).c_str(), nullptr, &options);
  av.av_dict_free(&options);
  if (rc == AVERROR(EINVAL)) fail_torn(path, "it is no MP4, MOV, Matroska, WebM, AVI, MPEG or YUV4MPEG2 file");
  if (rc < 0) fail_torn(path, av.text_of(rc));
  file_.reset(file);
  rc = av.avformat_find_stream_info(file, nullptr);
  if (rc >= 0) rc = stream_ = av.av_find_best_stream(file, AVMEDIA_TYPE_VIDEO, -1, -1, &codec_, 0);
  if (rc == AVERROR_STREAM_NOT_FOUND) fail_torn(path, "it has no video stream");
  if (rc < 0) fail_torn(path, av.text_of(rc));
  for (unsigned i = 0; i < file->nb_streams; ++i) {
    if (static_cast<int>(i) != stream_) file->streams[i]->discard = AVDISCARD_ALL;
  }
}

const AVPacket* Packets::next() {
  for (;;) {
    av_.av_packet_unref(packet_.get());
    const int rc = av_.av_read_frame(file_.get(), packet_.get());
    if (rc == AVERROR_EOF) {
      // The demuxer of YUV4MPEG2 takes a part of a frame for the end.
      const bool is_y4m = std::string_view(file_->iformat->name) == "yuv4mpegpipe";
      if (is_y4m && end_ != static_cast<int64_t>(bytes_)) fail_torn(path_, kCut);
      return nullptr;
    }
    if (rc < 0) fail_torn(path_, av_.text_of(rc));
    // A packet without bytes says that a frame was dropped; decoders take it for the end.
    if (packet_->stream_index != stream_ || packet_->size == 0) continue;
    if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) fail_torn(path_, kCut);
    end_ = packet_->pos + packet_->size;
    return packet_.get();
  }
}

Owned<AVCodecContext> Packets::decoder() const {
  Owned<AVCodecContext> decoder = owned(av_, av_.avcodec_alloc_context3(codec_));
  int rc = av_.avcodec_parameters_to_context(decoder.get(), file_->streams[stream_]->codecpar);
  decoder->thread_count = 1;
  decoder->flags |= AV_CODEC_FLAG_BITEXACT;
  decoder->max_pixels = static_cast<int64_t>(kMostPixels);
  if (rc >= 0) rc = av_.avcodec_open2(decoder.get(), codec_, nullptr);
  if (rc < 0) fail_torn(path_, av_.text_of(rc));
  return decoder;
}

Turn Packets::turn() const {
#if LIBAVCODEC_VERSION_INT < AV_VERSION_INT(60, 31, 100)
  const AVStream& holder = *file_->streams[stream_];
  const std::span all(holder.side_data, static_cast<size_t>(holder.nb_side_data));
#else
  const AVCodecParameters& holder = *file_->streams[stream_]->codecpar;
  const std::span all(holder.coded_side_data, static_cast<size_t>(holder.nb_coded_side_data));
#endif
  const auto found =
      std::find_if(all.begin(), all.end(), [](const auto& data) { return data.type == AV_PKT_DATA_DISPLAYMATRIX; });
  std::array<int32_t, 9> m{};  // libavutil/display.h
  if (found == all.end() || found->size != sizeof m) return {};
  std::memcpy(m.data(), found->data, sizeof m);
  const auto sign = [](int32_t v) { return int64_t{v > 0} - int64_t{v < 0}; };
  const Turn t{sign(m[0]), sign(m[1]), sign(m[3]), sign(m[4])};
  if (t.xx * t.yy != 0 ? t.xy != 0 || t.yx != 0 : t.xx != 0 || t.yy != 0 || t.xy * t.yx == 0)
    fail_torn(path_, "it is turned by an angle that is no multiple of 90 degrees");
  return t;
}

// Calls take(frame, place) for each frame of a file, and returns their number.
template <class Take>
int64_t decode_all(const Ffmpeg& av, const std::string& path, Take&& take) {
  Packets packets(av, path);
  const Owned<AVCodecContext> decoder = packets.decoder();
  const Owned<AVFrame> frame = owned(av, av.av_frame_alloc());
  int64_t n = 0;
  for (bool more = true; more;) {
    const AVPacket* const packet = packets.next();
    more = packet != nullptr;
    int rc = av.avcodec_send_packet(decoder.get(), packet);
    while (rc >= 0 && (rc = av.avcodec_receive_frame(decoder.get(), frame.get())) >= 0) {
      if (frame->decode_error_flags != 0) fail_torn(path, ddh::str("frame ", n, " is damaged"));
      take(*frame, n++);
    }
    if (rc != AVERROR(EAGAIN) && rc != AVERROR_EOF) fail_torn(path, av.text_of(rc));
  }
  return n;
}

// Where the pixels of a frame go: pixel (x, y) to first + x * right + y * down.
struct Places {
  int64_t height, width;  // as shown
  int64_t first = 0, right = 0, down = 0;
};

Places places_of(const AVFrame& frame, const Turn& t) {
  Places p{frame.height, frame.width};
  if (t.xx == 0) std::swap(p.height, p.width);
  p.right = t.xx + t.xy * p.width, p.down = t.yx + t.yy * p.width;
  p.first = (t.xx + t.yx < 0 ? p.width - 1 : 0) + (t.xy + t.yy < 0 ? (p.height - 1) * p.width : 0);
  return p;
}

// The frame as red, green and blue in turn, in rows. Chroma is interpolated alike on every machine.
Owned<AVFrame> to_rgb(const Ffmpeg& av, const AVFrame& frame, const std::string& path) {
  constexpr int kExact = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INT;
  Owned<AVFrame> rgb = owned(av, av.av_frame_alloc());
  rgb->format = AV_PIX_FMT_RGB24, rgb->width = frame.width, rgb->height = frame.height;
  if (const int rc = av.av_frame_get_buffer(rgb.get(), 0); rc < 0) fail_torn(path, av.text_of(rc));
  const Owned<SwsContext> scaler(
      av.sws_getContext(frame.width, frame.height, static_cast<AVPixelFormat>(frame.format), frame.width, frame.height,
                        AV_PIX_FMT_RGB24, kExact, nullptr, nullptr, nullptr),
      Free{&av});
  if (scaler == nullptr) fail_torn(path, "its pixel format is unknown");
  int *table = nullptr, *rgb_table = nullptr;
  int full = 0, rgb_full = 0, brightness = 0, contrast = 0, saturation = 0;
  if (av.sws_getColorspaceDetails(scaler.get(), &table, &full, &rgb_table, &rgb_full, &brightness, &contrast,
                                  &saturation) >= 0) {
    if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) full = frame.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    av.sws_setColorspaceDetails(scaler.get(), av.sws_getCoefficients(frame.colorspace), full, rgb_table, rgb_full,
                                brightness, contrast, saturation);
  }
  if (const int rc = av.sws_scale(scaler.get(), frame.data, frame.linesize, 0, frame.height, rgb->data, rgb->linesize);
      rc < 0)
    fail_torn(path, av.text_of(rc));
  return rgb;
}

void append(const Ffmpeg& av, const AVFrame& frame, const Turn& turn, const std::string& path, Image& video) {
  const Places to = places_of(frame, turn);
  if (video.pixels.empty()) video.channels = 3, video.height = to.height, video.width = to.width;
  if (to.height != video.height || to.width != video.width)
    fail_torn(path, ddh::str("it has frames of ", video.width, " x ", video.height, " and of ", to.width, " x ",
                             to.height, " pixels"));
  const Owned<AVFrame> rgb = to_rgb(av, frame, path);
  const int64_t numel = to.height * to.width;
  const size_t first = video.pixels.size();
  video.pixels.resize(first + static_cast<size_t>(3 * numel));
  uint8_t* const out = video.pixels.data() + first + to.first;
  for (int64_t y = 0; y < frame.height; ++y) {
    const uint8_t* const row = rgb->data[0] + y * rgb->linesize[0];
    for (int64_t x = 0; x < frame.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) out[c * numel + x * to.right + y * to.down] = row[3 * x + c];
    }
  }
}

}  // namespace

Image read_video(const Ffmpeg& av, const std::string& path, int64_t frames) {
  int64_t numel = 0;  // frames of the file
  Turn turn;
  {
    Packets packets(av, path);
    while (packets.next() != nullptr) ++numel;
    turn = packets.turn();
  }
  for (;;) {
    Image video;
    video.frames = frames;
    int64_t taken = 0;
    const int64_t n = decode_all(av, path, [&](const AVFrame& frame, int64_t place) {
      for (; taken < frames && middle_of_part(taken, frames, numel) == place; ++taken)
        append(av, frame, turn, path, video);
    });
    if (n == 0) fail_torn(path, "it has no frames");
    if (n == numel) return video;
    numel = n;
  }
}

}  // namespace images
