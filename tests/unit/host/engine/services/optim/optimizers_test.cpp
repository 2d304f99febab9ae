// SPDX-License-Identifier: Apache-2.0
//
// Norms of whole parameters between decide and update: the same bits for every cut, world and number of replicas, and
// a sentence for a strategy that does not meet an optimizer's needs.
#include "engine/services/optim/optimizers.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "engine/services/optim/step_coordinator.hpp"
#include "fixtures/harness/cpu_device.hpp"

using namespace ddhost;

namespace {

const std::vector<uint64_t> kNumels = {10000, 1, 129, 64};

// An optimizer that asks for the squares of master and gradient.
int32_t g_need_of_param_2 = DDH_NEEDS_PARAM_NORM;
ddh_optimizer_api make_optimizer() {
  ddh_optimizer_api t{};
  t.struct_size = sizeof t;
  t.needs = [](ddh_inst*, int32_t param) noexcept {
    return param == 3 ? DDH_NEEDS_NOTHING : param == 2 ? g_need_of_param_2 : DDH_NEEDS_PARAM_NORM;
  };
  t.slot_count = [](ddh_inst*) noexcept { return 0U; };
  t.update = [](ddh_inst*, const ddh_update_args*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
  t.sum_count = [](ddh_inst*) noexcept { return 2u; };
  t.prepare = [](ddh_inst*, const ddh_prepare_args* args, ddh_err*) noexcept -> ddh_rc {
    const ddh_optim_shard& shard = *args->update->shard;
    const ddh_range& range = shard.ranges[0];
    std::memcpy(args->values[0], shard.master + range.flat_offset, range.numel * sizeof(float));
    std::memcpy(args->values[1], shard.grads[0] + range.flat_offset, range.numel * sizeof(float));
    return DDH_OK;
  };
  return t;
}

struct Model {
  std::vector<ddh_param_desc> params{kNumels.size()};
  std::vector<const ddh_param_desc*> pointers;
  ddh_model_desc desc{};
  Model() {
    const char* names[] = {"big", "scalar", "vector", "free"};
    for (size_t p = 0; p < params.size(); ++p) {
      params[p].struct_size = sizeof(ddh_param_desc);
      params[p].numel = kNumels[p];
      params[p].name = names[p];
      pointers.push_back(&params[p]);
    }
    desc.struct_size = sizeof desc;
    desc.n_params = static_cast<uint32_t>(params.size());
    desc.params = pointers.data();
  }
};

// Ranks are threads; an all_reduce adds under a lock and waits for all.
struct World {
  explicit World(int32_t n) : size(n) {}
  const int32_t size;
  std::mutex mutex;
  std::condition_variable all_here;
  std::vector<int64_t> sum;
  int32_t arrived = 0;
};
struct RankTransport {
  World* world;
  int32_t rank;
};
RankTransport& transport(ddh_inst* inst) { return *reinterpret_cast<RankTransport*>(inst); }

ddh_comm_backend_api make_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return reinterpret_cast<ddh_group*>(transport(i).world); };
  t.group_info = [](ddh_inst* i, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps,
                    ddh_err*) noexcept -> ddh_rc {
    *rank = transport(i).rank;
    *size = transport(i).world->size;
    *caps = 0;
    return DDH_OK;
  };
  t.all_reduce = [](ddh_inst* i, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    World& world = *transport(i).world;
    auto* values = static_cast<int64_t*>(c->recv);
    std::unique_lock lock(world.mutex);
    world.sum.resize(c->count);
    for (uint64_t k = 0; k < c->count; ++k) world.sum[k] += values[k];
    if (++world.arrived == world.size) world.all_here.notify_all();
    world.all_here.wait(lock, [&] { return world.arrived == world.size; });
    std::copy(world.sum.begin(), world.sum.end(), values);
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    std::memcpy(c->recv, c->send, c->count);  // worlds of one rank alone ask for it
    return DDH_OK;
  };
  return t;
}

