// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/import/torch_file.cpp: files of torch.save: which dict in them is the state dict, and its optimizer.
#include <array>

#include "ddh/sdk/plugin.hpp"
#include "engine/weights/import/torch_archive.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using Kind = PickleValue::Kind;

// Names under which trainers keep the state dict.
constexpr std::array<std::string_view, 4> kInner = {"model", "state_dict", "model_state_dict", "module"};

const PickleValue& state_dict_in(const PickleValue& root) {
  for (const std::string_view key : kInner)
    if (const PickleValue::Ref inner = root.find(key); inner != nullptr && inner->kind == Kind::dict) return *inner;
  return root;
}

}  // namespace

void read_torch_file(const fs::path& file, ForeignCheckpoint& out) {
  const std::string what = "'" + file.string() + "'";
  const TorchArchive archive(out.map(file.string()), what);
  read_foreign_values(what, [&] {
    for (const auto& [key, value] : state_dict_in(archive.root()).entries)
      if (value->kind == Kind::tensor) out.weights[plain_name(key->as_text())] = archive.tensor(*value, out.values);
  });
  if (out.weights.empty())
    ddh::fail(DDH_NOT_FOUND, what, " holds no state dict: neither its root nor its entries model, state_dict, ",
              "model_state_dict and module are dicts of tensors; save the state dict alone");
}

}  // namespace ddhost
