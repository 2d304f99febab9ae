// SPDX-License-Identifier: Apache-2.0
//
// dcp_folder.cpp: folders of torch.distributed.checkpoint. `.metadata` is a pickle that says which file
// holds which chunk of which tensor; each chunk is an archive of torch.save of its own.
#include <algorithm>
#include <cstring>
#include <memory>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/files/plain_name.hpp"
#include "ddh/sdk/plugin.hpp"
#include "flat_values.hpp"
#include "torch_archive.hpp"

namespace fs = std::filesystem;

namespace torch_format {
namespace {

using Kind = PickleValue::Kind;
using Path = std::vector<std::string>;

struct Chunk {
  std::string file;
  uint64_t begin, bytes;         // in the file
  std::vector<int64_t> offsets;  // of its first element; empty: a whole tensor
};

// Copies `part`, which begins at `offsets`, into the whole.
void place(const ddh::FileTensor& part, const std::vector<int64_t>& offsets, const ddh::FileTensor& whole, char* to) {
  const size_t dims = whole.shape.size();
  if (part.dtype != whole.dtype || part.shape.size() != dims || offsets.size() != dims)
    throw std::invalid_argument("a chunk is of another kind than its tensor");
  for (size_t d = 0; d < dims; ++d)
    if (offsets[d] < 0 || offsets[d] > whole.shape[d] || part.shape[d] > whole.shape[d] - offsets[d])
      throw std::invalid_argument("a chunk lies outside its tensor");
  if (part.bytes == 0) return;
  const uint64_t width = ddh_dtype_bytes(part.dtype);
  const uint64_t row = dims == 0 ? width : static_cast<uint64_t>(part.shape[dims - 1]) * width;
  std::vector<int64_t> index(dims, 0);  // in the part, of a row
  for (uint64_t done = 0; done < part.bytes; done += row) {
    uint64_t element = 0;
    for (size_t d = 0; d < dims; ++d)
      element = element * static_cast<uint64_t>(whole.shape[d]) + static_cast<uint64_t>(offsets[d] + index[d]);
    std::memcpy(to + element * width, static_cast<const char*>(part.data) + done, row);
    for (size_t d = dims < 2 ? 0 : dims - 1; d-- > 0;) {
      if (++index[d] < part.shape[d]) break;
      index[d] = 0;
    }
  }
}

// Whether two chunks have an element in common.
bool overlap(const ddh::FileTensor& a, const std::vector<int64_t>& at_a, const ddh::FileTensor& b,
             const std::vector<int64_t>& at_b) {
  for (size_t d = 0; d < at_a.size(); ++d)
    if (at_a[d] >= at_b[d] + b.shape[d] || at_b[d] >= at_a[d] + a.shape[d]) return false;
  return true;
}

class DcpReader {
 public:
  DcpReader(fs::path folder, ForeignCheckpoint& out) : folder_(std::move(folder)), out_(out) {}

  void read(const PickleValue& metadata) {
    for (const auto& [index, info] : metadata.at("storage_data").entries) add_chunk(*index, *info);
    const PickleValue::Ref paths = metadata.find("planner_data");
    for (const auto& [key, about] : metadata.at("state_dict_metadata").entries) {
      if (about->find("chunks") == nullptr) continue;  // bytes: numbers and texts of a trainer
      const std::string& name = key->as_text();
      const PickleValue::Ref path = paths == nullptr ? nullptr : paths->find(name);
      sort(name, path == nullptr ? path_of_name(name) : path_of(*path), *about);
    }
    take_model();
  }

 private:
  static Path path_of(const PickleValue& tuple) {
    Path out;
    for (const PickleValue::Ref item : tuple.items)
      out.push_back(item->kind == Kind::integer ? std::to_string(item->integer) : item->as_text());
    if (out.empty()) throw std::invalid_argument("a tensor has an empty path");
    return out.size() == 1 ? path_of_name(out[0]) : out;
  }
  // At the root an optimizer's tensors have its name in front.
  static Path path_of_name(const std::string& name) {
    for (const std::string optimizer : {"optimizer", "optim"})
      if (name.starts_with(optimizer + ".")) return {optimizer, name.substr(optimizer.size() + 1)};
    return {name};
  }
  static std::string text_of(const Path& path) {
    std::string out;
    for (const std::string& word : path) out += (out.empty() ? "" : ".") + word;
    return "'" + out + "'";
  }

  void add_chunk(const PickleValue& index, const PickleValue& info) {
    const int64_t begin = info.at("offset").as_integer(), bytes = info.at("length").as_integer();
    const std::string& file = info.at("relative_path").as_text();
    // A file name that leads out of the folder is refused.
    if (fs::path(file).filename() != file || begin < 0 || bytes < 0)
      throw std::invalid_argument("a chunk has an invalid file name or place");
    const PickleValue::Ref transforms = info.find("transform_descriptors");
    if (transforms != nullptr && !transforms->items.empty())
      ddh::fail(DDH_UNIMPLEMENTED, "'", folder_.string(), "' is compressed (", transforms->items[0]->text,
                "); save it without transforms");
    Chunk chunk{file, static_cast<uint64_t>(begin), static_cast<uint64_t>(bytes), {}};
    const PickleValue::Ref offsets = index.find("offset");
    if (offsets != nullptr && offsets->kind == Kind::tuple) chunk.offsets = offsets->as_integers();
    chunks_[index.at("fqn").as_text()].push_back(std::move(chunk));
  }

