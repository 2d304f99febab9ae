// SPDX-License-Identifier: Apache-2.0
#include "services/step.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ddh/sdk/stream.hpp"
#include "services/shard_copy.hpp"

namespace ddhost {

// What a rank tells the others once per step.
struct Step::Payload {
  ExactSum::Words squares;
  MetricSums metrics;
  GradientNorm::Place nonfinite;
  int64_t stop;
  int64_t has_open_window;
};

void Step::set_optimizers(const std::vector<OptimizerRef>& optimizers, std::span<const ddh_run_program> programs) {
  optimizers_ = std::make_unique<Optimizers>(model_, optimizers, programs);
}

void Step::begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale) {
  program_ = program;
  optimizer_ = &optimizers_->of_program(program);
  norm_.clear();
  optimizer_->sums.clear();
  decided_ = false;
  has_exchange_ = false;
  block_ = {sizeof(ddh_step_block), 0, step, lr, loss_scale, seed_scale, 1.0, 1.0, 0.0, settings_.clip_value};
  outcome_ = {};
}

const ddh_step_block& Step::decide() {
  if (decided_) ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called decide twice in step ", block_.step);
  const Payload mine{norm_.sum().words(), mine_, norm_.first_nonfinite(), stop_requested_ ? 1 : 0,
                     windows_.any_open() ? 1 : 0};
  std::vector<Payload> all(static_cast<size_t>(comm_.world_size()));
  comm_.all_gather_bytes(&mine, all.data(), sizeof mine, "decide");
  merge(all);
  // Every rank has got here: where none holds a view, all epochs are closed, and writes need no handshake.
  if (std::none_of(all.begin(), all.end(), [](const Payload& p) { return p.has_open_window != 0; }))
    windows_.all_closed();

  const double count = outcome_.world.count[0];
  block_.inv_scale = count > 0 ? 1.0 / (block_.seed_scale * count) : 0.0;
  block_.grad_norm = std::sqrt(norm_.sum().total()) * block_.inv_scale;
  if (settings_.clip_norm > 0) block_.clip_factor = std::min(1.0, settings_.clip_norm / (block_.grad_norm + 1e-6));
  block_.skip = norm_.sum().nonfinite() && settings_.skip_nonfinite ? 1 : 0;
  if (block_.skip == 0) count_updates();
  decided_ = true;
  return block_;
}

// Sums over the ranks in rank order, the same on every rank.
void Step::merge(const std::vector<Payload>& all) {
  norm_.clear();
  GradientNorm::Place first;
  for (const Payload& p : all) {
    norm_.sum().merge(p.squares.data());
    for (size_t m = 0; m < kMaxMetrics; ++m) {
      outcome_.world.sum[m] += p.metrics.sum[m];
      outcome_.world.count[m] += p.metrics.count[m];
    }
    outcome_.world.items += p.metrics.items;
    outcome_.stop = outcome_.stop || p.stop != 0;
    const bool earlier = first.param < 0 || std::tie(p.nonfinite.param, p.nonfinite.param_offset) <
                                                std::tie(first.param, first.param_offset);
    if (p.nonfinite.param >= 0 && earlier) first = p.nonfinite;
  }
  if (first.param < 0) return;
  const ddh_param_desc& param = *model_.params[first.param];
  outcome_.nonfinite =
      ddh::str("the gradient of parameter '", param.name, "' (unit '", model_.units[param.owner_unit]->name,
               "') is not finite from element ", first.param_offset, " on");
}

void Step::count_updates() {
  const std::span<const uint8_t> trained = optimizers_->trained_by(program_);
  for (size_t p = 0; p < trained.size(); ++p) optimizer_->param_steps[p] += trained[p];
}

void Step::check_own_sums() const {
  if (settings_.rounds_sums && !has_exchange_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy sums gradients without an exchange, so they are not rounded as ",
              "precision.reduce_dtype=bf16 asks; set it to fp32, or choose another strategy");
}

void Step::require_decided(const char* call) const {
  if (!decided_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called ", call, " before decide in step ", block_.step);
}

void Step::prepare(const ddh_optim_shard& given, int32_t replica_index, int32_t replica_count, ddh_stream* stream) {
  require_decided("prepare");
  if (block_.skip != 0 || !optimizer_->sums.needed()) return;
  const ddh_optim_shard shard = optimizers_->shard_for(*optimizer_, program_, given);
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  // The sums are the host's: it waits for them.
  const ShardCopy mine(shard, optimizer_->slots);
  ddh::run_on_stream(device_.streams(), device_.context(), stream, mine.accesses(), "the optimizer's prepare", [&] {
    lr_scales_.for_each(shard, block_, [&](const ddh_optim_shard& part, const ddh_step_block& block) {
      const ddh_update_args args{sizeof(ddh_update_args),        0,      &part,  &block,
                                 optimizer_->param_steps.data(), stream, nullptr};
      optimizer_->sums.prepare(args, {replica_index, replica_count});
    });
  });
  device_.synchronize(stream);
}

void Step::sum_norms() {
  require_decided("sum_norms");
  if (block_.skip == 0 && optimizer_->sums.needed()) optimizer_->sums.agree(comm_);
}

void Step::update(const ddh_optim_shard& given, ddh_stream* stream) {
  require_decided("update");
  if (block_.skip != 0) return;
  const ddh_optim_shard shard = optimizers_->shard_for(*optimizer_, program_, given);
  if (optimizer_->needs_something) check_needs(shard);
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  if (device_.is_host_memory()) return update_now(*optimizer_, shard, block_, optimizer_->param_steps, stream);
  ShardCopy mine(shard, optimizer_->slots);
  const ddh::Accesses accesses = mine.accesses();
  ddh::run_on_stream(
      device_.streams(), device_.context(), stream, accesses, "the optimizer's update",
      [this, optimizer = optimizer_, mine = std::move(mine), block = block_, steps = optimizer_->param_steps, stream] {
        update_now(*optimizer, mine.shard(), block, steps, stream);
      });
  if (optimizer_->sums.needed()) device_.synchronize(stream);  // totals are of this step
}

void Step::update_now(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard, const ddh_step_block& block,
                      const std::vector<int64_t>& steps, ddh_stream* stream) const {
  lr_scales_.for_each(shard, block, [&](const ddh_optim_shard& part, const ddh_step_block& scaled) {
    const ddh_update_args args{sizeof(ddh_update_args), 0, &part, &scaled, steps.data(), stream,
                               optimizer.sums.totals()};
    ddh::call(optimizer.table->update, optimizer.inst, &args);
  });
}

// A strategy that ignores the optimizer's needs gets a sentence, never a wrong number.
void Step::check_needs(const ddh_optim_shard& shard) const {
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const ddh_range& range = shard.ranges[r];
    const ddh_param_desc& param = *model_.params[range.param];
    const int32_t need = optimizer_->needs.at(static_cast<size_t>(range.param));
    if (need == DDH_NEEDS_WHOLE_PARAM && range.numel != param.numel)
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs parameter '", param.name,
                "' as a whole, but the strategy gave it ", range.numel, " of its ", param.numel,
                " elements; choose another strategy or optimizer");
    if (need == DDH_NEEDS_PARAM_NORM && !optimizer_->sums.ready(range.param))
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs the norm of parameter '", param.name,
                "', but the strategy updates it without prepare and sum_norms; choose another strategy or optimizer");
  }
}

}  // namespace ddhost
