// SPDX-License-Identifier: Apache-2.0
//
// engine/state/initialize.hpp: initial values of parameters, computed from (seed, name, element) or read from files.
#pragma once

#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/initial_values.hpp"
#include "engine/state/load.hpp"

namespace ddhost {

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
