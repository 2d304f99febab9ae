// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/codec_file.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/durable.hpp"
#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// The key of an array's checksum in the file's metadata.
std::string sum_key(const std::string& array) { return "xxh3/" + array; }

// A file whose values are checked against its checksums.
class CheckedFile {
 public:
  explicit CheckedFile(const fs::path& path) : path_(path.string()) {
    std::error_code ec;
    if (!fs::exists(path, ec)) ddh::fail(DDH_DATA_LOSS, "the file '", path_, "' of the codec's state is missing");
    bytes_ = read_whole(path);
    std::map<std::string, std::string> metadata;
    tensors_ = parse_safetensors(bytes_, "'" + path_ + "'", &metadata);
    for (const auto& [name, tensor] : tensors_) {
      const auto sum = metadata.find(sum_key(name));
      if (sum == metadata.end() || sum->second != hex(sum_of(tensor.data, bytes_of(tensor))) || tensor.dtype != DDH_F32)
        ddh::fail(DDH_DATA_LOSS, "array '", name, "' in '", path_, "' is damaged");
    }
  }
  [[nodiscard]] const std::map<std::string, ddh::FileTensor>& tensors() const { return tensors_; }
  static uint64_t bytes_of(const ddh::FileTensor& tensor) {
    uint64_t bytes = sizeof(float);
    for (const int64_t n : tensor.shape) bytes *= static_cast<uint64_t>(n);
    return bytes;
  }

 private:
  const std::string path_;
  std::string bytes_;
  std::map<std::string, ddh::FileTensor> tensors_;
};

}  // namespace

std::string codec_file_of_rank(int rank) { return ddh::str("codec-rank-", rank, ".safetensors"); }

std::string codec_of(const Manifest& manifest) {
  const auto at = std::find_if(manifest.plugins.begin(), manifest.plugins.end(),
                               [](const UsedPlugin& plugin) { return plugin.kind == "codec"; });
  return at == manifest.plugins.end() ? "" : at->id;
}

void write_codec_file(const fs::path& path, const std::vector<CodecArray>& arrays) {
  std::vector<SafetensorsLayout::Item> items;
  std::map<std::string, std::string> metadata;
  for (const CodecArray& array : arrays) {
    items.push_back({array.name, DDH_F32, {static_cast<int64_t>(array.numel)}});
    metadata[sum_key(array.name)] = hex(sum_of(array.data, array.numel * sizeof(float)));
  }
  const SafetensorsLayout layout(items, metadata);
  const RangeFile file(path, RangeFile::Mode::create);
  file.reserve(layout.file_bytes);
  file.write_at(0, layout.header.data(), layout.header.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    file.write_at(layout.file_offsets[i], reinterpret_cast<const char*>(arrays[i].data),
                  arrays[i].numel * sizeof(float));
  file.sync();
}

void read_codec_file(const fs::path& path, const std::vector<CodecArray>& arrays) {
  const CheckedFile file(path);
  for (const CodecArray& array : arrays) {
    const auto found = file.tensors().find(array.name);
    if (found == file.tensors().end() || CheckedFile::bytes_of(found->second) != array.numel * sizeof(float))
      ddh::fail(DDH_FAILED_PRECONDITION, "'", path.string(), "' has no array '", array.name, "' of ", array.numel,
                " elements, which the codec of this run keeps; resume with the codec's options of the checkpoint");
    std::memcpy(array.data, found->second.data, array.numel * sizeof(float));
  }
}

void verify_codec_files(const fs::path& folder, const Manifest& manifest) {
  if (codec_of(manifest).empty()) return;
  static_cast<void>(CheckedFile(folder / kSharedCodecFile));
  for (int rank = 0; rank < manifest.world_size; ++rank)
    static_cast<void>(CheckedFile(folder / codec_file_of_rank(rank)));
}

}  // namespace ddhost
