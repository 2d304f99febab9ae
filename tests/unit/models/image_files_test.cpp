// SPDX-License-Identifier: Apache-2.0
//
// Files of images: what is read from them, and the sentence for those that are damaged.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

// After <cstdio>, which it needs.
#include <jpeglib.h>
#include <zlib.h>

#include "../../models/images/image_set.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "png_writer.hpp"

using namespace ddhost::test;
using Bytes = std::vector<uint8_t>;

namespace {

void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Bytes read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_gzip(const std::string& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

// A header of big-endian words, then `data`.
Bytes idx(const std::vector<uint32_t>& header, const Bytes& data) {
  Bytes out;
  for (const uint32_t word : header) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(word >> shift));
  }
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

// A folder as MNIST's: 3 images of 2 x 2 pixels for training, 1 for evaluation.
void write_mnist(const TempFolder& folder) {
  write_gzip(folder.file("train-images-idx3-ubyte.gz"), idx({2051, 3, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  write_bytes(folder.file("train-labels-idx1-ubyte"), idx({2049, 3}, {7, 0, 9}));
  write_bytes(folder.file("t10k-images-idx3-ubyte"), idx({2051, 1, 2, 2}, {255, 254, 253, 252}));
  write_gzip(folder.file("t10k-labels-idx1-ubyte.gz"), idx({2049, 1}, {5}));
}

std::string mnist_sentence(const TempFolder& folder) {
  return sentence_of([&] { images::read_mnist(folder.path().string()); });
}

void write_jpeg(const std::string& path, unsigned width, unsigned height, Bytes pixels) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = width, info.image_height = height, info.input_components = 3, info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  for (unsigned y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + size_t{3} * width * y;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

Bytes noise(size_t n) {
  Bytes out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(i * i * 31 + i * 7);
  return out;
}

}  // namespace

TEST_CASE("MNIST's files are read, compressed or not") {
  const TempFolder folder;
  write_mnist(folder);
  REQUIRE(images::is_mnist(folder.path().string()));
  const images::ImageData data = images::read_mnist(folder.path().string());
  REQUIRE(data.train->size() == 3);
  CHECK(data.train->image(1).pixels == Bytes{4, 5, 6, 7});
  CHECK(data.train->label(2) == 9);
  CHECK(data.eval->image(0).pixels == Bytes{255, 254, 253, 252});
  CHECK(data.eval->label(0) == 5);
  CHECK((data.channels == 1 && data.side == 2 && data.classes.size() == 10));
}

TEST_CASE("a damaged file of MNIST is named") {
  const TempFolder folder;
  write_mnist(folder);
  const std::string labels = folder.file("train-labels-idx1-ubyte"), pixels = folder.file("train-images-idx3-ubyte.gz");
  write_bytes(labels, idx({2049, 3}, {7, 10, 9}));
  CHECK_THAT(mnist_sentence(folder), Catch::Contains("label 1 of '" + labels + "' is 10"));
  write_bytes(labels, idx({2049, 2}, {7, 1}));
  CHECK_THAT(mnist_sentence(folder),
             Catch::Contains(pixels) && Catch::Contains("has 3 images") && Catch::Contains("2 labels"));
  write_bytes(labels, idx({2049, 3}, {7, 1}));
  CHECK_THAT(mnist_sentence(folder),
             Catch::Contains(labels) && Catch::Contains("2 bytes of data") && Catch::Contains("announces 3"));
  write_bytes(labels, idx({2050, 3}, {7, 1, 1}));
  CHECK_THAT(mnist_sentence(folder), Catch::Contains("does not begin with 2049"));
  std::filesystem::remove(labels);
  CHECK_THAT(mnist_sentence(folder), Catch::Contains("lacks train-labels-idx1-ubyte"));
  const Bytes whole = read_bytes(pixels);
  write_bytes(pixels, {whole.begin(), whole.end() - 9});
  write_bytes(labels, idx({2049, 3}, {7, 0, 9}));
  CHECK_THAT(mnist_sentence(folder), Catch::Contains(pixels) && Catch::Contains("is damaged"));
}

TEST_CASE("CIFAR-10's records are read from one file or from the five of the archive") {
  const bool archive = GENERATE(false, true);
  const TempFolder folder;
  Bytes first{3}, second{8};
  for (const uint8_t byte : noise(3072)) first.push_back(byte), second.push_back(static_cast<uint8_t>(byte + 1));
  if (archive) {
    write_bytes(folder.file("data_batch_1.bin"), first);
    write_gzip(folder.file("data_batch_2.bin.gz"), second);
    write_bytes(folder.file("test_batch.bin"), second);
  } else {
    Bytes both = first;
    both.insert(both.end(), second.begin(), second.end());
    write_gzip(folder.file("train.bin.gz"), both);
  }
  REQUIRE(images::is_cifar(folder.path().string()));
  const images::ImageData data = images::read_cifar(folder.path().string());
  REQUIRE(data.train->size() == 2);
  CHECK(data.train->label(0) == 3);
  CHECK(data.train->label(1) == 8);
  CHECK(data.train->image(0).pixels == Bytes(first.begin() + 1, first.end()));
  CHECK(data.train->image(1).pixels == Bytes(second.begin() + 1, second.end()));
  CHECK((data.eval != nullptr) == archive);
}

TEST_CASE("a truncated or wrong record of CIFAR-10 is named") {
  const TempFolder folder;
  const std::string path = folder.file("train.bin");
  const auto sentence = [&] { return sentence_of([&] { images::read_cifar(folder.path().string()); }); };
  write_bytes(path, Bytes(3072, 1));
  CHECK_THAT(sentence(), Catch::Contains(path) && Catch::Contains("3072 bytes"));
  Bytes records(2 * 3073, 1);
  records[3073] = 12;
  write_bytes(path, records);
  CHECK_THAT(sentence(), Catch::Contains("record 1 of '" + path + "' has label 12"));
}

TEST_CASE("PNG files are decoded, gray and in colour") {
  const TempFolder folder;
  const std::string gray = folder.file("gray.png"), colour = folder.file("colour.png");
  write_png(gray, 3, 2, {1, 2, 3, 4, 5, 250});
  write_png(colour, 2, 1, {10, 20, 30, 40, 50, 60});
  const images::Image g = images::decode(gray), c = images::decode(colour);
  CHECK((g.channels == 1 && g.height == 2 && g.width == 3));
  CHECK(g.pixels == Bytes{1, 2, 3, 4, 5, 250});
  CHECK((c.channels == 3 && c.height == 1 && c.width == 2));
  CHECK(c.pixels == Bytes{10, 40, 20, 50, 30, 60});
}

TEST_CASE("JPEG files are decoded, up to the loss of compression") {
  const TempFolder folder;
  const std::string path = folder.file("a.jpg");
  Bytes pixels;
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 24; ++x)
      pixels.insert(pixels.end(), {static_cast<uint8_t>(x * 8), static_cast<uint8_t>(y * 12), 100});
  }
  write_jpeg(path, 24, 16, pixels);
  const images::Image image = images::decode(path);
  REQUIRE((image.channels == 3 && image.height == 16 && image.width == 24));
  for (size_t i = 0; i < 16 * 24; ++i) {
    for (size_t c = 0; c < 3; ++c) REQUIRE(std::abs(image.pixels[c * 16 * 24 + i] - pixels[3 * i + c]) <= 12);
  }
}

TEST_CASE("a truncated image is refused by its name") {
  const TempFolder folder;
  const std::string png = folder.file("a.png"), jpeg = folder.file("a.jpg"), text = folder.file("b.png");
  write_png(png, 40, 40, noise(1600));
  write_jpeg(jpeg, 40, 40, noise(4800));
  for (const std::string& path : {png, jpeg}) {
    const Bytes whole = read_bytes(path);
    write_bytes(path, {whole.begin(), whole.begin() + static_cast<int64_t>(whole.size() / 2)});
    CHECK_THAT(sentence_of([&] { images::decode(path); }), Catch::Contains("image '" + path + "' cannot be decoded"));
  }
  std::ofstream(text) << "no image";
  CHECK_THAT(sentence_of([&] { images::decode(text); }), Catch::Contains(text) && Catch::Contains("neither"));
  write_bytes(text, {});
  CHECK_THAT(sentence_of([&] { images::decode(text); }), Catch::Contains("it is empty"));
}

TEST_CASE("superfluous bytes in a JPEG file change nothing") {
  const TempFolder folder;
  const std::string path = folder.file("a.jpg");
  write_jpeg(path, 40, 40, noise(4800));
  const images::Image expected = images::decode(path);
  Bytes bytes = read_bytes(path);
  bytes.insert(bytes.begin() + 20, 7, 0);  // after the first segment
  write_bytes(path, bytes);
  CHECK(images::decode(path).pixels == expected.pixels);
}

TEST_CASE("a JPEG file that announces too many pixels is refused before they are allocated") {
  const TempFolder folder;
  const std::string path = folder.file("a.jpg");
  write_jpeg(path, 8, 8, noise(192));
  Bytes bytes = read_bytes(path);
  const Bytes frame = {0xFF, 0xC0, 0, 17, 8};  // then height and width
  const auto at = std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end());
  REQUIRE(at != bytes.end());
  const Bytes sides = {0x40, 0x01, 0x40, 0x00};  // 16385 x 16384
  std::copy(sides.begin(), sides.end(), at + 5);
  write_bytes(path, bytes);
  CHECK_THAT(sentence_of([&] { images::decode(path); }), Catch::Contains("announces too many pixels"));
}

TEST_CASE("a folder of classes is split by val_fraction, or has a folder for evaluation") {
  const TempFolder folder;
  const auto add = [&](const std::string& place, int n) {
    std::filesystem::create_directories(folder.file(place));
    for (int i = 0; i < n; ++i)
      write_png(folder.file(place + "/" + std::to_string(100 + i) + ".png"), 2, 2, Bytes(4, static_cast<uint8_t>(i)));
  };
  SECTION("by val_fraction, the same for each class") {
    add("cat", 8), add("dog", 4);
    std::ofstream(folder.file("cat/notes.txt")) << "no image";
    const images::ImageData data = images::read_folder(folder.path().string(), "", 0.25);
    CHECK(data.classes == std::vector<std::string>{"cat", "dog"});
    REQUIRE((data.train->size() == 9 && data.eval->size() == 3));
    CHECK((data.eval->label(1) == 0 && data.eval->label(2) == 1));
    CHECK(data.eval->image(0).pixels[0] == 3);  // the fourth
    CHECK(images::read_folder(folder.path().string(), "", 0).eval == nullptr);
  }
  SECTION("by folders") {
    add("train/cat", 3), add("train/dog", 2), add("test/cat", 1), add("test/dog", 1);
    const images::ImageData data = images::read_folder(folder.path().string(), "", 0.5);
    CHECK((data.train->size() == 5 && data.eval->size() == 2));
    add("test/cow", 1);
    CHECK_THAT(
        sentence_of([&] { images::read_folder(folder.path().string(), "", 0.5); }),
        Catch::Contains(folder.file("test") + "' has the class (subfolder) 'cow', but the training data has none"));
    std::filesystem::rename(folder.file("test/cow"), folder.file("elsewhere"));
    std::filesystem::rename(folder.file("test/dog"), folder.file("test/eel"));
    CHECK_THAT(
        sentence_of([&] { images::read_folder(folder.path().string(), "", 0.5); }),
        Catch::Contains(folder.file("test") + "' has no class (subfolder) 'dog', but the training data has one"));
  }
  SECTION("nothing is refused") {
    CHECK_THAT(sentence_of([&] { images::read_folder(folder.path().string(), "", 0.5); }),
               Catch::Contains("one for each class"));
  }
}

TEST_CASE("a video is a folder of frames: evenly spaced ones are seen, and of few frames some again") {
  const TempFolder folder;
  for (const std::string name : {"run", "walk"}) {
    for (int video = 0; video < 2; ++video) {
      const std::string place = name + "/" + std::to_string(video);
      std::filesystem::create_directories(folder.path() / place);
      const int n = name == "run" ? 8 : 2;
      for (int f = 0; f < n; ++f)
        write_png(folder.file(place + "/" + std::to_string(f) + ".png"), 3, 2,
                  Bytes(6, static_cast<uint8_t>(10 * video + f)));
    }
  }
  const images::ImageData data = images::read_folder(folder.path().string(), "", 0.5, 4);
  CHECK(data.classes == std::vector<std::string>{"run", "walk"});
  REQUIRE(data.train->size() == 2);
  REQUIRE(data.eval->size() == 2);
  const auto shades = [](const images::Image& video) {
    REQUIRE(video.frames == 4);
    REQUIRE(video.pixels.size() == 4 * 6);
    return Bytes{video.pixels[0], video.pixels[6], video.pixels[12], video.pixels[18]};
  };
  CHECK(shades(data.train->image(0)) == Bytes{1, 3, 5, 7});
  CHECK(shades(data.train->image(1)) == Bytes{0, 0, 1, 1});
  CHECK(shades(data.eval->image(0)) == Bytes{11, 13, 15, 17});
  CHECK(data.train->label(1) == 1);
}

// A network of images refused the folder that networks of videos take.
TEST_CASE("each frame of a video is an image of its class, and no video is divided between training and evaluation") {
  const TempFolder folder;
  const auto add = [&](const std::string& place, int n, uint8_t shade) {
    std::filesystem::create_directories(folder.file(place));
    for (int i = 0; i < n; ++i)
      write_png(folder.file(place + "/" + std::to_string(100 + i) + ".png"), 2, 2,
                Bytes(4, static_cast<uint8_t>(shade + i)));
  };
  const auto shades = [](const images::ImageSet& set, int64_t label) {
    Bytes out;
    for (uint64_t i = 0; i < set.size(); ++i) {
      if (set.label(i) == label) out.push_back(set.image(i).pixels[0]);
    }
    return out;
  };
  add("run/a", 3, 10), add("run/b", 4, 20), add("walk/c", 2, 30), add("walk/d", 1, 40);
  const std::string path = folder.path().string();
  SECTION("by val_fraction") {
    const images::ImageData data = images::read_folder(path, "", 0.5);
    CHECK(data.classes == std::vector<std::string>{"run", "walk"});
    CHECK(shades(*data.train, 0) == Bytes{10, 11, 12});
    CHECK(shades(*data.train, 1) == Bytes{30, 31});
    REQUIRE(data.eval != nullptr);
    CHECK(shades(*data.eval, 0) == Bytes{20, 21, 22, 23});
    CHECK(shades(*data.eval, 1) == Bytes{40});
    CHECK(data.train->image(0).frames == 1);
    CHECK(images::read_folder(path, "", 0.5, 2).train->size() == 2);  // the same videos
  }
  SECTION("beside images, each of which counts as a video does") {
    add("run", 2, 50);
    std::filesystem::create_directories(folder.path() / "run/empty");
    std::filesystem::create_directories(folder.path() / "run/.hidden");
    const images::ImageData data = images::read_folder(path, "", 0.5);
    CHECK(shades(*data.train, 0) == Bytes{50, 10, 11, 12});
    CHECK(shades(*data.eval, 0) == Bytes{51, 20, 21, 22, 23});
  }
  SECTION("a bad frame leaves its video undivided") {
    std::ofstream(folder.file("run/a/100.png")) << "no image";
    std::ofstream(folder.file("walk/c/100.png")) << "no image";
    images::BadFiles bad;
    const images::ImageData data = images::read_folder(path, "", 0.5, 0, &bad);
    CHECK((bad.n == 2 && bad.of == 10));
    CHECK(shades(*data.train, 0) == Bytes{11, 12});
    CHECK(shades(*data.eval, 0) == Bytes{20, 21, 22, 23});
    CHECK(shades(*data.train, 1) == Bytes{31});
  }
}

TEST_CASE("a video file is no image: the sentence names the networks that take it and makes frames") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::filesystem::create_directories(folder.path() / "run/1");
  write_png(folder.file("run/1/a.png"), 3, 2, Bytes(6, 1));
  CHECK(images::read_folder(path, "", 0).train->size() == 1);
  std::ofstream(folder.file("run/2.MP4")) << "a film";
  const std::string sentence = sentence_of([&] { images::read_folder(path, "", 0); });
  CHECK_THAT(sentence, Catch::Contains("run/2.MP4' is a video file") && Catch::Contains("takes images"));
  CHECK_THAT(sentence, Catch::Contains("cnn_lstm, pretrained_cnn_lstm and conv3d of cnn"));
  CHECK_THAT(sentence, Catch::Contains("ffmpeg -i") && Catch::Contains("run/2/%05d.png"));
}