// Values of all parameters in one flat buffer.
struct Values {
  std::vector<float> master, grad;
  std::vector<ddh_range> ranges;
  Values() {
    uint64_t at = 0;
    for (size_t p = 0; p < kNumels.size(); ++p) {
      ranges.push_back({static_cast<int32_t>(p), 0, 0, at, kNumels[p]});
      at += (kNumels[p] + 63) / 64 * 64;
    }
    std::mt19937 random(3);
    for (uint64_t i = 0; i < at; ++i) {
      master.push_back(std::ldexp(static_cast<float>(random() >> 8), -30 - static_cast<int>(i % 50)));
      grad.push_back(std::ldexp(static_cast<float>(random() >> 8), -20 - static_cast<int>(i % 70)));
    }
  }
  // The ranges cut into pieces of `blocks` 64-element blocks, of which rank r of n takes every n-th.
  [[nodiscard]] std::vector<ddh_range> cut(uint64_t blocks, int32_t rank, int32_t n) const {
    std::vector<ddh_range> out;
    int32_t turn = 0;
    for (const ddh_range& range : ranges)
      for (uint64_t done = 0; done < range.numel; done += blocks * 64, ++turn) {
        if (turn % n != rank) continue;
        out.push_back({range.param, 0, done, range.flat_offset + done, std::min(blocks * 64, range.numel - done)});
      }
    return out;
  }
};

std::vector<double> sums_of(int32_t world_size, uint64_t blocks, bool replicated) {
  const Model model;
  const ddh_optimizer_api optimizer = make_optimizer();
  const ddh_comm_backend_api backend = make_backend();
  Values values;
  World world(world_size);
  std::vector<std::vector<double>> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < world_size; ++r)
    threads.emplace_back([&, r] {
      RankTransport rank{&world, r};
      Clock clock;
      const Comm comm(reinterpret_cast<ddh_inst*>(&rank), &backend, nullptr, clock);
      ParamSums sums(model.desc, nullptr, optimizer, {1, 1, 1, 0});
      const std::vector<ddh_range> ranges = values.cut(blocks, replicated ? 0 : r, replicated ? 1 : world_size);
      const float* grads[] = {values.grad.data()};
      ddh_optim_shard shard{};
      shard.struct_size = sizeof shard;
      shard.n_ranges = static_cast<uint32_t>(ranges.size());
      shard.ranges = ranges.data();
      shard.master = values.master.data();
      shard.grads = grads;
      const ddh_step_block block{};
      const ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block, nullptr, nullptr, nullptr};
      sums.prepare(args, replicated ? Replica{r, world_size} : Replica{});
      sums.agree(comm);
      results[static_cast<size_t>(r)].assign(sums.totals(), sums.totals() + 2 * kNumels.size());
    });
  for (std::thread& t : threads) t.join();
  for (const auto& result : results) CHECK(result == results[0]);
  return results[0];
}

// One rank with a StepCoordinator, decided; `act` is what the strategy does then.
template <class Act>
void after_decide(Act&& act) {
  const Model model;
  const ddh_optimizer_api optimizer = make_optimizer();
  const ddh_comm_backend_api backend = make_backend();
  World world(1);
  RankTransport rank{&world, 0};
  Clock clock;
  const auto& cpu = ddhost::test::cpu_device();
  Device device(ddhost::test::cpu_inst(), cpu, DDH_CAP_HOST_MEMORY, "cpu", 0);
  Memory memory;
  memory.use(device);
  Staging staging(memory);
  const Comm comm(reinterpret_cast<ddh_inst*>(&rank), &backend, nullptr, clock);
  Windows windows(comm, memory, staging, {false, false, 1});
  ddh_program_desc program{};
  const uint8_t trainable[] = {1, 1, 1, 1};
  program.trainable = trainable;
  const ddh_program_desc* programs[] = {&program};
  ddh_model_desc desc = model.desc;
  desc.programs = programs;
  desc.n_programs = 1;
  ddh_unit_desc unit{};
  unit.name = "all";
  const ddh_unit_desc* units[] = {&unit};
  desc.units = units;
  StepCoordinator step(comm, device, windows, desc, {});
  ddh_run_program run_program{};
  run_program.trains = trainable;
  step.set_optimizers({{nullptr, &optimizer, "optimizer"}}, {&run_program, 1});
  step.begin(1, 0, 0.1, 1.0, 1.0);
  MicroMetrics metrics;
  metrics.begin(1, 1);
  metrics.counts(0)[0] = 1;
  step.set_metrics(metrics, {});
  Values values;
  step.add_gradient(values.grad.data(), 0, values.grad.size(), values.ranges);
  step.decide();
  const float* grads[] = {values.grad.data()};
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  shard.n_ranges = static_cast<uint32_t>(values.ranges.size());
  shard.ranges = values.ranges.data();
  shard.master = values.master.data();
  shard.n_grads = 1;
  shard.grads = grads;
  act(step, shard);
}

}  // namespace

