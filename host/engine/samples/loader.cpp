// SPDX-License-Identifier: Apache-2.0
#include "engine/samples/loader.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cmath>

namespace ddhost {
namespace {

void check_info(const PluginCaller& caller, const ddh_batch* batch, const ddh_batch_info& info) {
  if (batch == nullptr) caller.blame(PluginCall::kBatchCreate, {}, "gave no batch");
  if (!std::isfinite(info.loss_count) || info.loss_count < 0)
    caller.blame(PluginCall::kBatchCreate, {}, "gave loss_count ", info.loss_count,
                 ", which is not a valid number of targets");
}

}  // namespace

Batch make_batch(ddh_inst* model, const ddh_model_api& table, const PluginCaller& caller, const PluginCaller& main,
                 const BatchPlace& place, const std::vector<int64_t>& samples, const std::vector<int64_t>& epochs) {
  const ddh_batch_args args{sizeof(ddh_batch_args),
                            place.program,
                            place.step,
                            static_cast<int32_t>(place.micro_batch),
                            static_cast<uint32_t>(samples.size()),
                            samples.data(),
                            place.global_micro_batch,
                            epochs.empty() ? nullptr : epochs.data()};
  ddh_batch* batch = nullptr;
  ddh_batch_info info{};
  info.struct_size = sizeof info;
  caller(PluginCall::kBatchCreate, table.batch_create, model, &args, &batch, &info);
  Batch result(model, &table, caller, batch, info);  // releases it also where its description is refused
  check_info(caller, batch, info);
  result.move_to(main);
  return result;
}

Loader::Loader(ddh_inst* model, const ddh_model_api& table, const BatchCallers& callers, const TrainOrder& order,
               TrainPosition from, uint64_t rank, Clock& clock)
    : clock_(clock),
      model_(model),
      table_(table),
      callers_(callers),
      order_(order),
      rank_(rank),
      ahead_(callers.data.size() + 2),
      position_(std::move(from)),
      ready_(ahead_) {
  try {
    for (const PluginCaller& caller : callers_.data)
      workers_.emplace_back([this, &caller, number = workers_.size()] { work(caller, number); });
  } catch (...) {  // the system has no more threads
    stop();
    throw;
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Batch Loader::next() {
  const ClockSpan span(clock_, DDH_SPAN_DATA);
  std::unique_lock lock(mutex_);
  std::optional<Result>& slot = slot_of(taken_);
  changed_.wait(lock, [&] { return slot.has_value(); });
  Result result = std::move(*slot);
  slot.reset();
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  if (result.failure != nullptr) std::rethrow_exception(result.failure);
  return std::move(result.batch);
}

std::optional<Loader::Job> Loader::next_job() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || jobs_ < taken_ + ahead_; });
  if (stop_) return std::nullopt;
  if (!step_ || micro_batch_ == step_->cut.grad_accum_steps) {
    if (order_.is_at_end(position_)) return std::nullopt;
    step_ = order_.advance(position_);
    micro_batch_ = 0;
  }
  return Job{jobs_++, *step_, micro_batch_++};
}

Loader::Result Loader::result_of(const Job& job, const PluginCaller& caller, BatchSamples& samples) const {
  try {
    const auto global = static_cast<int64_t>(job.micro_batch * job.step.cut.world_size + rank_);
    order_.fill(samples, job.step, job.micro_batch, rank_);
    return {make_batch(model_, table_, caller, callers_.main,
                       {job.step.program, job.step.step, job.micro_batch, global}, samples.samples, samples.epochs),
            nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

void Loader::work(const PluginCaller& caller, size_t number) {
  caller.note_thread(::gettid());
  ::pthread_setname_np(::pthread_self(), ddh::str("data ", number).c_str());  // for traces, top and debuggers
  BatchSamples samples;
  while (const std::optional<Job> job = next_job()) {
    const Clock::Time from = std::chrono::steady_clock::now();
    Result result = result_of(*job, caller, samples);
    clock_.beside("batch", from);
    const std::lock_guard lock(mutex_);
    slot_of(job->number) = std::move(result);
    changed_.notify_all();
  }
}

}  // namespace ddhost
