// SPDX-License-Identifier: Apache-2.0
#include "services/step.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ddh/sdk/stream.hpp"
#include "services/check_optim.hpp"
#include "services/shard_copy.hpp"

namespace ddhost {

// What a rank tells the others once per step.
struct Step::Payload {
  ExactSum::Words squares;
  MetricSums metrics;
  GradientNorm::Place nonfinite;
  int64_t stop;
  int64_t has_open_window;
  uint64_t counted;  // StepAccount::gradients
};

void Step::set_optimizer(ddh_inst* inst, const ddh_optimizer_api* table, const PluginCaller& caller) {
  optimizer_inst_ = inst;
  optimizer_ = table;
  call_ = caller;
  const PluginCaller::Entered entered = caller.enter(PluginCall::kNeeds);
  std::vector<int32_t> needs(model_.n_params);
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    needs[p] = table->needs(inst, static_cast<int32_t>(p));
    if (needs[p] < DDH_NEEDS_NOTHING || needs[p] > DDH_NEEDS_WHOLE_PARAM)
      ddh::fail(DDH_UNIMPLEMENTED, "the optimizer has the need ", needs[p], " for parameter '", model_.params[p]->name,
                "', which this host does not know; update ddhost, or choose another optimizer");
  }
  param_sums_ = ParamSums(model_, inst, *table, needs, caller);
  const auto is_cuttable = [](int32_t need) { return need == DDH_NEEDS_NOTHING; };
  needs_ = std::all_of(needs.begin(), needs.end(), is_cuttable) ? std::vector<int32_t>() : std::move(needs);
}

void Step::begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale) {
  program_ = program;
  norm_.clear();
  param_sums_.clear();
  account_.begin(program);
  refusal_.clear();
  decided_ = false;
  has_exchange_ = false;
  block_ = {sizeof(ddh_step_block), 0, step, lr, loss_scale, seed_scale, 1.0, 1.0, 0.0, settings_.clip_value};
  outcome_ = {};
}

const ddh_step_block& Step::decide() {
  if (decided_) ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called decide twice in step ", block_.step);
  const Payload mine{norm_.sum().words(),         mine_,
                     norm_.first_nonfinite(),     stop_requested_ ? 1 : 0,
                     windows_.any_open() ? 1 : 0, account_.gradients()};
  std::vector<Payload> all(static_cast<size_t>(comm_.world_size()));
  comm_.all_gather_bytes(&mine, all.data(), sizeof mine, "decide");
  check_gradients(all);
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

// Every rank sees the same sum, so all of them come to the detailed exchange, or none.
void Step::check_gradients(const std::vector<Payload>& all) const {
  uint64_t counted = 0;
  for (const Payload& p : all) counted += p.counted;
  if (counted == account_.expected_gradients()) return;
  const std::vector<Cover::Param>& mine = account_.gradient_cover().params();
  std::vector<Cover::Param> every(mine.size() * all.size()), sum(mine.size());
  comm_.all_gather_bytes(mine.data(), every.data(), mine.size() * sizeof(Cover::Param), "counted gradients");
  for (size_t i = 0; i < every.size(); ++i) sum[i % mine.size()] += every[i];
  account_.fail_gradients(sum);
}

void Step::require_done() const {
  if (!refusal_.empty()) ddh::fail(DDH_FAILED_PRECONDITION, "the strategy went on after a refusal: ", refusal_);
  if (!decided_)
    ddh::fail(DDH_FAILED_PRECONDITION, "returned without ddh.optim decide in step ", block_.step,
              "; fix the strategy: it calls decide once in every step");
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
  const uint8_t* trainable = model_.programs[program_]->trainable;
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    const bool frozen = (model_.params[p]->attributes & DDH_PARAM_FROZEN) != 0;
    if (!frozen && (trainable == nullptr || trainable[p] != 0)) ++param_steps_[p];
  }
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

void Step::prepare(const ddh_optim_shard& shard, int32_t replica_index, int32_t replica_count, ddh_stream* stream) {
  require_decided("prepare");
  check_shard_of(shard);
  if (block_.skip != 0 || !param_sums_.needed()) return;
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  // The sums are the host's: it waits for them.
  const ShardCopy mine(shard, *optimizer_, optimizer_inst_);
  ddh::run_on_stream(device_.streams(), device_.context(), stream, mine.accesses(), "the optimizer's prepare", [&] {
    const ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block_, param_steps_.data(), stream, nullptr};
    param_sums_.prepare(args, {replica_index, replica_count});
  });
  device_.synchronize(stream);
}

void Step::sum_norms() {
  require_decided("sum_norms");
  if (block_.skip == 0 && param_sums_.needed()) param_sums_.agree(comm_);
}

void Step::update(const ddh_optim_shard& shard, ddh_stream* stream) {
  require_decided("update");
  check_shard_of(shard);
  if (block_.skip != 0) return;
  if (!needs_.empty()) check_needs(shard);
  account_.add_update({shard.ranges, shard.n_ranges});
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  if (device_.is_host_memory()) return update_now(shard, block_, param_steps_, stream, call_);
  ShardCopy mine(shard, *optimizer_, optimizer_inst_);
  const ddh::Accesses accesses = mine.accesses();
  ddh::run_on_stream(device_.streams(), device_.context(), stream, accesses, "the optimizer's update",
                     [this, mine = std::move(mine), block = block_, steps = param_steps_, stream] {
                       update_now(mine.shard(), block, steps, stream, call_.unrecorded());
                     });
  if (param_sums_.needed()) device_.synchronize(stream);  // totals are of this step
}

void Step::update_now(const ddh_optim_shard& shard, const ddh_step_block& block, const std::vector<int64_t>& steps,
                      ddh_stream* stream, const PluginCaller& call) const {
  const ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block, steps.data(), stream, param_sums_.totals()};
  call(PluginCall::kUpdate, optimizer_->update, optimizer_inst_, &args);
}

void Step::check_shard_of(const ddh_optim_shard& shard) const {
  check_shard(shard, model_, account_, optimizer_->slot_count(optimizer_inst_), [&](uint32_t slot, int32_t param) {
    return !DDH_CAN(optimizer_, ddh_optimizer_api, slot_used) ||
           optimizer_->slot_used(optimizer_inst_, slot, param) != 0;
  });
}

// A strategy that ignores the optimizer's needs gets a sentence, never a wrong number.
void Step::check_needs(const ddh_optim_shard& shard) const {
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const ddh_range& range = shard.ranges[r];
    const ddh_param_desc& param = *model_.params[range.param];
    const int32_t need = needs_.at(static_cast<size_t>(range.param));
    if (need == DDH_NEEDS_WHOLE_PARAM && range.numel != param.numel)
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs parameter '", param.name,
                "' as a whole, but the strategy gave it ", range.numel, " of its ", param.numel,
                " elements; choose another strategy or optimizer");
    if (need == DDH_NEEDS_PARAM_NORM && !param_sums_.ready(range.param))
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs the norm of parameter '", param.name,
                "', but the strategy updates it without prepare and sum_norms; choose another strategy or optimizer");
  }
}

}  // namespace ddhost
