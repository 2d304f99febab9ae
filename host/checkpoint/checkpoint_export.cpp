// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_checkpoints.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/durable.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/chunk_reader.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/kernels.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using Shard = std::vector<const Manifest::Tensor*>;

uint64_t numel_of(const StoredTensor& t) { return t.bytes / ddh_dtype_bytes(t.dtype); }
uint64_t exported_bytes(const StoredTensor& t) { return numel_of(t) * ddh_dtype_bytes(t.export_dtype); }

// In the order of the model. A shard is filled before the next one begins.
std::vector<Shard> shards_of(const Manifest& manifest, uint64_t most_bytes) {
  std::vector<Shard> out(1);
  uint64_t bytes = 0;
  for (const Manifest::Tensor& tensor : manifest.tensors) {
    if (tensor.stored.kind != TensorKind::param && tensor.stored.kind != TensorKind::buffer) continue;
    const uint64_t more = exported_bytes(tensor.stored);
    if (bytes > 0 && bytes + more > most_bytes) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().push_back(&tensor);
    bytes += more;
  }
  return out;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text.data();
}

// Writes a file by `fill(file)`. It gets its name when it is on the disk.
template <class Fill>
void write_new(const fs::path& path, const Fill& fill) {
  const NewFile file(path.parent_path(), path);
  fill(file.data());
  file.data().sync();
  if (!file.publish(path))
    ddh::fail(DDH_ALREADY_EXISTS, "'", path.string(), "' was created by another program, and is not overwritten; ",
              "give another folder");
}

class ShardWriter {
 public:
  ShardWriter(ChunkReader& reader, const StoredLayout& layout, std::map<std::string, std::string> metadata,
              ExportedFiles& out)
      : reader_(reader), layout_(layout), metadata_(std::move(metadata)), out_(out) {}

  void write(const fs::path& path, const Shard& shard) {
    std::vector<SafetensorsLayout::Item> items;
    for (const Manifest::Tensor* t : shard) {
      items.push_back({t->stored.name, t->stored.export_dtype, t->stored.shape});
      if (is_transposed(t->stored)) std::reverse(items.back().shape.begin(), items.back().shape.end());
    }
    const SafetensorsLayout plan(items, metadata_);
    write_new(path, [&](const RangeFile& file) {
      file.reserve(plan.file_bytes);
      file.write_at(0, plan.header.data(), plan.header.size());
      for (size_t i = 0; i < shard.size(); ++i) write_tensor(file, plan.file_offsets[i], *shard[i]);
    });
    out_.files.push_back(path);
  }

 private:
  void write_tensor(const RangeFile& file, uint64_t offset, const Manifest::Tensor& tensor) {
    const StoredTensor& t = tensor.stored;
    bool overflows = false;
    const auto put = [&](uint64_t begin, const char* data, uint64_t bytes) {
      const uint64_t width = ddh_dtype_bytes(t.dtype), to_width = ddh_dtype_bytes(t.export_dtype);
      const uint64_t numel = bytes / width;
      require_usable(t, data, bytes, begin / width);
      if (t.export_dtype != t.dtype) {
        rounded_.resize(kChunkBytes);
        kernels::cast(rounded_.data(), t.export_dtype, data, t.dtype, numel);
        overflows = overflows || (t.export_dtype == DDH_F16 && has_infinity(numel));
        data = rounded_.data();
      }
      file.write_at(offset + begin / width * to_width, data, numel * to_width);
    };
    if (!is_transposed(t)) {
      reader_.for_each_chunk(tensor, put);
    } else {
      const std::vector<float> whole = transposed(tensor);
      const auto* const data = reinterpret_cast<const char*>(whole.data());
      for (uint64_t c = 0; c < t.chunks(); ++c) put(c * kChunkBytes, data + c * kChunkBytes, t.chunk_bytes(c));
    }
    if (overflows)
      out_.warnings.push_back("parameter '" + t.name +
                              "' holds values outside the range of fp16, its dtype in the file: they are " +
                              "infinite there");
  }
  [[nodiscard]] bool is_transposed(const StoredTensor& t) const {
    return t.kind == TensorKind::param && layout_.transposed.contains(t.name);
  }
  // [out, in] -> [in, out]
  std::vector<float> transposed(const Manifest::Tensor& tensor) {
    const auto out = static_cast<uint64_t>(tensor.stored.shape[0]), in = static_cast<uint64_t>(tensor.stored.shape[1]);
    std::vector<float> whole(out * in), turned(out * in);
    reader_.read(tensor, 0, tensor.stored.bytes, reinterpret_cast<char*>(whole.data()));
    for (uint64_t o = 0; o < out; ++o)
      for (uint64_t i = 0; i < in; ++i) turned[i * out + o] = whole[o * in + i];
    return turned;
  }
  static void require_usable(const StoredTensor& t, const char* values, uint64_t bytes, uint64_t first) {
    if (const std::optional<uint64_t> at = first_unusable(t, values, bytes))
      ddh::fail(DDH_DATA_LOSS, unusable_text(t, first + *at),
                ", so the weights are not written; export an earlier checkpoint");
  }
  // Whether finite values became infinite when they were rounded to fp16.
  bool has_infinity(uint64_t numel) {
    back_.resize(kChunkBytes / sizeof(float));
    kernels::cast(back_.data(), DDH_F32, rounded_.data(), DDH_F16, numel);
    return first_nonfinite(back_.data(), numel).has_value();
  }

