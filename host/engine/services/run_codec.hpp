// SPDX-License-Identifier: Apache-2.0
//
// engine/services/run_codec.hpp: the run's codec of gradients (ddh/kind/codec.h), and the checks of its answers.
#pragma once

#include <cstdint>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

class RunCodec {
 public:
  // All outlive this object.
  RunCodec(ddh_inst* inst, const ddh_codec_api& table, const PluginCaller& caller, const ddh_model_desc& model)
      : inst_(inst), table_(table), call_(caller), model_(model) {}

  // Bytes that attach will allocate. `args`: of this rank.
  [[nodiscard]] uint64_t plan(const ddh_codec_args& args);
  // After plan.
  void attach(const ddh_codec_args& args);

  // As the slots of ddh_codecs_api. A wrong answer throws.
  [[nodiscard]] uint32_t rounds(int32_t param, int64_t step) const;
  [[nodiscard]] uint32_t max_rounds(int32_t param) const;
  [[nodiscard]] uint64_t message_numel(int32_t param, uint32_t round) const;
  void encode(int32_t param, uint32_t round, float* grad, float* message) const;
  void decode(int32_t param, uint32_t round, const float* message, float* grad) const;

  // Its state, checked. Empty before attach.
  [[nodiscard]] std::vector<ddh_codec_state> state() const;
  [[nodiscard]] const ddh_model_desc& model() const { return model_; }
  [[nodiscard]] const PluginCaller& caller() const { return call_; }

 private:
  [[nodiscard]] const ddh_param_desc& param_of(int32_t param) const;
  void require_round(int32_t param, uint32_t round) const;

  ddh_inst* const inst_;
  const ddh_codec_api& table_;
  const PluginCaller call_;
  const ddh_model_desc& model_;
  bool is_attached_ = false;
};

}  // namespace ddhost
