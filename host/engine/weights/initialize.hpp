// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/initialize.hpp: initial values of parameters, computed from (seed, name, element) or read from a
// safetensors file.
#pragma once

#include <memory>
#include <string>

#include "ddh/ddh.h"
#include "engine/services/initial_values.hpp"
#include "engine/weights/load.hpp"

namespace ddhost {

class ParamInit final : public InitialValues {
 public:
  // `init_from`: a safetensors file with every parameter and every buffer except those with DDH_SYNC_NEVER, or "" to
  // draw from `seed`. Throws ddh::Error if the file is damaged, lacks a tensor or has another shape.
  ParamInit(const ddh_model_desc& model, uint64_t seed, const std::string& init_from);

  // Elements [offset, offset + numel) of a parameter.
  void init_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const override;
  // Sets buffers from the file; without a file they keep the model's values.
  void init_buffers(Staging& staging) const override;

 private:
  void draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const;

  const ddh_model_desc& model_;
  const uint64_t seed_;
  std::unique_ptr<WeightsFile> file_;
};

}  // namespace ddhost
