// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/model.hpp: the base class of a model that uses autograd. The model implements describe, its batches,
// and one function for the forward of a unit. This class splits the graph at unit boundaries and keeps the activations
// between units.
//
//   ddh::Tensors MyModel::run_unit(const UnitRun& run, const std::vector<at::Tensor>& p, const ddh::Tensors& x) {
//     return run.unit == 0 ? at::linear(batch(run).x, p[0]) : ...;      // the last unit returns the SUM of the losses
//   }
//
// A model that writes gradients itself (models/gpt) derives from ddh::UnitModel.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddh/sdk/torch/base.hpp"
#include "ddh/sdk/torch/block_linear.hpp"
#include "ddh/sdk/torch/dropout.hpp"
#include "ddh/sdk/torch/sync_batch_norm.hpp"
#include "ddh/sdk/torch/unit_params.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The values that one unit passes to the next: any number of tensors of any dtype. One tensor converts to it.
struct Tensors : std::vector<at::Tensor> {
  using std::vector<at::Tensor>::vector;
  Tensors(at::Tensor one) { push_back(std::move(one)); }
};

// Threads of a rank. ATen and its libraries split many sums by the number of threads, such as gradients of
// convolutions. So with kAll the results depend on the number of threads.
enum class TorchThreads { kOne, kAll };

class TorchModel : public TorchBase {
 public:
  // `operators`: the value of kOperatorsOption, if the model has that option.
  explicit TorchModel(const ddh_create& create, TorchThreads threads = TorchThreads::kOne,
                      std::string_view operators = "auto")
      : TorchBase(create, operators), threads_(threads) {
    settle_threads();
  }

  bool contribution(uint32_t buffer, int32_t /*program*/, int32_t micro_batch, void* out) final {
    const auto& given = micro_batches_.at(micro_batch).contributions;
    const auto at = given.find(buffer);
    if (at == given.end() || device().where().is_meta()) return false;
    in_torch(nullptr, [&] { receive_results(micro_batch); });
    std::memcpy(out, at->second.const_data_ptr(), at->second.nbytes());
    return true;
  }

 protected:
  void run_forward(const ddh_unit_call& c) final {
    settle_threads();
    MicroBatch& micro = micro_batches_[c.micro_batch];
    if (c.phase == DDH_PHASE_RECOMPUTE) return run(c, micro.boundaries.at(c.position), true);
    if (c.position == 0) micro = {};
    const bool keeps = c.phase == DDH_PHASE_FORWARD && (c.flags & DDH_CALL_FORWARD_ONLY) == 0;
    Boundary boundary;
    for (const at::Tensor& carried : micro.carry)
      boundary.inputs.push_back(carried.detach().set_requires_grad(keeps && carried.requires_grad()));
    // Builds a graph even if the forward runs again: without a graph, operators may choose other kernels, with other
    // bits.
    run(c, boundary, keeps);
    micro.carry.clear();
    for (const at::Tensor& output : boundary.outputs)
      micro.carry.push_back(output.detach().set_requires_grad(output.requires_grad()));
    if (!keeps) return;
    if ((c.flags & DDH_CALL_RECOMPUTED) != 0) boundary.outputs.clear();
    micro.boundaries[c.position] = std::move(boundary);
  }

  void run_backward(const ddh_unit_call& c) final {
    settle_threads();
    MicroBatch& micro = micro_batches_.at(c.micro_batch);
    auto kept = micro.boundaries.extract(c.position);
    if (kept.empty() || kept.mapped().outputs.empty())
      fail(DDH_INTERNAL, "backward of position ", c.position, " without a forward that kept its graph");
    const Boundary boundary = std::move(kept.mapped());
    if (static_cast<uint32_t>(c.position) + 1 == program(c).n_units) {
      micro.carry = at::full({}, c.seed_scale, boundary.outputs.at(0).options());
      micro.in_backward = true;
    }
    if (!micro.in_backward)
      fail(DDH_FAILED_PRECONDITION, "program '", program(c).name,
           "' ends with a position that runs forward only, so no loss is differentiated; put the loss last");
    std::vector<at::Tensor> roots, gradients;
    for (size_t i = 0; i < boundary.outputs.size() && i < micro.carry.size(); ++i) {
      if (!boundary.outputs[i].requires_grad() || !micro.carry[i].defined()) continue;
      roots.push_back(boundary.outputs[i]);
      gradients.push_back(micro.carry[i].view_as(boundary.outputs[i]));
    }
    micro.carry.clear();
    UnitParams& params = params_of(c);
    const BoundParams bound(params, *c.view);
    view_ = c.view;
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    params.take_gradients(*c.view);
    params.keep_gradients(*c.view, later());
    keep_zeros(*c.view);
    for (const at::Tensor& input : boundary.inputs) micro.carry.push_back(input.grad());
  }