TEST_CASE("norms of parameters have the same bits for every cut, world size and number of replicas") {
  const std::vector<double> expected = sums_of(1, 1000, false);
  CHECK(expected[0] > 0);
  CHECK(expected[6] == 0.0);  // a parameter that needs none
  for (const int32_t world : {1, 2, 3, 8})
    for (const uint64_t blocks : {uint64_t{1}, uint64_t{3}, uint64_t{64}}) {
      CHECK(sums_of(world, blocks, false) == expected);
      CHECK(sums_of(world, blocks, true) == expected);
    }
}

TEST_CASE("a parameter that is prepared in part or twice is refused by name") {
  after_decide([](StepCoordinator& step, ddh_optim_shard shard) {
    ddh_range half = shard.ranges[0];
    half.numel = 6400;
    shard.ranges = &half;
    shard.n_ranges = 1;
    step.prepare(shard, 0, 1, nullptr);
    CHECK_THROWS_WITH(step.sum_norms(), Catch::Contains("'big'") && Catch::Contains("6400 of 10000"));
  });
  after_decide([](StepCoordinator& step, const ddh_optim_shard& shard) {
    step.prepare(shard, 0, 1, nullptr);
    step.prepare(shard, 0, 1, nullptr);
    CHECK_THROWS_WITH(step.sum_norms(), Catch::Contains("'big'") && Catch::Contains("20000 of 10000"));
  });
}

TEST_CASE("an update without norms is refused, and one with them succeeds") {
  after_decide([](StepCoordinator& step, const ddh_optim_shard& shard) {
    CHECK_THROWS_WITH(step.update(shard, nullptr), Catch::Contains("'big'") && Catch::Contains("without prepare"));
    step.prepare(shard, 0, 1, nullptr);
    CHECK_THROWS_WITH(step.update(shard, nullptr), Catch::Contains("without prepare and sum_norms"));
    step.sum_norms();
    CHECK_THROWS_WITH(step.prepare(shard, 0, 1, nullptr), Catch::Contains("prepare after sum_norms"));
    CHECK_NOTHROW(step.update(shard, nullptr));
  });
}

TEST_CASE("a piece of a parameter that the optimizer needs as a whole is refused") {
  g_need_of_param_2 = DDH_NEEDS_WHOLE_PARAM;
  after_decide([](StepCoordinator& step, ddh_optim_shard shard) {
    step.prepare(shard, 0, 1, nullptr);
    step.sum_norms();
    CHECK_NOTHROW(step.update(shard, nullptr));
    ddh_range half = shard.ranges[2];
    half.numel = 64;
    shard.ranges = &half;
    shard.n_ranges = 1;
    CHECK_THROWS_WITH(step.update(shard, nullptr),
                      Catch::Contains("'vector' as a whole") && Catch::Contains("64 of its 129"));
  });
  g_need_of_param_2 = DDH_NEEDS_PARAM_NORM;
}

TEST_CASE("a need that this host does not know is refused") {
  g_need_of_param_2 = 3;
  CHECK_THROWS_WITH(after_decide([](StepCoordinator&, const ddh_optim_shard&) {}),
                    Catch::Contains("the need 3 for parameter 'vector'"));
  g_need_of_param_2 = DDH_NEEDS_PARAM_NORM;
}

TEST_CASE("norms on a device that has no exact squares are refused before the first step") {
  const Model model;
  const ddh_optimizer_api optimizer = make_optimizer();
  ddh_device_api table = test::cpu_device();
  ddh_flatops_api flatops = *table.flatops;
  flatops.exact_squares = nullptr;
  table.flatops = &flatops;
  Device device(test::cpu_inst(), table, 0, "bare", 0);
  Memory memory;
  ParamSums sums(model.desc, nullptr, optimizer, {1, 1, 1, 0});
  CHECK_THROWS_WITH(sums.use_device(device, memory), Catch::Contains("'bare' has no exact_squares"));
}

TEST_CASE("an optimizer that needs norms but offers no sums is refused") {
  const Model model;
  ddh_optimizer_api optimizer = make_optimizer();
  optimizer.prepare = nullptr;
  CHECK_THROWS_WITH(ParamSums(model.desc, nullptr, optimizer, {1, 1, 1, 0}), Catch::Contains("fix the plugin"));
}
