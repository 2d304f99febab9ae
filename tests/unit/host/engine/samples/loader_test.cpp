// SPDX-License-Identifier: Apache-2.0
//
// Batches in advance: their order, the samples that the model is asked for, failures of the model, and the end of threads.
#include "engine/samples/loader.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <set>

#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// A model that makes batches: each is a copy of what it was asked for. Its functions run on several threads.
struct BatchModel {
  struct Made {
    int64_t step;
    int32_t micro_batch;
    int64_t global;
    std::vector<int64_t> samples;
    std::thread::id by;
  };
  std::function<ddh_rc(const ddh_batch_args&, ddh_err*)> before;  // of each batch; may be empty
  double loss_count = 1;
  bool gives_batch = true;
  std::atomic<int> created{0}, alive{0};
  std::mutex mutex;
  std::set<std::thread::id> destroyed_by;
  ddh_model_api table{};

  BatchModel() {
    table.struct_size = sizeof table;
    table.batch_create = [](ddh_inst* inst, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info,
                            ddh_err* err) noexcept -> ddh_rc {
      auto& model = *reinterpret_cast<BatchModel*>(inst);
      ++model.created;
      if (model.before)
        if (const ddh_rc rc = model.before(*args, err); rc != DDH_OK) return rc;
      info->loss_count = model.loss_count;
      if (!model.gives_batch) return DDH_OK;
      ++model.alive;
      *out = reinterpret_cast<ddh_batch*>(new Made{args->step,
                                                   args->micro_batch,
                                                   args->global_micro_batch,
                                                   {args->samples, args->samples + args->n_samples},
                                                   std::this_thread::get_id()});
      return DDH_OK;
    };
    table.batch_destroy = [](ddh_inst* inst, ddh_batch* batch) noexcept {
      auto& model = *reinterpret_cast<BatchModel*>(inst);
      const std::lock_guard lock(model.mutex);
      model.destroyed_by.insert(std::this_thread::get_id());
      --model.alive;
      delete reinterpret_cast<Made*>(batch);
    };
  }
  BatchModel(const BatchModel&) = delete;
  BatchModel& operator=(const BatchModel&) = delete;
  ddh_inst* inst() { return reinterpret_cast<ddh_inst*>(this); }
};

const BatchModel::Made& made(const Batch& batch) { return *reinterpret_cast<const BatchModel::Made*>(batch.get()); }

// `steps` steps of two micro-batches of three samples, for each of two ranks.
TrainOrder order_of(int64_t steps) {
  std::map<int32_t, SampleOrder> orders;
  orders.emplace(0, SampleOrder(100, 7, ""));
  return {{{{{0, 3}}, steps, 0}}, 1, std::move(orders), SampleCut{3, 2, 2}};
}

BatchCallers callers(size_t workers) {
  return {std::vector<PluginCaller>(workers, PluginCaller("model 'made'")), PluginCaller("model 'made'")};
}

constexpr uint64_t kRank = 1;

}  // namespace

TEST_CASE("batches come in the order of steps and micro-batches, with their samples, whichever thread is late",
          "[loader]") {
  const size_t workers = GENERATE(1, 3);
  BatchModel model;
  model.before = [](const ddh_batch_args& args, ddh_err*) {
    std::this_thread::sleep_for(std::chrono::microseconds(args.step * 977 % 5 * 300));  // later ones are often sooner
    return DDH_OK;
  };
  const TrainOrder order = order_of(6);
  {
    Clock clock;
    Loader loader(model.inst(), model.table, callers(workers), order, order.begin(), kRank, clock);
    TrainPosition position = order.begin();
    for (int64_t step = 1; step <= 6; ++step) {
      const TrainStep expected = order.advance(position);
      for (uint64_t m = 0; m < 2; ++m) {
        const Batch batch = loader.next();
        INFO("step " << step << ", micro-batch " << m);
        CHECK(made(batch).step == step);
        CHECK(made(batch).micro_batch == static_cast<int32_t>(m));
        CHECK(made(batch).global == static_cast<int64_t>(m * 2 + kRank));
        BatchSamples wanted;
        order.fill(wanted, expected, m, kRank);
        CHECK(made(batch).samples == wanted.samples);
        CHECK(made(batch).by != std::this_thread::get_id());
        CHECK(batch.info().loss_count == 1);
      }
    }
  }
  CHECK(model.created == 12);
  CHECK(model.alive == 0);
  CHECK(model.destroyed_by == std::set{std::this_thread::get_id()});
}

