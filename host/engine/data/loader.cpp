// SPDX-License-Identifier: Apache-2.0
#include "engine/data/loader.hpp"

#include <unistd.h>

#include <cmath>

namespace ddhost {
namespace {

void check_info(const PluginCaller& caller, const ddh_batch* batch, const ddh_batch_info& info) {
  if (batch == nullptr) caller.blame(PluginCall::kBatchCreate, {}, "gave no batch");
  if (!std::isfinite(info.loss_count) || info.loss_count < 0)
    caller.blame(PluginCall::kBatchCreate, {}, "says that ", info.loss_count,
                 " targets of the loss count (loss_count), which is no number of targets");
}

}  // namespace

Batch make_batch(ddh_inst* model, const ddh_model_api& table, const PluginCaller& caller, const PluginCaller& main,
                 const BatchPlace& place, const std::vector<int64_t>& samples) {
  const ddh_batch_args args{sizeof(ddh_batch_args),
                            place.program,
                            place.step,
                            static_cast<int32_t>(place.micro_batch),
                            static_cast<uint32_t>(samples.size()),
                            samples.data(),
                            place.global_micro_batch};
  ddh_batch* batch = nullptr;
  ddh_batch_info info{};
  info.struct_size = sizeof info;
  caller(PluginCall::kBatchCreate, table.batch_create, model, &args, &batch, &info);
  check_info(caller, batch, info);
  return {model, &table, main, batch, info};
}

Loader::Loader(ddh_inst* model, const ddh_model_api& table, const BatchCallers& callers, const TrainOrder& order,
               Range range)
    : model_(model), table_(table), callers_(callers), order_(order), range_(range), worker_([this] { work(); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

Batch Loader::next(Clock& clock) {
  const ClockSpan span(clock, DDH_SPAN_DATA);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || failure_ != nullptr; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Loader::work() {
  callers_.data.note_thread(::gettid());
  try {
    for (int64_t step = range_.first_step; step <= range_.last_step; ++step) {
      for (uint64_t m = 0; m < range_.grad_accum_steps; ++m) {
        const auto global = static_cast<int64_t>(m * range_.world_size + range_.rank);
        Batch batch = make_batch(model_, table_, callers_.data, callers_.main, {order_.program(step), step, m, global},
                                 order_.samples(step, m, range_.rank));
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || ready_.size() < kAhead; });
        ready_.push_back(std::move(batch));  // also when stopping: batches are destroyed on the main thread
        if (stop_) return;
        lock.unlock();
        changed_.notify_all();
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

}  // namespace ddhost
