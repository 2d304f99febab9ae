// SPDX-License-Identifier: Apache-2.0
//
// `ddhost data peek` of models on LibTorch: what it shows is what the files hold at the samples of the training's order.
#include <png.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/samples/sample_order.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json peeked(const Words& words) {
  const Said said = call_ddhost(joined({"data", "peek", "--json", "--nproc", "2", "run.seed=5"}, words));
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  return json::parse(said.out);
}

// Samples of the order that a training with run.seed=5 has.
std::vector<int64_t> ordered(uint64_t n_samples, uint64_t epoch, uint64_t index, uint64_t n) {
  const ddhost::SampleOrder order(n_samples, 5, "");
  return order.samples({epoch * n_samples + index, n}, {n, 1, 1}, 0, 0);
}
std::vector<int64_t> samples_of(const json& seen) {
  std::vector<int64_t> out;
  for (const json& sample : seen["samples"]) out.push_back(sample["sample"].get<int64_t>());
  return out;
}
const json& part(const json& sample, const std::string& name) {
  for (const json& one : sample["parts"])
    if (one["name"] == name) return one;
  FAIL("there is no part " << name << " in " << sample.dump());
  return sample;
}

struct Png {
  size_t height = 0, width = 0;
  std::vector<uint8_t> gray;
};
Png read_png(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&image, path.c_str()) != 0);
  image.format = PNG_FORMAT_GRAY;
  Png out{image.height, image.width, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  REQUIRE(png_image_finish_read(&image, nullptr, out.gray.data(), 0, nullptr) != 0);
  return out;
}

constexpr size_t kSide = 8, kImages = 40, kScale = 14, kGap = 2;  // 8 pixels are enlarged to 112

std::string big_endian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}
// Images in the format of MNIST, whose pixels all differ.
std::string write_images(const fs::path& folder) {
  std::string pixels, labels;
  for (size_t i = 0; i < kImages; ++i) {
    labels += static_cast<char>(i % 10);
    for (size_t p = 0; p < kSide * kSide; ++p) pixels += static_cast<char>((i * 37 + p * 3 + p / 9) % 256);
  }
  std::ofstream(folder / "train-images-idx3-ubyte", std::ios::binary)
      << big_endian(0x803) << big_endian(kImages) << big_endian(kSide) << big_endian(kSide) << pixels;
  std::ofstream(folder / "train-labels-idx1-ubyte", std::ios::binary)
      << big_endian(0x801) << big_endian(kImages) << labels;
  std::ofstream(folder / "t10k-images-idx3-ubyte", std::ios::binary)
      << big_endian(0x803) << big_endian(kImages) << big_endian(kSide) << big_endian(kSide) << pixels;
  std::ofstream(folder / "t10k-labels-idx1-ubyte", std::ios::binary)
      << big_endian(0x801) << big_endian(kImages) << labels;
  return pixels;
}
Words image_words(const TempFolder& folder) {
  return {"--model",
          "vit",
          "model.n_layer=1",
          "model.width=8",
          "model.patch=4",
          "data.micro_batch=3",
          "data.path=" + folder.path().string(),
          "--out",
          folder.file("out")};
}

// The pixels of a sample in a sheet of four columns.
std::string tile(const Png& png, size_t place, size_t columns) {
  const size_t top = place / columns * (kSide * kScale + kGap) + kGap;
  const size_t left = place % columns * (kSide * kScale + kGap) + kGap;
  std::string out;
  for (size_t y = 0; y < kSide; ++y)
    for (size_t x = 0; x < kSide; ++x)
      out += static_cast<char>(png.gray[(top + y * kScale + kScale / 2) * png.width + left + x * kScale]);
  return out;
}

}  // namespace

