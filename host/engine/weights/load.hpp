// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/load.hpp: the weights of a model out of a safetensors file, range by range.
#pragma once

#include <string>

#include "ddh/ddh.h"
#include "engine/weights/safetensors.hpp"

namespace ddhost {

class Staging;

class WeightsFile {
 public:
  // A file that holds every parameter, and every buffer but those with DDH_SYNC_NEVER. Throws ddh::Error with a sentence
  // when it is damaged, lacks one or has another shape. `model` outlives the object.
  WeightsFile(const ddh_model_desc& model, const std::string& path);

  // Elements [offset, offset + numel) of a parameter, which the caller has checked, in fp32.
  void read_range(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const;
  // Sets the buffers that the file holds; the others keep what the model gave them.
  void set_buffers(Staging& staging) const;

 private:
  void check(const std::string& path) const;
  // By the parameter's name, or one that is tied to it; nullptr: the file has none.
  [[nodiscard]] const SafetensorsFile::Tensor* find(const ddh_param_desc& param) const;

  const ddh_model_desc& model_;
  const SafetensorsFile file_;
};

}  // namespace ddhost