  ChunkReader& reader_;
  const StoredLayout& layout_;
  const std::map<std::string, std::string> metadata_;
  ExportedFiles& out_;
  std::vector<char> rounded_;
  std::vector<float> back_;
};

std::string index_text(const std::vector<Shard>& shards) {
  nlohmann::ordered_json index = {{"metadata", {{"total_size", uint64_t{0}}}},
                                  {"weight_map", nlohmann::json::object()}};
  uint64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    for (const Manifest::Tensor* t : shards[s]) {
      index["weight_map"][t->stored.name] = shard_name(s, shards.size());
      total += exported_bytes(t->stored);
    }
  }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
}

// "model" is a layout that transposes nothing.
StoredLayout layout_named(const std::string& name, const fs::path& folder, const Manifest& manifest) {
  if (name == "model") return {};
  std::string known = "model";
  for (const StoredLayout& layout : manifest.layouts) {
    known += ", " + layout.name;
    if (layout.name != name) continue;
    if (layout.refused.empty()) return layout;
    ddh::fail(DDH_FAILED_PRECONDITION, "'", folder.string(), "' can't be exported with --layout ", name, ": ",
              layout.refused, "; leave out --layout");
  }
  ddh::fail(DDH_FAILED_PRECONDITION, "the model of '", folder.string(), "' has no layout '", name, "'; it has: ", known,
            manifest.layouts.empty()
                ? " (a checkpoint of an older ddhost lacks the others: resume it, and export the next)"
                : "; give one of them");
}

}  // namespace

ExportedFiles export_checkpoint(const fs::path& folder, const Manifest& manifest, const fs::path& out,
                                uint64_t most_bytes, const std::string& layout_name) {
  const StoredLayout layout = layout_named(layout_name, folder, manifest);
  const std::vector<Shard> shards = shards_of(manifest, most_bytes);
  std::error_code ec;
  fs::create_directories(out, ec);
  if (ec) ddh::fail(DDH_PERMISSION_DENIED, "can't create the folder '", out.string(), "': ", ec.message());
  const fs::path index = out / "model.safetensors.index.json";
  std::vector<fs::path> paths;
  for (size_t s = 0; s < shards.size(); ++s) paths.push_back(out / shard_name(s, shards.size()));
  paths.push_back(index);
  for (const fs::path& path : paths)
    if (fs::exists(fs::symlink_status(path, ec)))
      ddh::fail(DDH_ALREADY_EXISTS, "'", path.string(), "' exists already and is not overwritten; give another folder");
  ExportedFiles result;
  ChunkReader reader(folder, manifest);
  const SafetensorsFile weights((folder / manifest.files.front().name).string());
  ShardWriter writer(reader, layout, weights_metadata(weights.meaning_of_ids()), result);
  for (size_t s = 0; s < shards.size(); ++s) writer.write(paths[s], shards[s]);
  if (shards.size() > 1) {
    const std::string text = index_text(shards);
    write_new(index, [&](const RangeFile& file) { file.write_at(0, text.data(), text.size()); });
    result.files.push_back(index);
  }
  return result;
}

}  // namespace ddhost
