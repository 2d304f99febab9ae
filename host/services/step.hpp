// SPDX-License-Identifier: Apache-2.0
//
// services/step.hpp: the scalars of a step: norm, clip factor, skip, learning rate, step counts. Behind ddh.optim.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "numerics/gradient_norm.hpp"
#include "services/param_sums.hpp"
#include "services/step_account.hpp"
#include "services/windows.hpp"

namespace ddhost {

// Sums and counts of up to this many metrics are agreed on in one step.
inline constexpr size_t kMaxMetrics = 8;
struct MetricSums {
  std::array<double, kMaxMetrics> sum{};
  std::array<double, kMaxMetrics> count{};
  double items = 0;  // tokens, images
};

struct StepSettings {
  double clip_norm = 0;   // 0 = off
  double clip_value = 0;  // 0 = off
  bool skip_nonfinite = true;
  bool rounds_sums = false;  // precision.reduce_dtype=bf16: exchanges round what ranks give to a sum
};

// What all ranks know after decide.
struct StepOutcome {
  MetricSums world;       // summed over the ranks in rank order
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
        account_(model),
        param_steps_(model.n_params, 0) {}

  // `table` and `inst` outlive this object; the optimizer is attached to the model.
  void set_optimizer(ddh_inst* inst, const ddh_optimizer_api* table,
                     const PluginCaller& caller = PluginCaller("the optimizer"));
  [[nodiscard]] const ddh_optimizer_api& optimizer() const { return *optimizer_; }
  [[nodiscard]] ddh_inst* optimizer_inst() const { return optimizer_inst_; }

  void begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale);
  // This rank's share of the step's metrics; before decide.
  void set_metrics(const MetricSums& mine, bool stop_requested) {
    mine_ = mine;
    stop_requested_ = stop_requested;
  }

  void add_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) override {
    account_.add_gradient(begin, numel, ranges);
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

  // After the strategy's step returned without an error: throws unless it decided, and where it went on after a refusal.
  void require_done() const;
  [[nodiscard]] const StepAccount& account() const { return account_; }
  [[nodiscard]] const PluginCaller& optimizer_caller() const { return call_; }
  // A call of ddh.optim was refused; the first one of a step is kept.
  void note_refusal(const std::string& sentence) {
    if (refusal_.empty()) refusal_ = sentence;
  }

  [[nodiscard]] const ddh_step_block& block() const { return block_; }
  [[nodiscard]] const StepOutcome& outcome() const { return outcome_; }
  [[nodiscard]] const std::vector<int64_t>& param_steps() const { return param_steps_; }

 private:
  struct Payload;
  void merge(const std::vector<Payload>& all);
  void count_updates();
  void require_decided(const char* call) const;
  void check_gradients(const std::vector<Payload>& all) const;
  void check_needs(const ddh_optim_shard& shard) const;
  void check_shard_of(const ddh_optim_shard& shard) const;
  void update_now(const ddh_optim_shard& shard, const ddh_step_block& block, const std::vector<int64_t>& steps,
                  ddh_stream* stream, const PluginCaller& call) const;

  const Comm& comm_;
  Device& device_;
  Windows& windows_;
  const ddh_model_desc& model_;
  const StepSettings settings_;
  ddh_inst* optimizer_inst_ = nullptr;
  const ddh_optimizer_api* optimizer_ = nullptr;
  PluginCaller call_;           // of the optimizer
  std::vector<int32_t> needs_;  // per parameter; empty: the optimizer works element by element
  ParamSums param_sums_;

  int32_t program_ = 0;
  GradientNorm norm_;
  StepAccount account_;
  std::string refusal_;
  MetricSums mine_;
  bool stop_requested_ = false;
  bool decided_ = false;
  bool has_exchange_ = false;
  ddh_step_block block_{};
  StepOutcome outcome_;
  std::vector<int64_t> param_steps_;  // updates of each parameter so far
};

}  // namespace ddhost
