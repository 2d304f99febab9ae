// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/step_coordinator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/step_extras.hpp"
#include "ddh/sdk/stream.hpp"
#include "engine/services/optim/optimizers.hpp"

namespace ddhost {

// The message of a rank in decide, followed by its rows of metrics.
struct StepCoordinator::Payload {
  ExactSum::Words squares;
  GradientNorm::Place nonfinite;
  int64_t stop, saves, saving, save_by_clock;  // StepRequests
  int64_t has_open_window;
  uint64_t counted;  // StepAccount::gradients
  double lr;
};

void StepCoordinator::set_optimizers(const std::vector<OptimizerRef>& optimizers,
                                     std::span<const ddh_run_program> programs) {
  optimizers_ = std::make_unique<Optimizers>(model_, optimizers, programs);
  if (!device_.is_host_reachable()) optimizers_->use_device(device_, windows_.memory());
  if (!settings_.check_plugins) return;
  if (!device_.is_host_reachable())
    ddh::fail(DDH_UNIMPLEMENTED, "run.check_plugins repeats updates on the host, which can't access the memory of ",
              "device '", device_.name(), "'; set it to false, or choose another --device");
  check_ = std::make_unique<const UpdateCheck>(model_);
  optimizers_->check_prepare([this](const auto& optimizer, const auto& args) { check_->prepare(optimizer, args); });
}

void StepCoordinator::begin(int64_t step, int32_t program, double lr, double seed_scale, double loss_scale) {
  comm_.wait_for_thread();
  program_ = program;
  optimizer_ = &optimizers_->of_program(program);
  norm_.clear();
  if (device_norm_ != nullptr) device_norm_->clear();
  optimizer_->sums.clear();
  account_.begin(program, optimizers_->trained_by(program));
  refusal_.clear();
  decided_ = false;
  mine_ = nullptr;
  has_exchange_ = false;
  block_ = {sizeof(ddh_step_block), 0, step, lr, loss_scale, seed_scale, 1.0, 1.0, 0.0, settings_.clip_value, 0.0, 0.0};
  outcome_.requests = {};
  outcome_.nonfinite.clear();
}

void StepCoordinator::require_undecided(const char* call) const {
  if (decided_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called ", call, " twice in step ", block_.step,
              ", or after another decision; call it once, from step");
  if (mine_ == nullptr)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called ", call, " before the last backward of step ", block_.step,
              ", when the number of targets is not known yet; call it from step");
}

StepCoordinator::Payload StepCoordinator::my_payload() {
  return {norm_.sum().words(),
          norm_.first_nonfinite(),
          requests_.stop ? 1 : 0,
          requests_.saves,
          requests_.saving ? 1 : 0,
          requests_.save_by_clock ? 1 : 0,
          windows_.any_open() ? 1 : 0,
          account_.gradients(),
          block_.lr};
}

void StepCoordinator::begin_decision(const char* call, ddh_group* group, int32_t deciders) {
  comm_.wait_for_thread();  // sums that are in the norm
  require_undecided(call);
  wait_for_device();
  if (take_results_) take_results_();
  group_ = group;
  deciders_ = deciders;
}

const ddh_step_block& StepCoordinator::decide() {
  begin_decision("decide", comm_.world(), comm_.world_size());
  outcome_.is_quiet = outcome_.is_of_group = false;
  exchange(/*with_quiet=*/true);
  const PartSpan span(comm_.clock(), StepPart::norm, "norm of all ranks");
  check_gradients();
  merge_gradients();
  finish_world();
  finish_decision();
  if (block_.skip == 0) count_updates();
  return block_;
}