TEST_CASE("a video that can't be used is refused by its name") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::filesystem::create_directories(folder.path() / "run");
  CHECK_THAT(sentence_of([&] { images::read_folder(path, "", 0, 4); }), Catch::Contains("holds no videos"));
  std::filesystem::create_directories(folder.path() / "run/1");
  const images::ImageData data = images::read_folder(path, "", 0, 4);
  CHECK_THAT(sentence_of([&] { data.train->image(0); }), Catch::Contains("run/1") && Catch::Contains("has no frames"));
  write_png(folder.file("run/1/a.png"), 3, 2, Bytes(6, 1));
  write_png(folder.file("run/1/b.png"), 2, 3, Bytes(6, 1));
  CHECK_THAT(sentence_of([&] { data.train->image(0); }),
             Catch::Contains("'b.png'") && Catch::Contains("2 x 3 pixels") && Catch::Contains("one size"));
}

TEST_CASE("bad images and videos of a folder are left out and counted") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  for (const char* place : {"run/1", "run/2", "walk/3", "walk/4"})
    std::filesystem::create_directories(folder.path() / place);
  for (const char* file : {"run/1/a.png", "walk/3/a.png", "walk/3/b.png", "walk/4/a.png"})
    write_png(folder.file(file), 3, 2, Bytes(6, 1));
  write_png(folder.file("walk/3/b.png"), 2, 3, Bytes(6, 1));  // of another size; run/2 has no frames
  images::BadFiles bad;
  const images::ImageData videos = images::read_folder(path, "", 0, 4, &bad);
  CHECK((bad.n == 2 && bad.of == 4));
  CHECK_THAT(bad.first, Catch::Contains("run/2"));
  REQUIRE(videos.train->size() == 2);
  CHECK((videos.train->label(0) == 0 && videos.train->label(1) == 1));
  CHECK(videos.train->image(1).pixels.size() == 4 * 6);
}

TEST_CASE("without its reader a video file beside folders of frames is refused with a way to convert it") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::filesystem::create_directories(folder.path() / "run/1");
  write_png(folder.file("run/1/a.png"), 3, 2, Bytes(6, 1));
  CHECK(images::read_folder(path, "", 0, 4).train->size() == 1);
  std::ofstream(folder.file("run/2.MP4")) << "a film";
  const std::string sentence = sentence_of([&] { images::read_folder(path, "", 0, 4); });
  CHECK_THAT(sentence, Catch::Contains("run/2.MP4' is a video file") && Catch::Contains("headers were not found"));
  CHECK_THAT(sentence, Catch::Contains("ffmpeg -i") && Catch::Contains("run/2/%05d.png"));
}
