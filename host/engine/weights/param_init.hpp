// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/param_init.hpp: first values of parameters, a function of (seed, name, element) or of a safetensors file.
#pragma once

#include <memory>
#include <string>

#include "ddh/ddh.h"
#include "engine/weights/safetensors.hpp"

namespace ddhost {

class Staging;

class ParamInit {
 public:
  // `init_from`: a safetensors file that holds every parameter, and every buffer but those with DDH_SYNC_NEVER, or "" to
  // draw from `seed`. Throws ddh::Error with a sentence when the file is damaged, lacks one or has another shape.
  ParamInit(const ddh_model_desc& model, uint64_t seed, const std::string& init_from);

  // Elements [offset, offset + numel) of a parameter.
  void init_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const;
  // Buffers from the file; without one they keep what the model gave them.
  void init_buffers(Staging& staging) const;

 private:
  void draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const;
  void check_file(const std::string& path) const;
  [[nodiscard]] const SafetensorsFile::Tensor* find(const ddh_param_desc& param) const;

  const ddh_model_desc& model_;
  const uint64_t seed_;
  std::unique_ptr<SafetensorsFile> file_;
};

}  // namespace ddhost