// The other groups can't know that a step was skipped, and counts of updates are equal on all ranks.
const ddh_step_block& StepCoordinator::decide_in(const ddh_decide_args& args) {
  const bool is_quiet = args.flags == DDH_DECIDE_QUIET;
  if (args.flags != 0 && !is_quiet)
    ddh::fail(DDH_INVALID_ARGUMENT, "decide_in got the flags ", args.flags, "; give DDH_DECIDE_QUIET or 0");
  if (is_quiet && block_.step % world_every_ == 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called decide_in with DDH_DECIDE_QUIET in step ", block_.step,
              ", a step of its rhythm (world_every ", world_every_, "); leave the flag out there");
  if (scales_loss_)
    ddh::fail(DDH_FAILED_PRECONDITION,
              "the strategy called decide_in with loss scaling, whose scale all ranks decide in ",
              "every step; set precision.compute=bf16 or fp32");
  begin_decision("decide_in", args.group,
                 args.group == nullptr ? 1 : static_cast<int32_t>(comm_.ranks_of(args.group).size()));
  outcome_.is_quiet = is_quiet;
  outcome_.is_of_group = true;
  exchange(/*with_quiet=*/false);
  check_gradients();
  merge_gradients();
  finish_decision();
  count_updates();
  if (is_quiet)
    wait_for_world();
  else
    share_with_world();
  return block_;
}

// Requests wait for the next exchange of the world. Until then other ranks may still write their part of a checkpoint.
void StepCoordinator::wait_for_world() {
  outcome_.requests = {false, saves_agreed_, /*saving=*/true, false};
  outcome_.quiet.clear();
  mine_->append_sum(quiet_metrics_);
  quiet_sizes_.push_back(mine_->n_metrics());
}

void StepCoordinator::share_with_world() {
  group_ = comm_.world();
  deciders_ = comm_.world_size();
  exchange(/*with_quiet=*/true);
  finish_world();
}

void StepCoordinator::finish_world() {
  check_lr();
  merge_requests();
  saves_agreed_ = outcome_.requests.saves;
  take_quiet_metrics();
}

void StepCoordinator::finish_decision() {
  const double count = outcome_.world.counts.at(0);
  block_.rank_targets = mine_->targets();
  block_.group_targets = count;
  block_.inv_scale = count > 0 ? 1.0 / (block_.seed_scale * count) : 0.0;
  block_.grad_norm = std::sqrt(norm_.sum().total()) * block_.inv_scale;
  if (settings_.clip_norm > 0) block_.clip_factor = std::min(1.0, settings_.clip_norm / (block_.grad_norm + 1e-6));
  block_.skip = norm_.sum().nonfinite() && settings_.skip_nonfinite ? 1 : 0;
  decided_ = true;
}

void StepCoordinator::take_quiet_metrics() {
  outcome_.quiet.clear();
  const double* row = received_.data() + sizeof(Payload) / sizeof(double) + mine_->rows().size();
  for (const uint32_t n : std::exchange(quiet_sizes_, {})) {
    outcome_.quiet.push_back(MicroMetrics::folded(row, sent_.size(), static_cast<uint64_t>(comm_.world_size()), n));
    row += MicroMetrics::row_size(n);
  }
  quiet_metrics_.clear();
}

std::vector<FoldedMetrics> StepCoordinator::share_quiet_metrics() {
  std::vector<FoldedMetrics> out;
  if (quiet_sizes_.empty()) return out;
  const uint64_t stride = quiet_metrics_.size();
  std::vector<double> all(stride * static_cast<size_t>(comm_.world_size()));
  comm_.all_gather_bytes(quiet_metrics_.data(), all.data(), stride * sizeof(double), "metrics of quiet steps");
  const double* row = all.data();
  for (const uint32_t n : std::exchange(quiet_sizes_, {})) {
    out.push_back(MicroMetrics::folded(row, stride, static_cast<uint64_t>(comm_.world_size()), n));
    row += MicroMetrics::row_size(n);
  }
  quiet_metrics_.clear();
  return out;
}

// The one wait of a step. Results on their way to the host, and squares, have arrived.
void StepCoordinator::wait_for_device() {
  if (device_.is_host_memory()) return;
  if (device_norm_ != nullptr)
    device_norm_->finish(norm_);
  else
    device_.synchronize(nullptr);
  comm_.require_healthy();
}

