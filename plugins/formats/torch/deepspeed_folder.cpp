// SPDX-License-Identifier: Apache-2.0
//
// deepspeed_folder.cpp: checkpoints of DeepSpeed's ZeRO 1, 2 and 3, and universal checkpoints. The fp32
// masters and Adam's moments lie in flat partitions, one for each rank; the lists of shapes in the model's files say which
// part of them is which parameter. What the model's file holds too is compared with it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <regex>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/files/plain_name.hpp"
#include "ddh/sdk/kernels/flat.hpp"
#include "ddh/sdk/plugin.hpp"
#include "flat_values.hpp"
#include "torch_archive.hpp"

namespace fs = std::filesystem;

namespace torch_format {
namespace {

using Kind = PickleValue::Kind;
constexpr std::array<const char*, 3> kQuantities = {"fp32", "exp_avg", "exp_avg_sq"};  // the first: weights

struct Shaped {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t padding;  // elements after it, in the flat partition of ZeRO 1 and 2
};
using Group = std::vector<Shaped>;

// `latest` names the folder of the newest step; the folder of a step is taken as it is.
fs::path step_folder(const fs::path& folder) {
  std::error_code ec;
  if (!fs::exists(folder / "latest", ec)) return folder;
  std::string tag = ddh::read_input((folder / "latest").string(), {"checkpoint file", "get the folder again"}, 4096);
  tag.erase(tag.find_last_not_of(" \n\r\t") + 1);
  if (tag.empty() || fs::path(tag).filename() != tag)
    ddh::fail(DDH_DATA_LOSS, "'", (folder / "latest").string(), "' names no folder; name the folder of a step");
  return folder / tag;
}

// Files that fit a pattern, in the order of the rank that its first group gives.
std::vector<fs::path> files_of_ranks(const fs::path& folder, const char* pattern) {
  const std::regex expected(pattern);
  std::map<uint64_t, fs::path> out;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    std::smatch match;
    const std::string name = at->path().filename().string();
    if (!std::regex_match(name, match, expected)) continue;
    if (match[2] != "00")
      ddh::fail(
          DDH_UNIMPLEMENTED, "'", at->path().string(), "' is of a model that is split over ranks (tensor or ",
          "pipeline parallelism), which is not read; make a universal checkpoint with DeepSpeed's ds_to_universal");
    const std::string digits = match[1];
    uint64_t rank = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), rank).ec == std::errc::result_out_of_range)
      ddh::fail(DDH_DATA_LOSS, "'", at->path().string(), "' has an impossible rank in its name; get the folder again");
    out[rank] = at->path();
  }
  std::vector<fs::path> files;
  for (const auto& [rank, file] : out) {
    if (rank != files.size())
      ddh::fail(DDH_NOT_FOUND, "'", folder.string(), "' lacks the file of rank ", files.size(),
                "; get the folder again");
    files.push_back(file);
  }
  return files;
}

// The value of an integer key.
const PickleValue* at_number(const PickleValue& dict, uint64_t number) {
  for (const auto& [key, value] : dict.entries)
    if (key->kind == Kind::integer && key->integer == static_cast<int64_t>(number)) return value;
  return nullptr;
}

// The first element of fp32 values that is another one in `rounded`, of the dtype of the computation.
std::optional<uint64_t> first_difference(const ddh::FileTensor& whole, const ddh::FileTensor& rounded) {
  if (whole.dtype != DDH_F32 || whole.data == rounded.data || whole.shape != rounded.shape) return std::nullopt;
  const bool is_float = rounded.dtype == DDH_F32 || rounded.dtype == DDH_BF16 || rounded.dtype == DDH_F16;
  if (!is_float) return std::nullopt;
  const uint64_t width = ddh_dtype_bytes(rounded.dtype), numel = whole.bytes / sizeof(float);
  std::vector<float> values(numel);  // aligned
  std::vector<char> expected(rounded.bytes);
  std::memcpy(values.data(), whole.data, whole.bytes);
  ddh::flat::cast(expected.data(), rounded.dtype, values.data(), DDH_F32, numel);
  const auto* const found = static_cast<const char*>(rounded.data);
  for (uint64_t i = 0; i < numel; ++i)  // a NaN has several forms
    if (!std::isnan(values[i]) && std::memcmp(expected.data() + i * width, found + i * width, width) != 0) return i;
  return std::nullopt;
}