  void give_metrics(int32_t program_index, int32_t micro_batch, double* sums, double* counts) final {
    MicroBatch& micro = micro_batches_.at(micro_batch);
    auto& reported = micro.metrics;
    receive_results(micro_batch);
    for (const auto& [first, values] : micro.sent)
      for (int64_t i = 0; i < values.numel(); ++i)
        reported.at(first + static_cast<uint32_t>(i)).first = values.const_data_ptr<double>()[i];
    for (uint32_t i = 0; i < describe().programs[program_index]->n_metrics; ++i) {
      const auto at = reported.find(i);
      sums[i] = at != reported.end() ? at->second.first : 0;
      counts[i] = at != reported.end() ? at->second.second : 0;
    }
  }

  void forget(int32_t micro_batch) noexcept final { micro_batches_.erase(micro_batch); }

  struct UnitRun {
    int32_t program, unit, position, micro_batch;
    int64_t step, global_micro_batch;
    bool training;     // dropout is active
    bool first_run;    // false: a recomputed forward
    ddh_batch* batch;  // opaque: the model's own type
    ddh_stream* stream;
  };
  // Forward of one unit, with the parameters in the order of its view. `inputs` are the outputs of the previous unit,
  // none at the program's start. The last unit of a program with a backward returns the sum of the losses, a scalar. An
  // input may be returned unchanged, but must not be modified in place.
  virtual Tensors run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const Tensors& inputs) = 0;

  // Called in run_unit: sets sum and count of a metric of this micro-batch.
  void report(const UnitRun& run, uint32_t metric, double sum, double count) {
    micro_batches_.at(run.micro_batch).metrics[metric] = {sum, count};
  }

  // The same for a sum that is a tensor of one element. On a GPU nothing waits for it; the host reads it with the metrics.
  void report(const UnitRun& run, uint32_t metric, const at::Tensor& sum, double count) {
    report(run, metric, sum, std::vector<double>{count});
  }

  // The same for the metrics from `first` on: sums (n), n counts.
  void report(const UnitRun& run, uint32_t first, const at::Tensor& sums, const std::vector<double>& counts) {
    if (static_cast<size_t>(sums.numel()) != counts.size())
      fail(DDH_INVALID_ARGUMENT, "the metrics from ", first, " on are reported with ", sums.numel(), " sums and ",
           counts.size(), " counts; give one count for each sum");
    const at::Tensor values = sums.detach().to(at::kDouble).contiguous();
    const bool waits = !device().where().is_cpu();
    for (size_t i = 0; i < counts.size(); ++i)
      report(run, first + static_cast<uint32_t>(i), waits ? 0.0 : values.const_data_ptr<double>()[i], counts[i]);
    if (waits && run.first_run) micro_batches_.at(run.micro_batch).sent.emplace_back(first, values);
  }

  // Called in run_unit: a batch's tensors on the device, the same at every call of the micro-batch. Undefined ones stay
  // undefined.
  std::vector<at::Tensor> on_device(const UnitRun& run, const std::vector<at::Tensor>& tensors) {
    return TorchBase::on_device(run.micro_batch, tensors, run.stream);
  }

  // Called in run_unit: y (..., out) = x (..., in) w^T + b in the weight's dtype. `weight`, `bias`: indices in `params`; no
  // bias: nullopt. The gradient of a weight that has a grad_block is computed in its blocks. What other uses of that weight
  // give is added to it, and is whole in memory until then.
  at::Tensor linear(const UnitRun& run, const std::vector<at::Tensor>& params, size_t weight,
                    std::optional<size_t> bias, const at::Tensor& x) {
    const at::Tensor &w = params[weight], in = x.to(w.scalar_type());
    const std::optional<at::Tensor> b = bias ? std::optional(params[*bias]) : std::nullopt;
    const int32_t param = describe().units[run.unit]->params[weight];
    if (describe().params[param]->grad_block == 0) return product(in, w, b);
    const at::Tensor rows =
        in.reshape({-1, in.size(-1)});  // always: of more dimensions LibTorch may choose other kernels
    std::vector<int64_t> sizes = in.sizes().vec();
    sizes.back() = w.size(0);
    if (!w.requires_grad() || !at::GradMode::is_enabled()) return product(rows, w, b).view(sizes);
    return HandOver::apply(product(rows, w.detach(), b), rows, w, taker(param, weight)).view(sizes);
  }
  // What `linear` computes products with: y (..., out) = x (..., in) w^T + b, all of one dtype, with a graph where one is
  // built.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
    return at::linear(x, w, b);
  }

  // Called in run_unit: counter-based dropout, equal in a recomputed forward and for every number of ranks. `site`
  // numbers the dropouts of a unit.
  at::Tensor dropout(const UnitRun& run, const at::Tensor& x, double probability, uint64_t site = 0) const {
    if (!run.training || probability == 0) return x;
    const DropoutKey key{static_cast<uint64_t>(host.i64("run.seed")), run.step, run.global_micro_batch, run.position,
                         site};
    return ddh::dropout(Dropout(probability, key), x);
  }

  // Called in run_unit: this micro-batch's contribution to a buffer of DDH_SYNC_FOLD, in the buffer's shape and dtype.
  void contribute(const UnitRun& run, uint32_t buffer, const at::Tensor& value) {
    if (!run.training || !run.first_run) return;
    auto& given = micro_batches_.at(run.micro_batch).contributions;
    if (!given.emplace(buffer, value.detach().contiguous()).second)
      fail(DDH_FAILED_PRECONDITION, "buffer '", describe().buffers[buffer]->name,
           "' has two contributions in one micro-batch, since its unit occurs twice in the program; give each use "
           "buffers ",
           "of its own");
  }

  // Buffers of a batch norm: F32 with fold_decay 1 - momentum, (channels) each; `batches`: I64 with fold_decay 1.
  struct BatchNormBuffers {
    uint32_t mean, variance;
    int64_t batches = -1;  // none
  };
  // Normalizes by the micro-batch's own statistics and contributes them. In an evaluation it uses the running
  // statistics. Computes in fp32 for every dtype of x.
  at::Tensor batch_norm(const UnitRun& run, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const BatchNormBuffers& buffers, double momentum = 0.1, double eps = 1e-5) {
    const at::Tensor w = weight.to(at::kFloat), b = bias.to(at::kFloat);
    if (!run.training)
      return at::batch_norm(x, w, b, buffer(buffers.mean), buffer(buffers.variance), false, momentum, eps, false);
    if (x.size(0) == 0) return x;
    if (syncs_batch_norm_) return synced_batch_norm(run, x, w, b, buffers, momentum, eps);
    // They begin with zero, so ATen's update of them is momentum * statistic.
    const at::Tensor mean = at::zeros({x.size(1)}, device().options(at::kFloat)), variance = at::zeros_like(mean);
    at::Tensor y = at::batch_norm(x, w, b, mean, variance, true, momentum, eps, false);
    contribute_statistics(run, buffers, mean, variance);
    return y;
  }
  // Called in run_unit by a batch norm of the model's own: the statistics of the micro-batch (channels) times the momentum.
  void contribute_statistics(const UnitRun& run, const BatchNormBuffers& buffers, const at::Tensor& mean,
                             const at::Tensor& variance) {
    contribute(run, buffers.mean, mean);
    contribute(run, buffers.variance, variance);
    if (buffers.batches >= 0) contribute(run, static_cast<uint32_t>(buffers.batches), at::ones({}, at::kLong));
  }
  // From now on batch_norm uses the statistics of all ranks together, so each of its calls is collective: every rank must
  // have samples in each micro-batch. The descriptor needs DDH_COMM_IFACE.
  void sync_batch_norm() {
    if (device().by_operators())
      fail(DDH_FAILED_PRECONDITION, "batch norms with the statistics of all ranks exchange them in host memory, and ",
           device().text(), " has its own; leave model.sync_batch_norm out");
    syncs_batch_norm_ = true;
  }
  // A buffer of the description. Its memory is the model's, on the host; a device gets a copy.
  at::Tensor buffer(uint32_t index) {
    const ddh_buffer_desc& b = *describe().buffers[index];
    const at::Tensor own = at::from_blob(b.data, at::IntArrayRef(b.shape, b.n_dims), scalar_type_of(b.dtype));
    return own.to(device().where());
  }

  // Whether a program trains a parameter.
  bool trains(int32_t program_index, int32_t param) {
    const ddh_program_desc& p = *describe().programs[program_index];
    if (p.kind != DDH_PROGRAM_TRAIN) return false;
    if ((describe().params[param]->attributes & DDH_PARAM_FROZEN) != 0) return false;
    return p.trainable == nullptr || p.trainable[param] != 0;
  }

 private:
  // The tensors that are kept for a position from forward to backward.
  struct Boundary {
    Tensors inputs;   // leaves
    Tensors outputs;  // ends of the unit's graph; empty: must be recomputed
  };
  struct MicroBatch {
    Tensors carry;  // forward: outputs of the last unit; backward: their gradients, some undefined
    std::map<int32_t, Boundary> boundaries;
    std::map<uint32_t, std::pair<double, double>> metrics;
    std::vector<std::pair<uint32_t, at::Tensor>> sent;         // sums of the device, and their first metric
    std::map<uint32_t, at::Tensor> contributions;              // by buffer
    std::map<int64_t, std::vector<int64_t>> samples_of_ranks;  // by this rank's own
    bool in_backward = false;                                  // carry holds gradients
  };
  struct ParamsKey {
    int32_t program, unit;
    bool input_grad_only;
    auto operator<=>(const ParamsKey&) const = default;
  };

  // Rank 0 alone contributes the statistics, which are those of all ranks.
  at::Tensor synced_batch_norm(const UnitRun& run, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, const BatchNormBuffers& buffers, double momentum, double eps) {
    auto& known = micro_batches_.at(run.micro_batch).samples_of_ranks;
    auto samples = known.find(x.size(0));
    if (samples == known.end()) samples = known.emplace(x.size(0), SampleSpread::gathered(host, x.size(0))).first;
    const SampleSpread spread(host, samples->second);
    const BatchStatistics s = batch_statistics(spread, x);
    if (spread.is_first_rank()) {
      const double unbiased = std::max(1.0, s.count - 1);
      contribute_statistics(run, buffers, s.mean.mul(momentum).to(at::kFloat),
                            s.squares.mul(momentum / unbiased).to(at::kFloat));
    }
    return SyncBatchNorm::apply(x, weight, bias, s.mean.to(at::kFloat), s.squares.div(s.count).to(at::kFloat), eps,
                                s.count, host, samples->second);
  }

  // What computes the gradient of a weight of the unit whose backward runs, or leaves it for gradient_block.
  const TakeRows* taker(int32_t param, size_t index) {
    std::unique_ptr<TakeRows>& take = takers_[{param, index}];
    if (take == nullptr)
      take = std::make_unique<TakeRows>([this, param, index](const at::Tensor& x, const at::Tensor& dy) {
        const ddh_param_view& p = *ddh_view_param(view_, static_cast<uint32_t>(index));
        const uint64_t of_block = describe().params[param]->grad_block;
        const auto write = [x, dy](const ddh_grad_block& block) { write_rows(x, dy, block); };
        const auto of_operands = static_cast<uint64_t>(x.numel() + dy.numel());
        if (is_later(p) && p.numel <= of_operands)  // the gradient is smaller than what it is made of
          return later().keep(p, [gradient = whole_product(x, dy, of_block)](const ddh_grad_block& block) {
            write_part(gradient, block);
          });
        if (is_later(p)) return later().keep(p, write);
        if (p.grad == nullptr) return;
        ddh_param_view added = p;
        added.grad_mode = DDH_GRAD_ADD;  // UnitParams has zeroed what is to be stored
        for_blocks(added, of_block, write);
      });
    return take.get();
  }

  const ddh_program_desc& program(const ddh_unit_call& c) { return *describe().programs[c.program]; }

  // LibTorch's number of threads is a setting of the calling thread.
  void settle_threads() const {
    if (threads_ == TorchThreads::kOne && at::get_num_threads() != 1) at::set_num_threads(1);
  }

  UnitParams& params_of(const ddh_unit_call& c) {
    const bool input_grad_only = (c.flags & DDH_CALL_INPUT_GRAD_ONLY) != 0;
    std::unique_ptr<UnitParams>& params = params_[{c.program, c.unit, input_grad_only}];
    if (params == nullptr) {
      const ddh_model_desc& model = describe();
      std::vector<uint8_t> trained(model.n_params, 0);
      for (uint32_t i = 0; i < model.n_params; ++i)
        trained[i] = !input_grad_only && trains(c.program, static_cast<int32_t>(i)) ? 1 : 0;
      params = std::make_unique<UnitParams>(model, c.unit, trained, *c.view, device().where());
    }
    return *params;
  }

  void run(const ddh_unit_call& c, Boundary& boundary, bool with_graph) {
    const at::AutoGradMode grad(with_graph);
    UnitParams& params = params_of(c);
    const BoundParams bound(params, *c.view);
    boundary.outputs = run_unit({c.program, c.unit, c.position, c.micro_batch, c.step, c.global_micro_batch,
                                 c.phase != DDH_PHASE_EVAL, c.phase != DDH_PHASE_RECOMPUTE, c.batch, c.stream},
                                params.leaves(), boundary.inputs);
    const bool is_last = static_cast<uint32_t>(c.position) + 1 == program(c).n_units;
    if (is_last && c.phase != DDH_PHASE_RECOMPUTE) send_results(c);
  }

  // Sums and contributions of a micro-batch that are on the device.
  static std::vector<at::Tensor*> results_on_device(MicroBatch& micro) {
    std::vector<at::Tensor*> out;
    for (auto& [metric, sums] : micro.sent)
      if (!sums.is_cpu()) out.push_back(&sums);
    for (auto& [buffer, value] : micro.contributions)
      if (!value.is_cpu()) out.push_back(&value);
    return out;
  }
  // Queues their way to the host, as one block of bytes.
  void send_results(const ddh_unit_call& c) {
    std::vector<at::Tensor> bytes;
    for (const at::Tensor* result : results_on_device(micro_batches_.at(c.micro_batch)))
      bytes.push_back(result->flatten().view(at::kByte));
    if (!bytes.empty()) transfers().send(c.micro_batch, at::cat(bytes), c.stream);
  }
  // From here on they are on the host.
  void receive_results(int32_t micro_batch) {
    const std::vector<at::Tensor*> results = results_on_device(micro_batches_.at(micro_batch));
    if (results.empty()) return;
    const at::Tensor bytes = transfers().read(micro_batch);
    const auto* from = bytes.const_data_ptr<uint8_t>();
    for (at::Tensor* result : results) {
      const at::Tensor here = at::empty(result->sizes(), result->scalar_type());
      std::memcpy(here.mutable_data_ptr(), from, here.nbytes());
      from += here.nbytes();
      *result = here;
    }
  }

  const TorchThreads threads_;
  bool syncs_batch_norm_ = false;
  std::map<int32_t, MicroBatch> micro_batches_;
  std::map<ParamsKey, std::unique_ptr<UnitParams>> params_;
  std::map<std::pair<int32_t, size_t>, std::unique_ptr<TakeRows>> takers_;  // by parameter and its index in the unit
  const ddh_unit_view* view_ = nullptr;                                     // of the backward that runs
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
