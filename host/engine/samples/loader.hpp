// SPDX-License-Identifier: Apache-2.0
//
// engine/samples/loader.hpp: prefetches batches. The worker threads of a rank (data.workers) request the batches of the sample
// order from the model, a few ahead. A batch depends only on its place, so any thread may create it. At the same time the
// main thread may create batches for evaluations, so the model's batch_create runs on several threads at once ([any] in
// ddh/kind/model.h). Batches are destroyed on the main thread.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"
#include "engine/samples/train_order.hpp"

namespace ddhost {

// A model's batch with its facts; destroyed through the model.
class Batch {
 public:
  Batch() = default;
  // `caller`: of the thread that destroys it.
  Batch(ddh_inst* model, const ddh_model_api* table, const PluginCaller& caller, ddh_batch* batch, ddh_batch_info info)
      : model_(model), table_(table), caller_(caller), batch_(batch), info_(info) {}
  Batch(Batch&& other) noexcept
      : model_(other.model_),
        table_(other.table_),
        caller_(other.caller_),
        batch_(std::exchange(other.batch_, nullptr)),
        info_(other.info_) {}
  Batch& operator=(Batch&& other) noexcept {
    std::swap(model_, other.model_);
    std::swap(table_, other.table_);
    std::swap(caller_, other.caller_);
    std::swap(batch_, other.batch_);
    std::swap(info_, other.info_);
    return *this;
  }
  ~Batch() {
    if (batch_ == nullptr) return;
    const PluginCaller::Entered entered = caller_.enter(PluginCall::kBatchDestroy);
    table_->batch_destroy(model_, batch_);
  }
  void move_to(const PluginCaller& caller) { caller_ = caller; }  // another thread destroys it
  [[nodiscard]] ddh_batch* get() const { return batch_; }
  [[nodiscard]] const ddh_batch_info& info() const { return info_; }

 private:
  ddh_inst* model_ = nullptr;
  const ddh_model_api* table_ = nullptr;
  PluginCaller caller_;
  ddh_batch* batch_ = nullptr;
  ddh_batch_info info_{};
};

// Identifies a batch: program and step, micro-batch of this rank, and index among those of all ranks.
struct BatchPlace {
  int32_t program;
  int64_t step;
  uint64_t micro_batch;
  int64_t global_micro_batch;
};

// The callers of a model's batch functions: on the worker threads, and on the main thread.
struct BatchCallers {
  std::vector<PluginCaller> data;  // one for each worker
  PluginCaller main;
};

// Creates one batch on the calling thread, to which `caller` belongs. It is destroyed on the main thread. `epochs`: of each
// sample, or empty.
Batch make_batch(ddh_inst* model, const ddh_model_api& table, const PluginCaller& caller, const PluginCaller& main,
                 const BatchPlace& place, const std::vector<int64_t>& samples, const std::vector<int64_t>& epochs = {});

class Loader {
 public:
  // Prefetches from the step after `from` to the last one, with one worker for each of `callers`. The arguments outlive
  // this object.
  Loader(ddh_inst* model, const ddh_model_api& table, const BatchCallers& callers, const TrainOrder& order,
         TrainPosition from, uint64_t rank, Clock& clock);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // The next batch, in order of step and micro-batch. Rethrows an error of the worker that made it.
  Batch next();

 private:
  struct Job {
    uint64_t number;  // of all batches, in order
    TrainStep step;
    uint64_t micro_batch;
  };
  struct Result {
    Batch batch;
    std::exception_ptr failure;
  };
  // Waits until another batch may be created. Returns nothing after the last step.
  std::optional<Job> next_job();
  void work(const PluginCaller& caller, size_t number);
  void stop();
  // `samples`: of the worker, for reuse.
  [[nodiscard]] Result result_of(const Job& job, const PluginCaller& caller, BatchSamples& samples) const;
  [[nodiscard]] std::optional<Result>& slot_of(uint64_t number) { return ready_[number % ahead_]; }

  Clock& clock_;
  ddh_inst* model_;
  const ddh_model_api& table_;
  const BatchCallers callers_;
  const TrainOrder& order_;
  const uint64_t rank_;
  const uint64_t ahead_;  // batches that may be created before they are taken

  std::mutex mutex_;
  std::condition_variable changed_;
  TrainPosition position_;  // of the jobs
  std::optional<TrainStep> step_;
  uint64_t micro_batch_ = 0;  // of the next job
  uint64_t jobs_ = 0, taken_ = 0;
  std::vector<std::optional<Result>> ready_;  // see slot_of
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace ddhost