// One message of the same size on every rank: the payload, then the rows of metrics, and in a decide of the world those of
// the quiet steps before.
void StepCoordinator::exchange(bool with_quiet) {
  const Payload mine = my_payload();
  static_assert(std::is_trivially_copyable_v<Payload> && sizeof(Payload) % sizeof(double) == 0);
  const std::span<const double> rows = mine_->rows();
  sent_.resize(sizeof(Payload) / sizeof(double));
  std::memcpy(sent_.data(), &mine, sizeof mine);
  sent_.insert(sent_.end(), rows.begin(), rows.end());
  if (with_quiet) sent_.insert(sent_.end(), quiet_metrics_.begin(), quiet_metrics_.end());
  received_.resize(sent_.size() * static_cast<size_t>(deciders_));
  if (group_ == nullptr && deciders_ == 1)
    received_ = sent_;
  else
    comm_.all_gather_bytes(sent_.data(), received_.data(), sent_.size() * sizeof(double), "decide", group_);
}

StepCoordinator::Payload StepCoordinator::payload_of(int32_t rank) const {
  Payload out;
  std::memcpy(static_cast<void*>(&out), &received_[static_cast<size_t>(rank) * sent_.size()], sizeof out);
  return out;
}

// Every rank sees the same sum, so either all ranks make the detailed exchange, or none.
void StepCoordinator::check_gradients() const {
  uint64_t counted = 0;
  for (int32_t r = 0; r < deciders_; ++r) counted += payload_of(r).counted;
  if (counted == account_.expected_gradients() || !step_includes(StepExtra::checks)) return;
  const std::vector<Cover::Param>& mine = account_.gradient_cover().params();
  std::vector<Cover::Param> every(mine.size() * static_cast<size_t>(deciders_)), sum(mine.size());
  if (group_ == nullptr && deciders_ == 1)
    every = mine;
  else
    comm_.all_gather_bytes(mine.data(), every.data(), mine.size() * sizeof(Cover::Param), "counted gradients", group_);
  for (size_t i = 0; i < every.size(); ++i) sum[i % mine.size()] += every[i];
  account_.fail_gradients(sum);
}

// Ranks that update at different rates would train different models without a sign of it.
void StepCoordinator::check_lr() const {
  const double first = payload_of(0).lr;
  for (int32_t r = 1; r < comm_.world_size(); ++r)
    if (payload_of(r).lr != first)
      ddh::fail(DDH_FAILED_PRECONDITION, "the learning rate of step ", block_.step, " is ", first, " on rank 0 and ",
                payload_of(r).lr, " on rank ", r, "; fix the schedule: it returns the same rate on every rank");
}

void StepCoordinator::require_done() const {
  if (!refusal_.empty()) ddh::fail(DDH_FAILED_PRECONDITION, "the strategy continued after a refused call: ", refusal_);
  if (!decided_)
    ddh::fail(DDH_FAILED_PRECONDITION, "returned without ddh.optim decide in step ", block_.step,
              "; fix the strategy: it calls decide once in every step");
}

// Computed from the same bytes on every rank that decides, so the result is equal.
void StepCoordinator::merge_gradients() {
  norm_.clear();
  GradientNorm::Place first;
  for (int32_t r = 0; r < deciders_; ++r) {
    const Payload p = payload_of(r);
    norm_.sum().merge(p.squares.data());
    const bool earlier = first.param < 0 || std::tie(p.nonfinite.param, p.nonfinite.param_offset) <
                                                std::tie(first.param, first.param_offset);
    if (p.nonfinite.param >= 0 && earlier) first = p.nonfinite;
  }
  fold_metrics();
  if (first.param < 0) return;
  const ddh_param_desc& param = *model_.params[first.param];
  outcome_.nonfinite =
      ddh::str("the gradient of parameter '", param.name, "' (unit '", model_.units[param.owner_unit]->name,
               "') is not finite from element ", first.param_offset, " on");
}

void StepCoordinator::fold_metrics() {
  mine_->fold(&received_[sizeof(Payload) / sizeof(double)], sent_.size(), static_cast<uint64_t>(deciders_),
              outcome_.world);
}

void StepCoordinator::merge_requests() {
  bool any_window_open = false;
  StepRequests& asked = outcome_.requests;
  for (int32_t r = 0; r < deciders_; ++r) {
    const Payload p = payload_of(r);
    any_window_open = any_window_open || p.has_open_window != 0;
    asked = {asked.stop || p.stop != 0, std::max(asked.saves, p.saves), asked.saving || p.saving != 0,
             asked.save_by_clock || p.save_by_clock != 0};
  }
  fold_metrics();
  // Every rank has reached this point. If none holds a view, all epochs are closed, and writes need no handshake.
  if (!any_window_open) windows_.all_closed();
}

