// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_files.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/files/plain_name.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kIndexEnd = ".index.json";
constexpr uint64_t kMostIndexBytes = 100'000'000;  // as the header of a safetensors file

// The file to read in a folder: its index, or its only safetensors file.
std::string chosen_in(const fs::path& folder) {
  std::vector<std::string> indices, files;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(".safetensors" + std::string(kIndexEnd))) indices.push_back(at->path().string());
    if (name.ends_with(".safetensors")) files.push_back(at->path().string());
  }
  const bool is_run = fs::is_directory(folder / "checkpoints", ec) || fs::exists(folder / "run.lock", ec);
  if (indices.size() + files.size() == 0 && is_run)
    ddh::fail(DDH_NOT_FOUND, "folder '", folder.string(), "' is that of a run that has no checkpoint; name a file of ",
              "weights, or a checkpoint");
  if (indices.size() == 1) return indices.front();
  if (indices.empty() && files.size() == 1) return files.front();
  ddh::fail(DDH_NOT_FOUND, "folder '", folder.string(), "' holds ", indices.size(),
            " indices (*.safetensors.index.json) and ", files.size(),
            " safetensors files, so it is not clear which to read; name a file or an index");
}

nlohmann::json weight_map_of(const std::string& path) {
  const ddh::InputWords words{"index", "give an existing file"};
  nlohmann::json root;
  try {
    root = read_sorted_json(ddh::read_input(path, words, kMostIndexBytes));
  } catch (const JsonError& e) {
    ddh::fail(DDH_DATA_LOSS, "the index '", path, "' is damaged: ", e.what(), "; get the file again");
  }
  const bool is_index = root.is_object() && root.contains("weight_map") && root["weight_map"].is_object();
  if (!is_index)
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is not an index of safetensors files: it has no object \"weight_map\"; ",
              "give another file");
  return root["weight_map"];
}

}  // namespace

TensorFiles::TensorFiles(const std::string& path, const std::string& converted) : path_(path) {
  if (!converted.empty()) {
    add_converted(converted);
    return;
  }
  std::error_code ec;
  if (fs::exists(fs::path(path) / "manifest.json", ec)) {
    add_checkpoint(path);
    return;
  }
  const std::string file = fs::is_directory(path, ec) ? chosen_in(path) : path;
  if (file.ends_with(kIndexEnd))
    add_index(file);
  else
    add_file(file);
}

void TensorFiles::unwrap(const std::set<std::string>& known) {
  std::map<std::string, const SafetensorsFile::Tensor*> named;
  for (const auto& [name, tensor] : tensors_) {
    const std::string plain = ddh::plain_name(name);
    const auto [at, is_new] = named.emplace(known.contains(name) || !known.contains(plain) ? name : plain, tensor);
    if (!is_new && !ddh::same_values(*at->second, *tensor))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", path_, "' has two tensors '", at->first, "' with different values, one of ",
                "them as '", name, "'; leave one out of the file");
  }
  tensors_ = std::move(named);
}

std::string TensorFiles::meaning_of_ids() const { return files_.empty() ? "" : files_.front()->meaning_of_ids(); }

void TensorFiles::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& [name, tensor] : files_.back()->tensors()) tensors_.emplace(name, &tensor);
}

void TensorFiles::add_converted(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& [name, tensor] : files_.back()->tensors())
    if (name.starts_with(kWeightPrefix)) tensors_.emplace(name.substr(kWeightPrefix.size()), &tensor);
}

// Parameters and buffers, after a check of every byte.
void TensorFiles::add_checkpoint(const std::string& path) {
  Manifest manifest = open_checkpoint(path);
  std::erase_if(manifest.tensors, [](const Manifest::Tensor& t) {
    return t.stored.kind != TensorKind::param && t.stored.kind != TensorKind::buffer;
  });
  verify_tensors(path, manifest);
  std::set<size_t> files;
  for (const Manifest::Tensor& tensor : manifest.tensors) files.insert(tensor.stored.file);
  for (const size_t file : files) add_file((fs::path(path) / manifest.files[file].name).string());
}

void TensorFiles::add_index(const std::string& path) {
  const nlohmann::json map = weight_map_of(path);
  std::map<std::string, const SafetensorsFile*> open;
  for (const auto& [name, file] : map.items()) {
    // The files of an index must be in its folder, so a path to another folder is refused.
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>())
      ddh::fail(DDH_DATA_LOSS, "index '", path, "' says that tensor '", name, "' is in ", file.dump(),
                ", which is not a plain file name; fix the index");
    const SafetensorsFile*& shard = open[file.get<std::string>()];
    if (shard == nullptr) {
      files_.push_back(
          std::make_unique<SafetensorsFile>((fs::path(path).parent_path() / file.get<std::string>()).string()));
      shard = files_.back().get();
    }
    const SafetensorsFile::Tensor* tensor = shard->find(name);
    if (tensor == nullptr)
      ddh::fail(DDH_DATA_LOSS, "index '", path, "' says that tensor '", name, "' is in '", file.get<std::string>(),
                "', which does not hold it; get the files again");
    tensors_.emplace(name, tensor);
  }
}

}  // namespace ddhost
