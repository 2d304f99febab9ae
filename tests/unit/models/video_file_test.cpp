// SPDX-License-Identifier: Apache-2.0
//
// Video files: the frames that are taken from them, and the sentence for those that can't be read.
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "../../models/images/video_file.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/skip.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost::test;

#ifndef DDHOST_HAVE_FFMPEG

TEST_CASE("video files") { skip("FFmpeg's headers were not found when this was built; ./dev test installs them"); }

#else

extern "C" {
#include <libavutil/version.h>
}

#include "png_writer.hpp"
#include "video_writer.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

// Frames of noise that differ.
Video noise(int width, int height, int n) {
  Video video{width, height};
  for (int f = 0; f < n; ++f) {
    Bytes& frame = video.frames.emplace_back(static_cast<size_t>(3 * width * height));
    for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>((i * i * 31 + i * 7) / 3 + 41U * f);
  }
  return video;
}

// Frames of one shade each: 20, 40, 60 ...
Video shades(int n) {
  Video video{32, 16};
  for (int f = 0; f < n; ++f) video.frames.emplace_back(3 * 32 * 16, static_cast<uint8_t>(20 + 20 * f));
  return video;
}

void write_folder(const std::filesystem::path& folder, const Video& video) {
  std::filesystem::create_directories(folder);
  for (size_t f = 0; f < video.frames.size(); ++f)
    write_png((folder / (std::to_string(100 + f) + ".png")).string(), static_cast<unsigned>(video.width),
              static_cast<unsigned>(video.height), video.frames[f]);
}

images::Image read(const std::string& path, int64_t frames) {
  return images::read_video(*images::open_ffmpeg(), path, frames);
}

std::string refusal(const std::string& path) {
  return sentence_of([&] { read(path, 4); });
}

// The first value of each frame.
Bytes firsts(const images::Image& video) {
  Bytes out;
  const size_t bytes = video.pixels.size() / static_cast<size_t>(video.frames);
  for (size_t f = 0; f < static_cast<size_t>(video.frames); ++f) out.push_back(video.pixels[f * bytes]);
  return out;
}

// What limited luma of these shades is in RGB, within 2.
bool are_near(const Bytes& got, const std::vector<int>& lumas) {
  if (got.size() != lumas.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - (lumas[i] - 16) * 255 / 219) > 2) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a video file has the pixels of a folder with its frames, and may lie beside one") {
  const TempFolder folder;
  const int n = GENERATE(8, 3, 1);
  const Video video = noise(30, 14, n);
  write_folder(folder.path() / "run/1", video);
  for (const char* name : {"run/2.avi", "run/3.MKV", "run/4.mov"}) write_video(folder.file(name), "ffv1", video);
  std::ofstream(folder.file("run/notes.txt")) << "no video";
  const images::ImageData data = images::read_folder(folder.path().string(), "", 0, 4);
  REQUIRE(data.train->size() == 4);
  const images::Image expected = data.train->image(0);
  REQUIRE(expected.pixels.size() == 4 * 3 * 30 * 14);
  for (uint64_t i = 1; i < 4; ++i) {
    const images::Image got = data.train->image(i);
    CHECK((got.frames == 4 && got.channels == 3 && got.height == 14 && got.width == 30));
    CHECK((got.pixels == expected.pixels));
  }
}

TEST_CASE("videos of both forms are in the order of their names") {
  const TempFolder folder;
  for (const char* name : {"run/b", "run/d"}) write_folder(folder.path() / name, shades(1));
  Video other = shades(2);
  other.frames.erase(other.frames.begin());
  for (const char* name : {"run/a.avi", "run/c.mkv"}) write_video(folder.file(name), "ffv1", other);
  const images::ImageData data = images::read_folder(folder.path().string(), "", 0.5, 1);
  REQUIRE((data.train->size() == 2 && data.eval->size() == 2));
  for (uint64_t i = 0; i < 2; ++i) {
    CHECK(data.train->image(i).pixels[0] == 40);
    CHECK(data.eval->image(i).pixels[0] == 20);
  }
}

TEST_CASE("frames that a decoder gives late are in their order") {
  const TempFolder folder;
  const std::string path = folder.file("a" + GENERATE(as<std::string>{}, ".avi", ".mp4", ".mkv", ".mpg"));
  write_video(path, path.ends_with("mpg") ? "mpeg2video" : "mpeg4", shades(10));
  CHECK(are_near(firsts(read(path, 5)), {40, 80, 120, 160, 200}));
}

TEST_CASE("frames that a container hides are not counted") {
  const TempFolder folder;
  Video video = shades(10);
  video.hidden = 2;
  write_video(folder.file("a.mov"), "mpeg4", video);
  CHECK(are_near(firsts(read(folder.file("a.mov"), 4)), {80, 120, 160, 200}));
}

TEST_CASE("a YUV4MPEG2 file is decoded, and refused if a part of its last frame is missing") {
  const TempFolder folder;
  const std::string path = folder.file("a.y4m");
  std::string text = "YUV4MPEG2 W4 H2 F25:1 Ip A1:1 C420jpeg\n";
  for (const int luma : {16, 81, 126, 235})
    text += "FRAME\n" + std::string(8, static_cast<char>(luma)) + std::string(4, '\x80');
  std::ofstream(path, std::ios::binary) << text;
  CHECK(are_near(firsts(read(path, 4)), {16, 81, 126, 235}));
  std::ofstream(path, std::ios::binary) << text.substr(0, text.size() - 5);
  CHECK_THAT(refusal(path), Catch::Contains(path) && Catch::Contains("damaged or missing"));
}