void StepCoordinator::count_updates() {
  const std::span<const uint8_t> trained = optimizers_->trained_by(program_);
  const auto count = [&](Optimizers::Instance& o) {
    for (size_t p = 0; p < trained.size(); ++p) o.param_steps[p] += trained[p];
    advance_numbers(o);
  };
  count(*optimizer_);
  for (Optimizers::Instance& follower : optimizers_->followers()) count(follower);
}

// On every rank, also on one that updates nothing: so they stay equal.
void StepCoordinator::advance_numbers(const Optimizers::Instance& o) const {
  if (o.first_numbers.empty()) return;
  ddh_optim_shard nothing{};
  nothing.struct_size = sizeof nothing;
  const ddh_update_args args{sizeof(ddh_update_args), 0, &nothing, &block_, o.param_steps.data(), nullptr, nullptr};
  o.call(PluginCall::kUpdate, o.table->update, o.inst, &args);
}

void StepCoordinator::check_own_sums() const {
  if (settings_.rounds_sums && !has_exchange_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy sums gradients without an exchange, so they are not rounded as ",
              "precision.reduce_dtype=bf16 requires; set it to fp32, or choose another strategy");
}

void StepCoordinator::require_decided(const char* call) const {
  if (!decided_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called ", call, " before decide in step ", block_.step);
}

void StepCoordinator::prepare(const ddh_optim_shard& given, int32_t replica_index, int32_t replica_count,
                              ddh_stream* stream) {
  require_decided("prepare");
  account_.check_ranges(given.ranges, given.n_ranges);
  if (block_.skip != 0 || given.n_ranges == 0 || !optimizer_->sums.needed()) return;
  const ddh_optim_shard shard = optimizers_->shard_for(*optimizer_, program_, given);
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  const auto prepare = [&] {
    lr_scales_.for_each(*optimizer_, shard, block_, [&](const ddh_optim_shard& part, const ddh_step_block& block) {
      const ddh_update_args args{sizeof(ddh_update_args),        0,      &part,  &block,
                                 optimizer_->param_steps.data(), stream, nullptr};
      optimizer_->sums.prepare(args, {replica_index, replica_count});
    });
  };
  if (!device_.is_host_reachable()) return prepare();  // it queues kernels
  // The host reads the sums, so it waits for them.
  const ShardCopy mine(shard, *optimizer_);
  ddh::run_on_stream(device_.streams(), device_.context(), stream, mine.accesses(), "the optimizer's prepare", prepare);
  device_.synchronize(stream);
}

void StepCoordinator::sum_norms() {
  require_decided("sum_norms");
  if (outcome_.is_of_group && optimizer_->sums.needed())
    ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs norms over all ranks, and step ", block_.step,
              " is decided in a group (ddh.optim decide_in); choose another optimizer or another strategy");
  const PartSpan span(comm_.clock(), StepPart::norm, "norms of parameters");
  if (block_.skip == 0 && optimizer_->sums.needed()) optimizer_->sums.agree(comm_);
}

void StepCoordinator::update(const ddh_optim_shard& given, ddh_stream* stream) {
  require_decided("update");
  account_.check_ranges(given.ranges, given.n_ranges);
  if (block_.skip != 0 || given.n_ranges == 0) return;
  update_by(*optimizer_, given, stream);
  for (Optimizers::Instance& follower : optimizers_->followers()) update_by(follower, given, stream);
}

void StepCoordinator::update_by(Optimizers::Instance& optimizer, const ddh_optim_shard& given, ddh_stream* stream) {
  const ddh_optim_shard shard = optimizers_->shard_for(optimizer, program_, given);
  if (optimizer.needs_something) check_needs(optimizer, shard);
  if (!optimizer.follows) account_.add_update({shard.ranges, shard.n_ranges});
  const ClockSpan span(comm_.clock(), DDH_SPAN_OPTIM);
  if (!device_.is_host_reachable() || device_.is_host_memory())  // kernels (checked before the run), or inline
    return update_now(optimizer, shard, block_, optimizer.param_steps, stream, optimizer.call);
  ShardCopy mine(shard, optimizer);
  const ddh::Accesses accesses = mine.accesses();
  ddh::run_on_stream(
      device_.streams(), device_.context(), stream, accesses, "the optimizer's update",
      [this, optimizer = &optimizer, mine = std::move(mine), block = block_, steps = optimizer.param_steps, stream] {
        update_now(*optimizer, mine.shard(), block, steps, stream, optimizer->call);
      });
  if (optimizer.sums.needed()) device_.synchronize(stream);  // totals are of this step
}

