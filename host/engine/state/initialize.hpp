// SPDX-License-Identifier: Apache-2.0
//
// engine/state/initialize.hpp: initial values of parameters, computed from (seed, name, element) or read from files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/tensor_files.hpp"
#include "ddh/ddh.h"
#include "engine/services/initial_values.hpp"

namespace ddhost {

class Staging;

// Names that an entry allows: none, all, or those that match a pattern ("head.*").
struct AllowedNames {
  std::vector<std::string> patterns;
  [[nodiscard]] bool allows(const std::string& name) const;
};

// An entry of train.init_from: tensor from + "w" of the file is the model's prefix + "w".
struct InitFile {
  std::string file;                 // what TensorFiles takes
  std::string prefix;               // of the model's names that the file fills
  std::string from = {};            // of the file's names
  AllowedNames allow_missing = {};  // names of the model that the file may lack; they are drawn from the seed
  AllowedNames allow_surplus = {};  // names of the file that the model may lack
  std::string converted = {};       // path of the ConvertedFile that has its tensors, or ""
};

// From train.init_from as JSON: "", a path, or an array of entries. `converted`: by path. Error: an invalid entry.
std::vector<InitFile> init_files(const std::string& json, const std::map<std::string, ConvertedFile>& converted = {});

// Reads ranges of a model's weights from files (train.init_from). Each of several files may fill a part of the model: a
// pretrained tower, all but a head of another size. Names that a file lacks, or has in excess, are refused unless the file's
// entry allows them.
class WeightsFiles {
 public:
  // Throws ddh::Error if a file is damaged, lacks names or has surplus ones (all are listed), or a tensor has another
  // shape or dtype. Buffers with DDH_SYNC_NEVER may always be missing. `model` outlives the object.
  WeightsFiles(const ddh_model_desc& model, const std::vector<InitFile>& entries);

  // Elements [offset, offset + numel) of a parameter, which the caller has checked, in fp32. False: no file has it.
  [[nodiscard]] bool read_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const;
  // Sets the buffers that the files have; the others keep the model's values.
  void set_buffers(Staging& staging) const;
  // Sentences about names that were left out, for the log.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // Of files whose ids stand for something else than those of the run.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Wanted;
  std::vector<Wanted> all_wanted();
  void take(const InitFile& entry, const std::vector<Wanted>& wanted);
  // The layout of another program that the file shows; without a name: none.
  StoredLayout layout_of(const TensorFiles& file, const InitFile& entry, const std::vector<Wanted>& wanted);
  static std::string wrapper_in(const TensorFiles& file, const std::vector<Wanted>& wanted);
  // Once all files are read: what none of them gave.
  void require_all(const InitFile& entry, const std::vector<Wanted>& wanted) const;
  void note_drawn();

  const ddh_model_desc& model_;
  std::vector<TensorFiles> files_;
  std::vector<const SafetensorsFile::Tensor*> params_, buffers_;  // nullptr: no file has it
  std::vector<uint8_t> is_transposed_;                            // per parameter: the file holds it as [in, out]
  std::vector<std::string> notes_, warnings_;
};

class ParamInit final : public InitialValues {
 public:
  // `files`: those of train.init_from; values that none of them has are drawn from `seed`. Throws ddh::Error if a file is
  // damaged, or lacks or exceeds what its entry allows.
  ParamInit(const ddh_model_desc& model, uint64_t seed, const std::vector<InitFile>& files);

  // Elements [offset, offset + numel) of a parameter.
  void init_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const override;
  // Sets buffers from the files; without one they keep the model's values.
  void init_buffers(Staging& staging) const override { files_.set_buffers(staging); }
  // Sentences about what the files leave out, for the log.
  [[nodiscard]] const std::vector<std::string>& notes() const { return files_.notes(); }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return files_.warnings(); }

 private:
  void draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const;

  const ddh_model_desc& model_;
  const uint64_t seed_;
  const WeightsFiles files_;
};

}  // namespace ddhost