// The model's file holds the weights too, rounded to the dtype of the computation; that of ZeRO 3 has few of them. They
// differ where parameters are exchanged.
void compare_with_model(const std::map<std::string, ddh::FileTensor>& weights,
                        const std::map<std::string, ddh::FileTensor>& of_model, const std::string& what,
                        const std::string& reason) {
  for (const auto& [name, rounded] : of_model) {
    const auto whole = weights.find(name);
    if (whole == weights.end()) continue;
    if (const std::optional<uint64_t> at = first_difference(whole->second, rounded))
      ddh::fail(DDH_FAILED_PRECONDITION, "parameter '", name, "' in ", what,
                " has other fp32 values than its values in the model's file (*_model_states.pt), first at element ",
                *at, ", ", reason);
  }
}

std::map<std::string, ddh::FileTensor> tensors_of_model(const TorchArchive& file, ForeignCheckpoint& out) {
  std::map<std::string, ddh::FileTensor> tensors;
  for (const auto& [name, value] : file.root().at("module").entries)
    if (value->kind == Kind::tensor) ddh::add_plain(tensors, name->as_text(), file.tensor(*value, out.values));
  return tensors;
}

bool is_round_robin(const PickleValue& model) {
  const PickleValue::Ref config = model.find("ds_config");
  const PickleValue::Ref zero = config == nullptr ? nullptr : config->find("zero_optimization");
  const PickleValue::Ref option = zero == nullptr ? nullptr : zero->find("round_robin_gradients");
  return option != nullptr && option->kind == Kind::flag && option->integer != 0;
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(const fs::path& folder, ForeignCheckpoint& out) : folder_(folder), out_(out) {
    for (const fs::path& file : files_of_ranks(folder, "(?:zero_pp_rank_(\\d+)_)?mp_rank_(\\d+)_model_states\\.pt"))
      models_.push_back(open(file));
    for (const fs::path& file :
         files_of_ranks(folder, "(?:bf16_|fp16_)?zero_pp_rank_(\\d+)_mp_rank_(\\d+)_optim_states\\.pt"))
      optims_.push_back(open(file));
    if (models_.empty() || optims_.empty())
      ddh::fail(DDH_NOT_FOUND, "'", folder.string(),
                "' lacks *_model_states.pt or *_optim_states.pt of ZeRO; name the ",
                "folder of a step, or the folder that holds `latest`");
  }

  void read() {
    is_sharded_ = state_of(0).find("fp32_flat_groups") != nullptr;  // ZeRO 3
    require_own_files();
    const PickleValue& model = models_[0]->root();
    read_model(model);
    const std::vector<Group> groups = groups_of(model);
    for (const char* quantity : kQuantities) {
      if (is_sharded_)
        read_sharded(groups, quantity);
      else
        for (size_t g = 0; g < groups.size(); ++g) read_group(groups[g], g, quantity);
    }
    read_shared(model);
    compare_with_model(
        out_.weights, of_model_, "'" + folder_.string() + "'",
        "so it is not clear which are right; save the checkpoint again, or give the model's file alone as "
        "train.init_from");
    read_step(model);
  }

 private:
  std::unique_ptr<TorchArchive> open(const fs::path& file) {
    return std::make_unique<TorchArchive>(out_.map(file.string()), "'" + file.string() + "'");
  }
  const PickleValue& state_of(size_t rank) const { return optims_[rank]->root().at("optimizer_state_dict"); }

  // DeepSpeed leaves the files of another run in a folder that it saves into, and their values would be taken for those of
  // further ranks. Groups of experts have fewer partitions than there are ranks.
  void require_own_files() const {
    const PickleValue::Ref count = state_of(0).find("partition_count");
    if (count == nullptr) return;
    const std::vector<int64_t> counts =
        count->kind == Kind::integer ? std::vector<int64_t>{count->integer} : count->as_integers();
    const int64_t ranks = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    const auto found = static_cast<int64_t>(optims_.size());
    if (found == ranks) return;
    ddh::fail(found > ranks ? DDH_FAILED_PRECONDITION : DDH_NOT_FOUND, "'", folder_.string(),
              "' has the optimizer state ", "(*_optim_states.pt) of ", found, found == 1 ? " rank" : " ranks",
              ", but the file of rank 0 counts ", ranks,
              found > ranks ? ddh::str(": those from rank ", ranks, " on may be of another run; move them elsewhere")
                            : "; get the folder again");
  }
  // `left`: elements of a partition, or of all, behind those of the parameters. Some may be padding.
  void require_all_taken(uint64_t left, uint64_t padding, const std::string& quantity) const {
    if (left <= padding) return;
    ddh::fail(DDH_DATA_LOSS, "the partitions of ", quantity, " in '", folder_.string(), "' hold ", left,
              " elements more than the parameters, where ", padding, " may be padding, so the files do not fit each ",
              "other; get the folder again");
  }
  // Behind the parameters of a group of ZeRO 1 and 2: DeepSpeed aligns it to 2 elements for each rank, and notes how many it
  // has added.
  uint64_t padding_of(size_t group) const {
    uint64_t noted = 0;
    for (size_t rank = 0; rank < optims_.size(); ++rank)
      if (const PickleValue::Ref paddings = state_of(rank).find("group_paddings");
          paddings != nullptr && paddings->items.size() > group)
        noted += static_cast<uint64_t>(paddings->items.at(group)->as_integer());
    return std::max<uint64_t>(noted, 2 * optims_.size() - 1);
  }

  // What the optimizer does not own: buffers, and frozen parameters.
  void read_model(const PickleValue& model) {
    of_model_ = tensors_of_model(*models_[0], out_);
    if (is_sharded_) std::erase_if(of_model_, [](const auto& named) { return named.second.bytes == 0; });
    out_.weights = of_model_;
    const PickleValue::Ref shapes = model.find("frozen_param_shapes");
    if (!is_sharded_ || shapes == nullptr) return;
    for (const auto& [name, shape] : shapes->entries) {
      std::vector<ddh::FileTensor> parts;
      for (const auto& rank : models_)
        parts.push_back(rank->tensor(rank->root().at("frozen_param_fragments").at(name->as_text()), out_.values));
      out_.weights[ddh::plain_name(name->as_text())] = joined(parts, shape->as_integers(), 0, 0);
    }
  }

  std::vector<Group> groups_of(const PickleValue& model) const {
    std::vector<Group> groups;
    const PickleValue::Ref paddings = state_of(0).find("param_alignment_paddings");
    for (const PickleValue::Ref shapes : model.at("param_shapes").items) {
      Group& group = groups.emplace_back();
      for (const auto& [name, shape] : shapes->entries) group.push_back({name->as_text(), shape->as_integers(), 0});
      if (is_sharded_ || paddings == nullptr || paddings->kind == Kind::none) continue;
      const std::vector<int64_t> after = paddings->items.at(groups.size() - 1)->as_integers();
      for (size_t i = 0; i < group.size(); ++i) group[i].padding = static_cast<uint64_t>(after.at(i));
    }
    return groups;
  }

  // The flat partition of a rank, or nullptr where the optimizer has no such slot.
  const PickleValue* partition(size_t rank, size_t group, const std::string& quantity) const {
    const PickleValue& state = state_of(rank);
    if (quantity == "fp32")
      return state.at(is_sharded_ ? "fp32_flat_groups" : "single_partition_of_fp32_groups").items.at(group);
    const PickleValue::Ref base = state.find(is_sharded_ ? "optimizer_state_dict" : "base_optimizer_state");
    if (base == nullptr) return nullptr;
    const PickleValue* slots = base->kind == Kind::list ? base->items.at(group) : at_number(base->at("state"), group);
    return slots == nullptr ? nullptr : slots->find(quantity);
  }

  ddh::FileTensor partition_tensor(size_t rank, const PickleValue& value) {
    ddh::FileTensor tensor = optims_[rank]->tensor(value, out_.values);
    if (tensor.dtype != DDH_F32 || tensor.shape.size() != 1)
      throw std::invalid_argument("a partition is no list of fp32");
    return tensor;
  }

  void put(const std::string& quantity, const std::string& name, const ddh::FileTensor& tensor) {
    if (quantity == "fp32")
      out_.weights[ddh::plain_name(name)] = tensor;
    else
      out_.slots[quantity + "/" + ddh::plain_name(name)] = tensor;
  }

  // ZeRO 1 and 2: the partitions of all ranks, one after the other, hold the parameters of a group in their order.
  void read_group(const Group& group, size_t index, const std::string& quantity) {
    std::vector<char>& flat = out_.values.emplace_back();
    for (size_t rank = 0; rank < optims_.size(); ++rank) {
      const PickleValue* const value = partition(rank, index, quantity);
      if (value == nullptr || value->kind != Kind::tensor) return;
      const ddh::FileTensor part = partition_tensor(rank, *value);
      const auto* const from = static_cast<const char*>(part.data);
      flat.insert(flat.end(), from, from + part.bytes);
    }
    uint64_t at = 0;
    for (const Shaped& param : group) {
      const uint64_t bytes = numel_of(param.shape) * sizeof(float);
      if (at > flat.size() || bytes > flat.size() - at) throw std::out_of_range("the partitions are cut short");
      put(quantity, param.name, {DDH_F32, param.shape, flat.data() + at, bytes});
      at += bytes + param.padding * sizeof(float);
    }
    require_all_taken(at < flat.size() ? (flat.size() - at) / sizeof(float) : 0, padding_of(index), quantity);
  }

  // ZeRO 3: each parameter is cut into as many parts as there are ranks; the groups of a rank follow each other.
  void read_sharded(const std::vector<Group>& groups, const std::string& quantity) {
    std::vector<ddh::FileTensor> flats;
    for (size_t rank = 0; rank < optims_.size(); ++rank) {
      std::vector<char>& flat = out_.values.emplace_back();
      for (size_t g = 0; g < state_of(rank).at("fp32_flat_groups").items.size(); ++g) {
        const PickleValue* const value = partition(rank, g, quantity);
        if (value == nullptr || value->kind != Kind::tensor) return;
        const ddh::FileTensor part = partition_tensor(rank, *value);
        const auto* const from = static_cast<const char*>(part.data);
        flat.insert(flat.end(), from, from + part.bytes);
      }
      flats.push_back({DDH_F32, {static_cast<int64_t>(flat.size() / sizeof(float))}, flat.data(), flat.size()});
    }
    uint64_t at = 0;  // elements
    for (const Group& group : groups) {
      for (const Shaped& param : group) {
        const uint64_t each = (numel_of(param.shape) + flats.size() - 1) / flats.size();
        put(quantity, param.name, joined(flats, param.shape, at, each));
        at += each;
      }
    }
    for (const ddh::FileTensor& flat : flats) {
      if (flat.bytes / sizeof(float) < at) throw std::out_of_range("a partition is cut short");
      require_all_taken(flat.bytes / sizeof(float) - at, 0, quantity);
    }
  }

  // Elements [begin, begin + each) of every part, up to the number that the shape has; each == 0: all of them.
  ddh::FileTensor joined(const std::vector<ddh::FileTensor>& parts, const std::vector<int64_t>& shape, uint64_t begin,
                         uint64_t each) {
    const uint64_t width = ddh_dtype_bytes(parts.front().dtype);
    uint64_t held = 0;
    for (const ddh::FileTensor& part : parts) held += part.bytes;
    const OwnedTensor whole = own(out_, parts.front().dtype, shape, held);
    uint64_t done = 0;
    for (const ddh::FileTensor& part : parts) {
      const uint64_t bytes = std::min(each == 0 ? part.bytes : each * width, whole.tensor.bytes - done);
      if (part.dtype != whole.tensor.dtype || begin * width > part.bytes || bytes > part.bytes - begin * width)
        throw std::out_of_range("a partition is cut short");
      std::copy_n(static_cast<const char*>(part.data) + begin * width, bytes, whole.bytes + done);
      done += bytes;
    }
    if (done != whole.tensor.bytes) throw std::out_of_range("the partitions are cut short");
    return whole.tensor;
  }

  // Names of parameters that are not stored because they are another parameter: a head that is the embedding.
  void read_shared(const PickleValue& model) {
    const PickleValue::Ref shared = model.find("shared_params");
    if (shared == nullptr) return share_by_place();
    for (const auto& [name, of] : shared->entries) {
      const auto at = out_.weights.find(ddh::plain_name(of->as_text()));
      if (at != out_.weights.end()) out_.weights[ddh::plain_name(name->as_text())] = ddh::FileTensor(at->second);
    }
  }

  // Versions without that list: names of one parameter have one place in the model's file.
  void share_by_place() {
    std::map<const void*, ddh::FileTensor> by_place;  // what the optimizer owns
    const auto is_replaced = [&](const std::string& name, const ddh::FileTensor& of_model) {
      return out_.weights.at(name).data != of_model.data;
    };
    for (const auto& [name, tensor] : of_model_)
      if (is_replaced(name, tensor)) by_place.emplace(tensor.data, out_.weights.at(name));
    for (const auto& [name, tensor] : of_model_)
      if (const auto at = by_place.find(tensor.data); at != by_place.end() && !is_replaced(name, tensor))
        out_.weights[name] = at->second;
  }

  void read_step(const PickleValue& model) {
    if (out_.slots.empty()) return;
    const PickleValue::Ref steps = model.find("global_steps"), skipped = model.find("skipped_steps");
    if (steps != nullptr) out_.step = steps->as_integer() - (skipped == nullptr ? 0 : skipped->as_integer());
  }

  const fs::path folder_;
  ForeignCheckpoint& out_;
  std::vector<std::unique_ptr<TorchArchive>> models_, optims_;
  bool is_sharded_ = false;
  std::map<std::string, ddh::FileTensor> of_model_;  // what the model's file holds, in the dtype of the computation
};

}  // namespace