void StepCoordinator::update_now(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard,
                                 const ddh_step_block& block, const std::vector<int64_t>& steps, ddh_stream* stream,
                                 const PluginCaller& call) const {
  lr_scales_.for_each(optimizer, shard, block, [&](const ddh_optim_shard& part, const ddh_step_block& scaled) {
    const ddh_update_args args{sizeof(ddh_update_args), 0, &part, &scaled, steps.data(), stream,
                               optimizer.sums.totals()};
    if (check_ != nullptr) return check_->update(optimizer, args);
    call(PluginCall::kUpdate, optimizer.table->update, optimizer.inst, &args);
  });
}

// If a strategy ignores the optimizer's needs, it gets an error and never a wrong result.
void StepCoordinator::check_needs(const Optimizers::Instance& optimizer, const ddh_optim_shard& shard) const {
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const ddh_range& range = shard.ranges[r];
    const ddh_param_desc& param = *model_.params[range.param];
    const int32_t need = optimizer.needs.at(static_cast<size_t>(range.param));
    if (need == DDH_NEEDS_WHOLE_PARAM && range.numel != param.numel)
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs parameter '", param.name,
                "' as a whole, but the strategy gave it ", range.numel, " of its ", param.numel,
                " elements; choose another strategy or optimizer");
    if (need == DDH_NEEDS_PARAM_NORM && !optimizer.sums.ready(range.param))
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer needs the norm of parameter '", param.name,
                "', but the strategy updates it without prepare and sum_norms; choose another strategy or optimizer");
  }
}

ShardCopy::ShardCopy(const ddh_optim_shard& shard, const Optimizers::Instance& optimizer)
    : shard_(shard),
      ranges_(shard.ranges, shard.ranges + shard.n_ranges),
      grads_(shard.grads, shard.grads + shard.n_grads),
      slots_(shard.slots, shard.slots + shard.n_slots) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    uint64_t begin = UINT64_MAX, end = 0;
    for (size_t r = 0; r < ranges_.size(); ++r) {
      const SlotPart part = optimizer.part(i, ranges_, r);
      begin = std::min(begin, part.offset);
      end = std::max(end, part.offset + part.bytes);
    }
    slot_parts_.push_back(begin < end ? SlotPart{begin, end - begin} : SlotPart{});
  }
}

ddh_optim_shard ShardCopy::shard() const {
  ddh_optim_shard out = shard_;
  out.ranges = ranges_.data();
  out.grads = grads_.data();
  out.slots = slots_.data();
  return out;
}

ddh::Accesses ShardCopy::accesses() const {
  ddh::Accesses out;
  if (ranges_.empty()) return out;
  uint64_t begin = UINT64_MAX, end = 0;
  for (const ddh_range& r : ranges_) {
    begin = std::min(begin, r.flat_offset);
    end = std::max(end, r.flat_offset + r.numel);
  }
  const auto at = [begin](const void* base, uint64_t element_bytes) {
    return static_cast<const char*>(base) + begin * element_bytes;
  };
  const uint64_t numel = end - begin;
  out.updates(at(shard_.master, sizeof(float)), numel * sizeof(float));
  if (shard_.lowp != nullptr) {
    const uint64_t element_bytes = ddh_dtype_bytes(shard_.lowp_dtype);
    out.writes(at(shard_.lowp, element_bytes), numel * element_bytes);
  }
  for (const float* grad : grads_) out.reads(at(grad, sizeof(float)), numel * sizeof(float));
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto [offset, bytes] = slot_parts_[i];
    if (slots_[i] != nullptr && bytes > 0) out.updates(static_cast<const char*>(slots_[i]) + offset, bytes);
  }
  return out;
}

}  // namespace ddhost
