// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/load.hpp: reads ranges of a model's weights from a safetensors file.
#pragma once

#include <string>

#include "ddh/ddh.h"
#include "engine/weights/safetensors.hpp"

namespace ddhost {

class Staging;

class WeightsFile {
 public:
  // A file with every parameter and every buffer except those with DDH_SYNC_NEVER. Throws ddh::Error if it is damaged,
  // lacks a tensor or has another shape. `model` outlives the object.
  WeightsFile(const ddh_model_desc& model, const std::string& path);

  // Elements [offset, offset + numel) of a parameter, which the caller has checked, in fp32.
  void read_range(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const;
  // Sets the buffers that the file has; the others keep the model's values.
  void set_buffers(Staging& staging) const;

 private:
  void check(const std::string& path) const;
  // Finds a parameter by its name or a tied name; nullptr: the file does not have it.
  [[nodiscard]] const SafetensorsFile::Tensor* find(const ddh_param_desc& param) const;

  const ddh_model_desc& model_;
  const SafetensorsFile file_;
};

}  // namespace ddhost