TEST_CASE("a video is shown as the camera was held") {
  const TempFolder folder;
  const std::string path = folder.file("a.mov");
  Video video{3, 2, {{10, 0, 0, 20, 0, 0, 30, 0, 0, 40, 0, 0, 50, 0, 0, 60, 0, 0}}};
  struct Case {
    std::vector<int32_t> matrix;
    int64_t height, width;
    Bytes red;
  };
  constexpr int32_t kOne = 1 << 16, kW = 1 << 30;
  for (const Case& c : {Case{{kOne, 0, 0, 0, kOne, 0, 0, 0, kW}, 2, 3, {10, 20, 30, 40, 50, 60}},
                        Case{{0, kOne, 0, -kOne, 0, 0, 0, 0, kW}, 3, 2, {40, 10, 50, 20, 60, 30}},
                        Case{{-kOne, 0, 0, 0, -kOne, 0, 0, 0, kW}, 2, 3, {60, 50, 40, 30, 20, 10}},
                        Case{{0, -kOne, 0, kOne, 0, 0, 0, 0, kW}, 3, 2, {30, 60, 20, 50, 10, 40}}}) {
    video.display_matrix = c.matrix;
    write_video(path, "ffv1", video);
    const images::Image got = read(path, 1);
    CHECK((got.height == c.height && got.width == c.width));
    CHECK(Bytes(got.pixels.begin(), got.pixels.begin() + 6) == c.red);
  }
  video.display_matrix = {kOne / 2, kOne / 2, 0, -kOne / 2, kOne / 2, 0, 0, 0, kW};
  write_video(path, "ffv1", video);
  CHECK_THAT(refusal(path), Catch::Contains("no multiple of 90 degrees"));
}

TEST_CASE("a truncated video is refused by its name") {
  const TempFolder folder;
  const std::string ending = GENERATE(as<std::string>{}, ".avi", ".mkv", ".mov");
  const std::string path = folder.file("a" + ending);
  write_video(path, "ffv1", noise(64, 48, 12));
  const std::string whole = read_text(path);
  for (const size_t tenths : {1, 5, 9}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, whole.size() * tenths / 10);
    CHECK_THAT(refusal(path),
               Catch::Contains("video '" + path + "' cannot be decoded") && Catch::Contains("remove it"));
  }
}

TEST_CASE("a frame that its decoder finds damaged is refused") {
  const TempFolder folder;
  const std::string path = folder.file("a.avi");
  write_video(path, "mpeg4", noise(64, 48, 12));
  std::string bytes = read_text(path);
  bytes.replace(bytes.size() / 2, 200, 200, '\x55');
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK_THAT(refusal(path), Catch::Contains("video '" + path + "' cannot be decoded") && Catch::Contains("is damaged"));
}

TEST_CASE("what is no video is refused by its name") {
  const TempFolder folder;
  write_video(folder.file("film.avi"), "ffv1", shades(4));
  const std::string path = folder.file("a.mp4");
  const auto refusal_of = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return refusal(path);
  };
  CHECK_THAT(refusal_of(""), Catch::Contains(path) && Catch::Contains("it is empty"));
  // A Matroska header whose size is no number: its bytes would lead out of the file.
  using namespace std::string_literals;
  CHECK_THAT(refusal_of("\x1A\x45\xDF\xA3\x00\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xEC"s), Catch::Contains(path));
  CHECK_THAT(refusal_of("a film"), Catch::Contains("video '" + path + "' cannot be decoded"));
  // Playlists, which would open another file.
  CHECK_THAT(refusal_of("ffconcat version 1.0\nfile film.avi\n"),
             Catch::Contains(path) && Catch::Contains("it is no MP4"));
  CHECK_THAT(refusal_of("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfilm.avi\n#EXT-X-ENDLIST\n"),
             Catch::Contains(path) && Catch::Contains("it is no MP4"));
  std::filesystem::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_THAT(refusal(path), Catch::Contains(path) && Catch::Contains("not a regular file"));
}

TEST_CASE("several threads read the same bits") {
  const TempFolder folder;
  const std::string path = folder.file("a.avi");
  write_video(path, "mpeg4", noise(64, 48, 20));
  const auto av = images::open_ffmpeg();
  const Bytes expected = images::read_video(*av, path, 5).pixels;
  std::vector<Bytes> got(4);
  std::vector<std::thread> threads;
  for (Bytes& pixels : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) pixels = images::read_video(*av, path, 5).pixels;
    });
  for (std::thread& thread : threads) thread.join();
  for (const Bytes& pixels : got) CHECK((pixels == expected));
}

TEST_CASE("libraries that are missing or of another version are named") {
  const TempFolder folder;
  const auto sentence = [&] { return sentence_of([&] { images::open_ffmpeg(folder.path().string() + "/"); }); };
  const std::string file = folder.file("libavutil.so." + std::to_string(LIBAVUTIL_VERSION_MAJOR));
  CHECK_THAT(sentence(), Catch::Contains("was not found") && Catch::Contains(file));
  std::filesystem::copy(DDHOST_FAKE_AVUTIL, file);
  CHECK_THAT(sentence(), Catch::Contains("'" + file + "' has version 1, but this build needs " +
                                         std::to_string(LIBAVUTIL_VERSION_MAJOR)));
}

#endif