void read_deepspeed_folder(const fs::path& folder, ForeignCheckpoint& out) {
  const fs::path step = step_folder(folder);
  read_foreign_values("'" + step.string() + "'", [&] { DeepSpeedReader(step, out).read(); });
}

void read_universal_folder(const fs::path& folder, ForeignCheckpoint& out) {
  const auto read = [&](const fs::path& file) -> std::optional<ddh::FileTensor> {
    std::error_code ec;
    if (!fs::exists(file, ec)) return std::nullopt;
    const TorchArchive archive(out.map(file.string()), "'" + file.string() + "'");
    const PickleValue& root = archive.root();
    return archive.tensor(root.kind == Kind::dict ? root.at("param") : root, out.values);
  };
  read_foreign_values("'" + folder.string() + "'", [&] {
    std::error_code ec;
    for (fs::directory_iterator at(folder / "zero", ec), end; !ec && at != end; at.increment(ec)) {
      const std::string name = at->path().filename().string();
      const std::optional<ddh::FileTensor> weight = read(at->path() / "fp32.pt");
      if (!weight) continue;
      ddh::add_plain(out.weights, name, *weight);
      for (const char* slot : {"exp_avg", "exp_avg_sq"})
        if (const std::optional<ddh::FileTensor> value = read(at->path() / (std::string(slot) + ".pt")))
          ddh::add_plain(out.slots, name, *value, std::string(slot) + "/");
      const std::optional<ddh::FileTensor> step = read(at->path() / "step.pt");
      if (step) note_step(out, *step, name);
    }
    const fs::path model = folder / "mp_rank_00_model_states.pt";
    if (!fs::exists(model, ec)) return;
    const TorchArchive file(out.map(model.string()), "'" + model.string() + "'");
    const char* const reason =
        is_round_robin(file.root())
            ? "because DeepSpeed's ds_to_universal exchanges parameters of a run with "
              "zero_optimization.round_robin_gradients; give the checkpoint that it was made from"
            : "so it is not clear which are right; make the universal checkpoint again";
    compare_with_model(out.weights, tensors_of_model(file, out), "'" + folder.string() + "'", reason);
  });
  if (out.weights.empty())
    ddh::fail(DDH_NOT_FOUND, "'", folder.string(),
              "' holds no zero/<parameter>/fp32.pt; give the folder of a universal ", "checkpoint");
}

}  // namespace torch_format
