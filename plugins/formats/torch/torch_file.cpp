// SPDX-License-Identifier: Apache-2.0
//
// torch_file.cpp: files of torch.save: which dict in them is the state dict, and its optimizer; and
// folders of such files as transformers writes them.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ddh/sdk/files/plain_name.hpp"
#include "ddh/sdk/plugin.hpp"
#include "torch_archive.hpp"

namespace fs = std::filesystem;

namespace torch_format {
namespace {

using Kind = PickleValue::Kind;

const PickleValue& state_dict_in(const PickleValue& root) {
  for (const std::string_view key : kStateDicts)
    if (const PickleValue::Ref inner = root.find(key); inner != nullptr && inner->kind == Kind::dict) return *inner;
  return root;
}

// The files that an index of transformers names, and the tensors in them.
std::map<std::string, std::string> weight_map_of(const fs::path& index) {
  std::ifstream in(index, std::ios::binary);
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  std::map<std::string, std::string> out;
  if (json.is_object() && json.contains("weight_map") && json["weight_map"].is_object()) {
    for (const auto& [tensor, file] : json["weight_map"].items())
      if (file.is_string()) out[tensor] = file.get<std::string>();
  }
  for (const auto& [tensor, file] : out)
    if (file != fs::path(file).filename() || file.empty() || file.starts_with('.'))
      ddh::fail(DDH_DATA_LOSS, "'", index.string(), "' names '", file, "', which is not a file beside it; copy the ",
                "folder again");
  if (out.empty())
    ddh::fail(DDH_DATA_LOSS, "'", index.string(), "' has no object weight_map of file names; copy the folder again");
  return out;
}

}  // namespace

void read_transformers_folder(const fs::path& folder, ForeignCheckpoint& out) {
  if (std::error_code ec; fs::exists(folder / kTransformersFile, ec))
    return read_torch_file(folder / kTransformersFile, out);
  const fs::path index = folder / kTransformersIndex;
  const std::map<std::string, std::string> weight_map = weight_map_of(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  for (const std::string& file : files) read_torch_file(folder / file, out);
  for (const auto& [tensor, file] : weight_map)
    if (!out.weights.contains(ddh::plain_name(tensor)))
      ddh::fail(DDH_DATA_LOSS, "'", (folder / file).string(), "' lacks '", tensor, "', which '", index.string(),
                "' says that it holds; copy the folder again");
}

void read_torch_file(const fs::path& file, ForeignCheckpoint& out) {
  const std::string what = "'" + file.string() + "'";
  const TorchArchive archive(out.map(file.string()), what);
  read_foreign_values(what, [&] {
    for (const auto& [key, value] : state_dict_in(archive.root()).entries)
      if (value->kind == Kind::tensor) ddh::add_plain(out.weights, key->as_text(), archive.tensor(*value, out.values));
  });
  if (out.weights.empty())
    ddh::fail(DDH_NOT_FOUND, what, " holds no state dict: neither its root nor its entries model, state_dict, ",
              "model_state_dict and module are dicts of tensors; save the state dict alone");
}

}  // namespace torch_format