TEST_CASE("peek shows the text at the samples of the order, and escapes it on a terminal", "[cli]") {
  const TempFolder folder;
  std::string text;
  for (size_t i = 0; i < 3000; ++i) text += static_cast<char>(i % 97 == 5 ? 0x1b : 'a' + (i * i + i / 7) % 23);
  std::ofstream(folder.file("text.txt"), std::ios::binary) << text;
  const Words words = {"--model", "gpt", "model.context=16", "data.val_fraction=0",
                       "data.path=" + folder.file("text.txt")};
  const uint64_t n = text.size() - 16;
  for (const char* epoch : {"0", "1"}) {
    const json seen = peeked(joined(words, {"--epoch", epoch, "--index", "7", "--samples", "20"}));
    CHECK(seen["epoch_size"] == n);
    CHECK(samples_of(seen) == ordered(n, static_cast<uint64_t>(epoch[0] - '0'), 7, 20));
    for (const json& sample : seen["samples"]) {
      const auto at = sample["sample"].get<size_t>();
      CHECK(part(sample, "tokens")["text"] == text.substr(at, 16));
      CHECK(part(sample, "targets")["text"] == text.substr(at + 1, 16));
    }
  }
  CHECK(samples_of(peeked(words)) == ordered(n, 0, 0, 16));
  CHECK(ordered(n, 0, 0, 16) != ordered(n, 1, 0, 16));
  const std::string order = folder.file("order");
  const int64_t given[] = {3, 0, 2, 1};
  std::ofstream(order, std::ios::binary).write(reinterpret_cast<const char*>(given), sizeof given);
  CHECK(samples_of(peeked(joined(words, {"data.order=" + order}))) == std::vector<int64_t>{3, 0, 2, 1});
  const Said lines = call_ddhost(joined({"data", "peek", "--nproc", "2", "--samples", "200"}, words));
  CHECK(lines.code == 0);
  CHECK_THAT(lines.out, Contains("\\x1b") && Contains("program 'train', epoch 0: 200 samples of"));
  CHECK(lines.out.find('\x1b') == std::string::npos);
  for (const auto& [wrong, says] : std::vector<std::pair<Words, std::string>>{
           {{"--epoch", "99999999999999"}, "--epoch '99999999999999' is no integer"},
           {{"--index", "5000"}, "give an index from 0 to"},
           {{"--program", "trane"}, "did you mean 'train'?"},
           {{"data.path=" + folder.file("none.txt")}, "none.txt"}}) {
    const Said said = call_ddhost(joined(joined({"data", "peek"}, words), wrong));
    INFO(said.out << said.err);
    CHECK(said.code > 0);
    CHECK(said.code < 128);
    CHECK(said.out.empty());
    CHECK_THAT(said.err, Contains(says));
  }
}

TEST_CASE("peek writes a sheet of the pixels that the file has", "[cli]") {
  const TempFolder folder;
  const std::string pixels = write_images(folder.path());
  const json seen = peeked(image_words(folder));
  CHECK(samples_of(seen) == ordered(kImages, 0, 0, 16));
  const auto file = part(seen["samples"][0], "image")["file"].get<std::string>();
  const Png png = read_png(file);
  CHECK(png.width == 4 * (kSide * kScale + kGap) + kGap);
  for (size_t i = 0; i < 16; ++i) {
    const auto sample = seen["samples"][i]["sample"].get<size_t>();
    CHECK(tile(png, i, 4) == pixels.substr(sample * kSide * kSide, kSide * kSide));
    CHECK(part(seen["samples"][i], "label")["text"] == std::to_string(sample % 10));
  }
  const std::string before = read_text(file);
  const json again = peeked(image_words(folder));
  CHECK(part(again["samples"][0], "image")["file"] != file);  // nothing is overwritten
  CHECK(read_text(file) == before);
  CHECK(samples_of(peeked(joined(image_words(folder), {"--epoch", "1"}))) == ordered(kImages, 1, 0, 16));
  CHECK(peeked(joined(image_words(folder), {"--program", "eval", "--samples", "3"}))["samples"].size() == 3);
}

