// SPDX-License-Identifier: Apache-2.0
//
// services/step.hpp: the scalars of a step: norm, clip factor, skip, learning rate, step counts. Behind ddh.optim.
#pragma once

#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "numerics/gradient_norm.hpp"
#include "services/micro_metrics.hpp"
#include "services/param_sums.hpp"
#include "services/windows.hpp"

namespace ddhost {

struct StepSettings {
  double clip_norm = 0;   // 0 = off
  double clip_value = 0;  // 0 = off
  bool skip_nonfinite = true;
  bool rounds_sums = false;  // precision.reduce_dtype=bf16: exchanges round what ranks give to a sum
};

// What all ranks know after decide.
struct StepOutcome {
  FoldedMetrics world;    // of all ranks
  bool stop = false;      // a rank was asked to stop
  std::string nonfinite;  // "parameter 'x' (unit 'h.3') on rank 1"; empty: all gradients are finite
};

class Step final : public NormSink {
 public:
  Step(const Comm& comm, Device& device, Windows& windows, const ddh_model_desc& model, StepSettings settings)
      : comm_(comm),
        device_(device),
        windows_(windows),
        model_(model),
        settings_(settings),
        param_steps_(model.n_params, 0) {}

  // `table` and `inst` outlive this object; the optimizer is attached to the model.
  void set_optimizer(ddh_inst* inst, const ddh_optimizer_api* table);
  [[nodiscard]] const ddh_optimizer_api& optimizer() const { return *optimizer_; }
  [[nodiscard]] ddh_inst* optimizer_inst() const { return optimizer_inst_; }

  void begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale);
  // This rank's metrics of the step, which stay as they are until decide has read them.
  void set_metrics(const MicroMetrics& mine, bool stop_requested) {
    mine_ = &mine;
    stop_requested_ = stop_requested;
  }

  void add_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) override {
    norm_.add(grad, begin, numel, ranges);
  }
  // An exchange sums gradients in this step.
  void note_exchange() { has_exchange_ = true; }
  // The strategy has sums of its own. Throws where they can't have been made as the settings ask.
  void check_own_sums() const;
  const ddh_step_block& decide();
  void prepare(const ddh_optim_shard& shard, int32_t replica_index, int32_t replica_count, ddh_stream* stream);
  void sum_norms();
  void update(const ddh_optim_shard& shard, ddh_stream* stream);

  [[nodiscard]] const ddh_step_block& block() const { return block_; }
  [[nodiscard]] const StepOutcome& outcome() const { return outcome_; }
  [[nodiscard]] const std::vector<int64_t>& param_steps() const { return param_steps_; }

 private:
  struct Payload;
  void exchange(const Payload& mine);
  [[nodiscard]] Payload payload_of(int32_t rank) const;
  void merge();
  void count_updates();
  void require_decided(const char* call) const;
  void check_needs(const ddh_optim_shard& shard) const;
  void update_now(const ddh_optim_shard& shard, const ddh_step_block& block, const std::vector<int64_t>& steps,
                  ddh_stream* stream) const;

  const Comm& comm_;
  Device& device_;
  Windows& windows_;
  const ddh_model_desc& model_;
  const StepSettings settings_;
  ddh_inst* optimizer_inst_ = nullptr;
  const ddh_optimizer_api* optimizer_ = nullptr;
  std::vector<int32_t> needs_;  // per parameter; empty: the optimizer works element by element
  ParamSums param_sums_;

  int32_t program_ = 0;
  GradientNorm norm_;
  const MicroMetrics* mine_ = nullptr;
  std::vector<double> sent_, received_;  // payload and rows of metrics, of this rank and of all; kept between steps
  bool stop_requested_ = false;
  bool decided_ = false;
  bool has_exchange_ = false;
  ddh_step_block block_{};
  StepOutcome outcome_;
  std::vector<int64_t> param_steps_;  // updates of each parameter so far
};

}  // namespace ddhost
