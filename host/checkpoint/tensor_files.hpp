// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/tensor_files.hpp: the tensors of a safetensors file, or of several that belong together: a folder in
// Hugging Face's format, with an index that says which file holds which tensor, a checkpoint, or a converted file.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/durable.hpp"
#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

inline constexpr std::string_view kWeightPrefix = "weight/", kSlotPrefix = "slot/";

// A safetensors file without a name, with the tensors of a file that another program wrote (ddh/kind/format.h). A weight is
// called "weight/NAME" in it, a slot of an optimizer "slot/SLOT/NAME".
struct ConvertedFile {
  std::shared_ptr<const NewFile> file;
  std::string what;        // "a file of torch.save"
  int64_t step = -1;       // updates of the optimizer; -1: the file has no state of one
  std::string other_step;  // a parameter that has had another number of updates, or ""

  // Opens it in this process, and in processes that this one forks.
  [[nodiscard]] std::string path() const { return ddh::str("/proc/self/fd/", file->data().descriptor()); }
};

class TensorFiles {
 public:
  // `path`: a safetensors file, an index (*.index.json), a checkpoint, or a folder that holds an index or one safetensors
  // file. `converted`: the path of the ConvertedFile with its tensors if another program wrote it, or "". Throws ddh::Error
  // naming what is missing or damaged.
  explicit TensorFiles(const std::string& path, const std::string& converted = "");

  // By name; valid while this object lives.
  [[nodiscard]] const std::map<std::string, const SafetensorsFile::Tensor*>& tensors() const { return tensors_; }
  [[nodiscard]] const SafetensorsFile::Tensor* find(const std::string& name) const {
    const auto at = tensors_.find(name);
    return at == tensors_.end() ? nullptr : at->second;
  }

  // Gives plain names (plain_name.hpp) to tensors where `known`, the model's names, has the plain name alone. Throws where
  // two tensors with different values would have one name.
  void unwrap(const std::set<std::string>& known);

  // What the ids of the model that they are of stand for; "": not known.
  [[nodiscard]] std::string meaning_of_ids() const;

 private:
  void add_file(const std::string& path);
  void add_converted(const std::string& path);
  void add_checkpoint(const std::string& path);
  void add_index(const std::string& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::string path_;
  std::map<std::string, const SafetensorsFile::Tensor*> tensors_;
};

}  // namespace ddhost
