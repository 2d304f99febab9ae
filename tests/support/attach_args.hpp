// SPDX-License-Identifier: Apache-2.0
//
// tests/support/attach_args.hpp: what a strategy gets at attach, made as the host makes it, for tests without a run.
#pragma once

#include <memory>
#include <vector>

#include "engine/loop/run_programs.hpp"

namespace ddhost::test {

// Valid while this object and the model's description live.
class AttachArgs {
 public:
  // All training programs of the model, one micro-batch, rank 0 of `world_size`.
  AttachArgs(const ddh_model_desc& model, int32_t world_size, int32_t compute_dtype = DDH_F32)
      : programs_(model, training_programs(model), 1, 0, false) {
    args_.struct_size = sizeof args_;
    args_.world_size = world_size;
    args_.grad_accum_steps = 1;
    args_.model = &model;
    args_.reduce_order = DDH_RANK_FIRST;
    args_.compute_dtype = compute_dtype;
    args_.programs = programs_.described().data();
    args_.program_stride = sizeof(ddh_run_program);
    args_.n_programs = static_cast<uint32_t>(programs_.described().size());
    args_.reduce_block = 1;
    args_.ranks_per_node = world_size;
  }
  AttachArgs(const AttachArgs&) = delete;
  AttachArgs& operator=(const AttachArgs&) = delete;
  [[nodiscard]] const ddh_attach_args& get() const { return args_; }

 private:
  static std::vector<int32_t> training_programs(const ddh_model_desc& model) {
    std::vector<int32_t> out;
    for (uint32_t g = 0; g < model.n_programs; ++g) {
      if (model.programs[g]->kind == DDH_PROGRAM_TRAIN) out.push_back(static_cast<int32_t>(g));
    }
    return out;
  }
  RunPrograms programs_;
  ddh_attach_args args_{};
};

}  // namespace ddhost::test
