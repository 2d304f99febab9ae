// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/model.hpp: the base of a model whose backward is autograd's. The model writes describe, its batches, and one
// function for the forward of a unit; this class cuts the graph at unit boundaries and keeps what lies between them.
//
//   at::Tensor MyModel::run_unit(const UnitRun& run, const std::vector<at::Tensor>& p, const at::Tensor& x) {
//     return run.unit == 0 ? at::linear(batch(run).x, p[0]) : ...;      // the last unit returns the SUM of the losses
//   }
//
// A model that writes gradients itself (models/gpt) derives from ddh::Model and takes the allocator alone.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ddh/sdk/model.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "ddh/sdk/torch/unit_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class TorchModel : public Model {
 public:
  explicit TorchModel(const ddh_create& create) : Model(create) { ActivationAllocator::install(); }

  void forward(const ddh_unit_call& c) final {
    const ActivationScope scope(host);
    MicroBatch& micro = micro_batches_[c.micro_batch];
    if (c.position == 0 && c.phase != DDH_PHASE_RECOMPUTE) micro = {};
    if (c.phase == DDH_PHASE_RECOMPUTE) return run_again(c, micro);
    const bool keeps = c.phase == DDH_PHASE_FORWARD;
    Boundary boundary;
    if (c.position > 0) boundary.input = micro.carry.detach().set_requires_grad(keeps && differentiable(micro.carry));
    {
      const at::AutoGradMode grad(keeps && !recompute_);
      run(c, boundary);
    }
    micro.carry = boundary.output.detach();
    if (!keeps) return;
    if (recompute_) boundary.output = at::Tensor();
    micro.boundaries[c.position] = std::move(boundary);
  }

  void backward(const ddh_unit_call& c) final {
    const ActivationScope scope(host);
    MicroBatch& micro = micro_batches_.at(c.micro_batch);
    if (!micro.boundaries.at(c.position).output.defined()) run_again(c, micro);
    const Boundary boundary = std::move(micro.boundaries.extract(c.position).mapped());
    const bool last = static_cast<uint32_t>(c.position) + 1 == program(c).n_units;
    const at::Tensor gradient =
        last ? at::full(boundary.output.sizes(), c.seed_scale, boundary.output.options()) : std::move(micro.carry);
    UnitParams& params = params_of(c);
    const BoundParams bound(params, *c.view);
    if (boundary.output.requires_grad() && gradient.defined()) {
      torch::autograd::backward({boundary.output}, {gradient});
      params.check_gradients(*c.view);
    }
    micro.carry = boundary.input.defined() ? boundary.input.grad() : at::Tensor();
  }

  void metrics(int32_t program_index, int32_t micro_batch, double* sums, double* counts) final {
    const auto& reported = micro_batches_.at(micro_batch).metrics;
    for (uint32_t i = 0; i < describe().programs[program_index]->n_metrics; ++i) {
      const auto at = reported.find(i);
      sums[i] = at != reported.end() ? at->second.first : 0;
      counts[i] = at != reported.end() ? at->second.second : 0;
    }
  }

  void discard(int32_t micro_batch) noexcept final {
    const ActivationScope scope(host);
    micro_batches_.erase(micro_batch);
  }

 protected:
  struct UnitRun {
    int32_t program, unit, position, micro_batch;
    int64_t step;
    bool training;     // dropout acts
    bool first_run;    // buffers may change
    ddh_batch* batch;  // the model's own type behind it
  };
  // Forward of one unit, of the parameters in the order of its view; `input` is the output of the unit before, undefined at
  // the program's start. The last unit of a program with a backward returns the sum of the losses, a scalar.
  virtual at::Tensor run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const at::Tensor& input) = 0;

  // From inside run_unit: sum and count of a metric of this micro-batch.
  void report(const UnitRun& run, uint32_t metric, double sum, double count) {
    micro_batches_.at(run.micro_batch).metrics[metric] = {sum, count};
  }

  // Keep unit inputs alone and run each unit once more in its backward: less memory, a third more work.
  void set_recompute(bool on) { recompute_ = on; }

 private:
  // What is kept at a position of the program from forward to backward.
  struct Boundary {
    at::Tensor input;   // a leaf
    at::Tensor output;  // end of the unit's graph; undefined: to be recomputed
  };
  struct MicroBatch {
    at::Tensor carry;  // forward: output of the last unit; backward: its gradient
    std::map<int32_t, Boundary> boundaries;
    std::map<uint32_t, std::pair<double, double>> metrics;
  };

  static bool differentiable(const at::Tensor& t) { return t.is_floating_point(); }
  const ddh_program_desc& program(const ddh_unit_call& c) { return *describe().programs[c.program]; }

  UnitParams& params_of(const ddh_unit_call& c) {
    std::unique_ptr<UnitParams>& params = params_[{c.program, c.unit}];
    if (params == nullptr) {
      const ddh_model_desc& model = describe();
      const ddh_program_desc& p = program(c);
      std::vector<uint8_t> trained(model.n_params, p.kind != DDH_PROGRAM_EVAL ? 1 : 0);
      for (uint32_t i = 0; i < model.n_params; ++i) {
        if (p.trainable != nullptr && p.trainable[i] == 0) trained[i] = 0;
        if ((model.params[i]->attributes & DDH_PARAM_FROZEN) != 0) trained[i] = 0;
      }
      params = std::make_unique<UnitParams>(model, c.unit, trained);
    }
    return *params;
  }

  void run(const ddh_unit_call& c, Boundary& boundary) {
    UnitParams& params = params_of(c);
    const BoundParams bound(params, *c.view);
    boundary.output = run_unit({c.program, c.unit, c.position, c.micro_batch, c.step, c.phase != DDH_PHASE_EVAL,
                                c.phase == DDH_PHASE_FORWARD, c.batch},
                               params.leaves(), boundary.input);
  }

  void run_again(const ddh_unit_call& c, MicroBatch& micro) {
    const at::AutoGradMode grad(true);
    run(c, micro.boundaries.at(c.position));
  }

  bool recompute_ = false;
  std::map<int32_t, MicroBatch> micro_batches_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<UnitParams>> params_;  // by program and unit
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