TEST_CASE("peek shows pixels after augmentation, which differ from epoch to epoch", "[cli]") {
  const TempFolder folder;
  const std::string pixels = write_images(folder.path());
  const std::string order = folder.file("order");
  const int64_t given[] = {0, 1, 2, 3};
  std::ofstream(order, std::ios::binary).write(reinterpret_cast<const char*>(given), sizeof given);
  std::vector<std::string> tiles;
  for (const char* epoch : {"0", "1", "2"}) {
    const json seen = peeked(joined(image_words(folder), {"--epoch", epoch, "data.order=" + order, "model.flip=true"}));
    const Png png = read_png(part(seen["samples"][0], "image")["file"].get<std::string>());
    for (size_t i = 0; i < 4; ++i) {
      std::string mirrored = pixels.substr(i * kSide * kSide, kSide * kSide);
      const std::string own = mirrored;
      for (size_t y = 0; y < kSide; ++y)
        std::reverse(mirrored.begin() + static_cast<std::ptrdiff_t>(y * kSide),
                     mirrored.begin() + static_cast<std::ptrdiff_t>((y + 1) * kSide));
      const std::string shown = tile(png, i, 2);
      CHECK((shown == own || shown == mirrored));
      tiles.push_back(shown == own ? "own" : "mirrored");
    }
  }
  CHECK(std::set<std::string>(tiles.begin(), tiles.end()).size() == 2);
  const bool changes = !std::equal(tiles.begin(), tiles.begin() + 4, tiles.begin() + 4) ||
                       !std::equal(tiles.begin(), tiles.begin() + 4, tiles.begin() + 8);
  CHECK(changes);
}

TEST_CASE("peek shows rows of the graph's files", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("train.txt")) << "0 0 1\n1 1 2\n2 3\n";
  std::ofstream(folder.file("test.txt")) << "0 2\n1 3\n2\n";
  std::ofstream(folder.file("kg_final.txt")) << "0 0 4\n1 0 4\n2 1 5\n3 1 5\n";
  const std::vector<std::string> pairs = {"user 0, item 0; wrong item ", "user 0, item 1; wrong item ",
                                          "user 1, item 1; wrong item ", "user 1, item 2; wrong item ",
                                          "user 2, item 3; wrong item "};
  const Words words = {"--model",
                       "kgat",
                       "data.micro_batch=2",
                       "model.cf_sampling=pairs",
                       "model.kg_sampling=triples",
                       "data.path=" + folder.path().string()};
  for (const char* epoch : {"0", "1"}) {
    const json seen = peeked(joined(words, {"--program", "cf", "--epoch", epoch}));
    CHECK(samples_of(seen) == ordered(pairs.size(), static_cast<uint64_t>(epoch[0] - '0'), 0, pairs.size()));
    for (const json& sample : seen["samples"])
      CHECK_THAT(part(sample, "row")["text"].get<std::string>(),
                 Catch::StartsWith(pairs[sample["sample"].get<size_t>()]));
  }
  // Edges by head, tail and relation; a batch holds them by relation.
  const json kg = peeked(joined(words, {"--program", "kg", "--samples", "100", "data.micro_batch=18"}));
  CHECK(kg["epoch_size"] == 18);
  std::set<std::string> rows;
  for (const json& sample : kg["samples"]) {
    const auto row = part(sample, "row")["text"].get<std::string>();
    rows.insert(row.substr(0, row.find(';')));
    if (sample["sample"] == 0) CHECK_THAT(row, Catch::StartsWith("item 0, relation 0, entity 4; wrong tail "));
    if (sample["sample"] == 1) CHECK_THAT(row, Catch::StartsWith("item 0, interaction backwards, user 0; wrong tail "));
    if (sample["sample"] == 17) CHECK_THAT(row, Catch::StartsWith("user 2, interaction, item 3; wrong tail "));
  }
  CHECK(rows.size() == 18);
  CHECK(rows.contains("entity 5, relation 1 backwards, item 2"));
  const json eval = peeked(joined(words, {"--program", "eval"}));
  CHECK(eval["samples"].size() == 2);
  const Said update = call_ddhost(joined({"data", "peek", "--program", "attention"}, words));
  CHECK(update.code > 0);
  CHECK_THAT(update.err, Contains("give one of --program cf, kg, eval"));
}