  // A weight, a slot of the optimizer, or something else, which is left out.
  void sort(const std::string& name, const Path& path, const PickleValue& about) {
    const bool is_at_root = path.size() == 1;
    const bool is_in_model =
        !is_at_root && std::find(kStateDicts.begin(), kStateDicts.end(), path[path.size() - 2]) != kStateDicts.end();
    if (is_at_root || is_in_model) {
      models_[Path(path.begin(), path.end() - 1)].push_back({name, path.back(), &about});
    } else if (const std::optional<Slot> slot = slot_of(path)) {
      if (slot->quantity == "step") note_step(out_, whole(name, about), slot->param);
      if (slot->quantity == "exp_avg" || slot->quantity == "exp_avg_sq")
        ddh::add_plain(out_.slots, slot->param, whole(name, about), slot->quantity + "/");
    }
  }

  struct Slot {
    std::string quantity, param;
  };
  // An optimizer keeps state, <parameter>, exp_avg; in one word where its state dict was flattened, as by torchtitan:
  // state.<parameter>.exp_avg.
  static std::optional<Slot> slot_of(const Path& path) {
    constexpr std::string_view kState = "state.";
    const std::string& last = path.back();
    if (path.size() >= 3 && path[path.size() - 3] == "state") return Slot{last, path[path.size() - 2]};
    const size_t dot = last.rfind('.');
    if (!last.starts_with(kState) || dot < kState.size()) return std::nullopt;
    return Slot{last.substr(dot + 1), last.substr(kState.size(), dot - kState.size())};
  }

  // The outermost dict that is named as a model, such as app.model of PyTorch's tutorial; else the tensors at the root.
  void take_model() {
    const auto order = [](const auto& a, const auto& b) {  // the root, which has no words, is the last
      return a.first.size() - 1 < b.first.size() - 1;
    };
    const auto outermost = std::min_element(models_.begin(), models_.end(), order);
    if (outermost == models_.end()) return;
    for (const auto& [path, weights] : models_)
      if (path.size() == outermost->first.size() && path != outermost->first)
        throw std::invalid_argument("it holds two models, in " + text_of(outermost->first) + " and in " +
                                    text_of(path));
    for (const Weight& weight : outermost->second)
      ddh::add_plain(out_.weights, weight.last, whole(weight.name, *weight.about));
  }

  ddh::FileTensor whole(const std::string& name, const PickleValue& about) {
    const std::vector<int64_t> shape = about.at("size").as_integers();
    const auto chunks = chunks_.find(name);
    if (chunks == chunks_.end()) throw std::out_of_range("no file holds '" + name + "'");
    std::vector<ddh::FileTensor> parts;
    uint64_t held = 0;
    for (const Chunk& chunk : chunks->second) {
      parts.push_back(read_chunk(chunk));
      held += parts.back().bytes;
    }
    if (parts.size() == 1 && parts[0].shape == shape) return parts[0];
    const OwnedTensor out = own(out_, parts.front().dtype, shape, held);
    if (held != out.tensor.bytes) throw std::invalid_argument("the chunks of '" + name + "' do not fill it once");
    for (size_t i = 0; i < parts.size(); ++i) place(parts[i], chunks->second[i].offsets, out.tensor, out.bytes);
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (overlap(parts[i], chunks->second[i].offsets, parts[j], chunks->second[j].offsets))
          throw std::invalid_argument("chunks of '" + name + "' overlap");
    return out.tensor;
  }

  ddh::FileTensor read_chunk(const Chunk& chunk) {
    const std::string what = "'" + (folder_ / chunk.file).string() + "'";
    if (!files_.contains(chunk.file)) files_[chunk.file] = out_.map((folder_ / chunk.file).string());
    const std::string_view bytes = files_[chunk.file];
    if (chunk.begin > bytes.size() || chunk.bytes > bytes.size() - chunk.begin)
      ddh::fail(DDH_DATA_LOSS, what, " is cut short: it has ", bytes.size(), " bytes; get the folder again");
    const TorchArchive archive(bytes.substr(chunk.begin, chunk.bytes), what);
    return archive.tensor(archive.root(), out_.values);
  }

  const fs::path folder_;
  ForeignCheckpoint& out_;
  struct Weight {
    std::string name, last;  // of the tensor, and of the weight in its dict
    const PickleValue* about;
  };
  std::map<Path, std::vector<Weight>> models_;        // by the dict that holds them
  std::map<std::string, std::vector<Chunk>> chunks_;  // by the tensor's name
  std::map<std::string, std::string_view> files_;
};

}  // namespace

void read_dcp_folder(const fs::path& folder, ForeignCheckpoint& out) {
  const std::string what = "'" + (folder / ".metadata").string() + "'";
  const ddh::MappedInput file((folder / ".metadata").string(), {"checkpoint file", "get the file again"});
  const PickleTree tree(file.bytes(), what);
  read_foreign_values(what, [&] { DcpReader(folder, out).read(tree.root()); });
  if (out.weights.empty())
    ddh::fail(DDH_NOT_FOUND, what, " lists no weights: tensors at the root, or in a dict ",
              "model, state_dict, model_state_dict or module");
}

}  // namespace torch_format
