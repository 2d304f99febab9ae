// SPDX-License-Identifier: Apache-2.0
//
// Batches that several threads make at once, as a loader and an evaluation do, are those that one thread makes. Under the
// thread sanitizer this finds what batch_create shares.
#include <array>
#include <catch2/catch.hpp>
#include <latch>
#include <numeric>
#include <thread>

#include "fixtures/harness/bare_run.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/golden_fill.hpp"

using namespace ddhost::test;

namespace {

constexpr size_t kThreads = 4, kBatches = 40, kRounds = 40;

// So many that threads meet inside of batch_create, on few cores too.
std::vector<int64_t> samples_of(size_t i) {
  std::vector<int64_t> out(5000);
  std::iota(out.begin(), out.end(), static_cast<int64_t>(17 * i));
  return out;
}

// The loss distinguishes batches.
double loss_of(ModelDriver& model, const ModelDriver::Batch& batch) {
  model.forward(batch.batch);
  const double loss = model.metric().first;
  model.discard();
  return loss;
}

}  // namespace

TEST_CASE("batches made by several threads at once are those that one thread makes", "[batches]") {
  ModelDriver model(entry_of(toy_model()), {{"model.ignore_every", "3"}});
  for (uint32_t p = 0; p < model.desc().n_params; ++p) model.value(p) = golden_fill(model.name(p), model.shape(p));
  std::array<std::vector<ModelDriver::Batch>, kThreads> made;
  std::latch all_here(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&model, &all_here, &batches = made[t], t] {
      all_here.arrive_and_wait();
      for (size_t round = 0; round < kRounds; ++round) {
        for (ModelDriver::Batch& batch : batches) model.destroy_batch(batch);
        batches.clear();
        for (size_t i = t; i < kBatches; i += kThreads) batches.push_back(model.create_batch(samples_of(i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kBatches; ++i) {
    ModelDriver::Batch alone = model.create_batch(samples_of(i)), &other = made[i % kThreads][i / kThreads];
    CHECK(other.info.loss_count == alone.info.loss_count);
    CHECK(loss_of(model, other) == loss_of(model, alone));
    model.destroy_batch(alone);
    model.destroy_batch(other);
  }
}
