// SPDX-License-Identifier: Apache-2.0
#include "foreign_checkpoint.hpp"

#include <array>
#include <fstream>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace torch_format {
namespace {

using Reader = void (*)(const fs::path&, ForeignCheckpoint&);
struct Form {
  const char* name;
  Reader read;
  bool (*is)(const fs::path&);
};

bool has_file(const fs::path& folder, const char* name) {
  std::error_code ec;
  return fs::exists(folder / name, ec);
}

bool is_torch_file(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return false;
  for (const char* end : {".pt", ".pth", ".ckpt"})
    if (path.extension() == end) return true;
  std::array<char, 2> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  constexpr char kPickle = '\x80';  // torch before 1.6, which is refused by what it is
  return (first[0] == 'P' && first[1] == 'K') || (path.extension() == ".bin" && first[0] == kPickle);
}

// Where transformers has written safetensors too, these are read.
bool is_transformers_folder(const fs::path& path) {
  if (has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json")) return false;
  return has_file(path, kTransformersFile) || has_file(path, kTransformersIndex);
}

bool is_dcp_folder(const fs::path& path) { return has_file(path, ".metadata"); }

bool is_deepspeed_folder(const fs::path& path) {
  std::error_code ec;
  for (fs::directory_iterator at(path, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with("_optim_states.pt") || name.ends_with("_model_states.pt")) return true;
    if (name.starts_with("global_step") && at->is_directory(ec)) return true;
  }
  return false;
}

bool is_universal_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path / "zero", ec);
}

// The first that fits counts: a universal checkpoint keeps files of the one that it came from.
constexpr std::array<Form, 5> kForms = {{
    {"a file of torch.save", read_torch_file, is_torch_file},
    {"a folder of transformers", read_transformers_folder, is_transformers_folder},
    {"a folder of torch.distributed.checkpoint", read_dcp_folder, is_dcp_folder},
    {"a universal checkpoint of DeepSpeed", read_universal_folder, is_universal_folder},
    {"a checkpoint of DeepSpeed", read_deepspeed_folder, is_deepspeed_folder},
}};

const Form* form_of(const fs::path& path) {
  for (const Form& form : kForms)
    if (form.is(path)) return &form;
  return nullptr;
}

}  // namespace

const char* foreign_kind(const fs::path& path) {
  const Form* const form = form_of(path);
  return form == nullptr ? nullptr : form->name;
}

std::string_view ForeignCheckpoint::map(const std::string& path) {
  const auto file = std::make_shared<ddh::MappedInput>(path, ddh::InputWords{"checkpoint file", "get the file again"});
  files.push_back(file);
  return file->bytes();
}

ForeignCheckpoint read_foreign(const fs::path& path) {
  const Form* const form = form_of(path);
  if (form == nullptr)
    ddh::fail(DDH_NOT_FOUND, "'", path.string(),
              "' is no checkpoint that is read here: neither a file of torch.save nor a ",
              "folder of transformers, of torch.distributed.checkpoint or of DeepSpeed; give one");
  ForeignCheckpoint out;
  out.kind = form->name;
  form->read(path, out);
  return out;
}

}  // namespace torch_format
