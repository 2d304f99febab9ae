// SPDX-License-Identifier: Apache-2.0
//
// The files of MNIST (IDX: LeCun, Cortes, Burges) and of CIFAR-10 (binary version: Krizhevsky 2009), packed by gzip or not.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "ddh/sdk/files/input_file.hpp"
#include "image_set.hpp"

namespace images {

namespace fs = std::filesystem;

namespace {

constexpr uint32_t kIdxImages = 2051, kIdxLabels = 2049;  // magic numbers
constexpr int64_t kCifarSide = 32, kCifarPixels = 3 * kCifarSide * kCifarSide;
constexpr size_t kCifarRecord = 1 + kCifarPixels;  // bytes

// Big-endian word number `i` of a file.
uint32_t word(const std::vector<uint8_t>& bytes, size_t i) {
  uint32_t value = 0;
  for (size_t b = 4 * i; b < 4 * i + 4; ++b) value = value << 8 | bytes[b];
  return value;
}

// Checks magic number and length; `dims` are the sizes that follow the magic number.
template <size_t N>
std::array<uint64_t, N> read_header(const std::vector<uint8_t>& bytes, const std::string& path, uint32_t magic) {
  constexpr size_t kHeaderBytes = 4 * (N + 1);
  std::array<uint64_t, N> dims{};
  if (bytes.size() < kHeaderBytes || word(bytes, 0) != magic)
    ddh::fail(DDH_DATA_LOSS, "'", path, "' does not begin with ", magic, " as an IDX file of MNIST does; get it again");
  uint64_t numel = 1;
  for (size_t i = 0; i < N; ++i) numel *= dims[i] = word(bytes, i + 1);
  if (bytes.size() - kHeaderBytes != numel)
    ddh::fail(DDH_DATA_LOSS, "'", path, "' has ", bytes.size() - kHeaderBytes,
              " bytes of data, but its header announces ", numel, "; get it again");
  return dims;
}

std::unique_ptr<PackedImages> read_idx(const std::string& folder, const std::string& part) {
  const std::string path = packed_or_not(folder + "/" + part + "-images-idx3-ubyte");
  const std::string label_path = packed_or_not(folder + "/" + part + "-labels-idx1-ubyte");
  if (path.empty() || label_path.empty())
    ddh::fail(DDH_NOT_FOUND, "'", folder, "' lacks ", part, path.empty() ? "-images-idx3-ubyte" : "-labels-idx1-ubyte",
              " (or the same with .gz); add it");
  auto set = std::make_unique<PackedImages>();
  std::vector<uint8_t> bytes = read_unpacked(path), labels = read_unpacked(label_path);
  const auto [n, rows, columns] = read_header<3>(bytes, path, kIdxImages);
  const auto [n_labels] = read_header<1>(labels, label_path, kIdxLabels);
  if (n != n_labels)
    ddh::fail(DDH_DATA_LOSS, "'", path, "' has ", n, " images, but '", label_path, "' has ", n_labels,
              " labels; get both again");
  set->channels = 1;
  set->height = static_cast<int64_t>(rows), set->width = static_cast<int64_t>(columns);
  set->pixels.assign(bytes.begin() + 16, bytes.end());
  set->labels.assign(labels.begin() + 8, labels.end());
  for (size_t i = 0; i < set->labels.size(); ++i) {
    if (set->labels[i] > 9)
      ddh::fail(DDH_DATA_LOSS, "label ", i, " of '", label_path, "' is ", int{set->labels[i]},
                "; MNIST has classes 0 to 9; get it again");
  }
  return set;
}

void append_records(const std::string& path, PackedImages& set) {
  const std::vector<uint8_t> bytes = read_unpacked(path);
  if (bytes.empty() || bytes.size() % kCifarRecord != 0)
    ddh::fail(DDH_DATA_LOSS, "'", path, "' has ", bytes.size(), " bytes; CIFAR-10 has records of ", kCifarRecord,
              "; get it again");
  for (size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    if (bytes[at] > 9)
      ddh::fail(DDH_DATA_LOSS, "record ", at / kCifarRecord, " of '", path, "' has label ", int{bytes[at]},
                "; CIFAR-10 has classes 0 to 9; get it again");
    set.labels.push_back(bytes[at]);
    const auto record = std::span(bytes).subspan(at + 1, kCifarPixels);
    set.pixels.insert(set.pixels.end(), record.begin(), record.end());
  }
}

// The existing files of one part: one file, or the five of the original archive.
std::vector<std::string> cifar_files(const std::string& folder, bool train) {
  std::vector<std::string> names;
  if (train) {
    for (const char* batch : {"1", "2", "3", "4", "5"}) names.push_back(ddh::str("data_batch_", batch, ".bin"));
    names.emplace_back("train.bin");
  } else {
    names = {"test_batch.bin", "test.bin"};
  }
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (std::string path = packed_or_not(folder + "/" + name); !path.empty()) paths.push_back(std::move(path));
  }
  return paths;
}

std::unique_ptr<PackedImages> read_records(const std::vector<std::string>& paths) {
  auto set = std::make_unique<PackedImages>();
  set->channels = 3, set->height = kCifarSide, set->width = kCifarSide;
  for (const std::string& path : paths) append_records(path, *set);
  return set;
}

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose(file); }
};

}  // namespace

std::vector<uint8_t> read_unpacked(const std::string& path) {
  ddh::InputFile opened(path, {"image file", "check data.path"});
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzdopen(opened.release(), "rb"));
  if (file == nullptr)
    ddh::fail(DDH_PERMISSION_DENIED, "cannot open '", path, "': ", std::strerror(errno), "; check data.path");
  gzbuffer(file.get(), 1 << 18);
  std::vector<uint8_t> bytes;
  constexpr size_t kChunk = size_t{1} << 20;
  for (;;) {
    const size_t before = bytes.size();
    bytes.resize(before + kChunk);
    const int got = gzread(file.get(), bytes.data() + before, kChunk);
    int error = Z_OK;
    const char* words = gzerror(file.get(), &error);
    // A file that ends within a stream gives what it has, and an error beside it.
    if (got < 0 || error == Z_BUF_ERROR) ddh::fail(DDH_DATA_LOSS, "'", path, "' is damaged: ", words, "; get it again");
    bytes.resize(before + static_cast<size_t>(got));
    if (got == 0) return bytes;
  }
}

std::string packed_or_not(const std::string& path) {
  std::error_code ignored;
  for (std::string candidate : {path, path + ".gz"}) {
    if (fs::is_regular_file(candidate, ignored)) return candidate;
  }
  return "";
}

bool is_mnist(const std::string& folder) { return !packed_or_not(folder + "/train-images-idx3-ubyte").empty(); }
bool is_cifar(const std::string& folder) { return !cifar_files(folder, true).empty(); }

ImageData read_mnist(const std::string& folder) {
  ImageData data;
  std::unique_ptr<PackedImages> train = read_idx(folder, "train");
  data.channels = 1;
  data.side = train->height == train->width ? train->height : 0;
  data.train = std::move(train);
  data.eval = read_idx(folder, "t10k");
  for (int digit = 0; digit < 10; ++digit) data.classes.push_back(std::to_string(digit));
  return data;
}

ImageData read_cifar(const std::string& folder) {
  ImageData data;
  data.channels = 3, data.side = kCifarSide;
  data.train = read_records(cifar_files(folder, true));
  if (const std::vector<std::string> test = cifar_files(folder, false); !test.empty()) data.eval = read_records(test);
  data.classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  return data;
}

}  // namespace images