TEST_CASE("a run that goes on after a checkpoint gets the batches after it", "[loader]") {
  BatchModel model;
  const TrainOrder order = order_of(4);
  TrainPosition position = order.begin();
  for (int step = 0; step < 2; ++step) CHECK(order.advance(position).step == step + 1);
  Clock clock;
  Loader loader(model.inst(), model.table, callers(2), order, position, kRank, clock);
  CHECK(made(loader.next()).step == 3);
}

TEST_CASE("only a few batches are made before they are taken", "[loader]") {
  const int workers = GENERATE(1, 2);
  BatchModel model;
  const TrainOrder order = order_of(50);
  Clock clock;
  Loader loader(model.inst(), model.table, callers(static_cast<size_t>(workers)), order, order.begin(), kRank, clock);
  const int ahead = workers + 2;
  for (int taken = 0; taken < 3; ++taken) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (model.created < taken + ahead && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // one more would be made by then
    CHECK(model.created == taken + ahead);
    loader.next();
  }
}

TEST_CASE("a batch that the model can't make fails where it is taken, with model, call and reason", "[loader]") {
  BatchModel model;
  model.before = [](const ddh_batch_args& args, ddh_err* err) {
    if (args.step == 2 && args.micro_batch == 0) return ddh_fail(err, DDH_NOT_FOUND, "there is no image 'x.png'");
    return ddh_rc{DDH_OK};
  };
  const TrainOrder order = order_of(5);
  Clock clock;
  Loader loader(model.inst(), model.table, callers(2), order, order.begin(), kRank, clock);
  CHECK(made(loader.next()).step == 1);
  CHECK(made(loader.next()).micro_batch == 1);
  const std::string said = sentence_of([&] { loader.next(); });
  CHECK_THAT(said, Catch::Contains("model 'made'"));
  CHECK_THAT(said, Catch::Contains("batch_create"));
  CHECK_THAT(said, Catch::Contains("there is no image 'x.png'"));
  CHECK(made(loader.next()).micro_batch == 1);  // the others are as they would be
}

TEST_CASE("a batch without content, or with a count that is none, is refused in the model's name", "[loader]") {
  BatchModel model;
  const TrainOrder order = order_of(1);
  const auto said = [&] {
    Clock clock;
    Loader loader(model.inst(), model.table, callers(1), order, order.begin(), kRank, clock);
    return sentence_of([&] { loader.next(); });
  };
  model.gives_batch = false;
  CHECK_THAT(said(), Catch::Contains("model 'made'") && Catch::Contains("gave no batch"));
  model.gives_batch = true;
  model.loss_count = -1;
  CHECK_THAT(said(), Catch::Contains("gave loss_count -1"));
  CHECK(model.alive == 0);  // a refused batch is released
}

TEST_CASE("a loader that ends early ends its threads, and destroys what nobody took", "[loader]") {
  BatchModel model;
  model.before = [](const ddh_batch_args&, ddh_err*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return DDH_OK;
  };
  const TrainOrder order = order_of(50);
  {
    Clock clock;
    Loader loader(model.inst(), model.table, callers(3), order, order.begin(), kRank, clock);
    loader.next();
  }
  const int created = model.created;
  CHECK(created <= 1 + 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(model.created == created);  // no thread goes on
}
