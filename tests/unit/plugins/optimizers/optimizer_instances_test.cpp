// SPDX-License-Identifier: Apache-2.0
//
// The step of a rank with several optimizers and with factors on the learning rate, by real plugins: each update is the
// one that the plugin makes when it is called alone.
#include <catch2/catch.hpp>
#include <cstring>

#include "engine/services/optim/step_coordinator.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "unit/plugins/optimizers/optimizer_fixture.hpp"

using namespace ddhost;
using namespace ddhost::test;

extern "C" ddh_rc ddh_entry_adam(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
extern "C" ddh_rc ddh_entry_adamw(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
extern "C" ddh_rc ddh_entry_sgd(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;

namespace {

const Numbers kAdamW = {{"lr", {0.1}},           {"betas", {0.9, 0.99}}, {"eps", {1e-8}},
                        {"weight_decay", {0.1}}, {"decay_groups", {0}},  {"bias_correction", {1}}};
const Numbers kAdam = {{"lr", {0.1}},         {"betas", {0.8, 0.95}}, {"eps", {1e-8}},
                       {"weight_decay", {0}}, {"decay_groups", {0}},  {"bias_correction", {1}}};
const Numbers kSgd = {{"lr", {0.1}},           {"momentum", {0}},     {"dampening", {0}},      {"nesterov", {0}},
                      {"weight_decay", {0.1}}, {"decay_groups", {0}}, {"bias_correction", {1}}};
const std::vector<uint64_t> kNumels = {100, 64, 30};

// A world of one rank.
ddh_comm_backend_api make_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst*) noexcept -> ddh_group* { return nullptr; };
  t.group_info = [](ddh_inst*, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept -> ddh_rc {
    *rank = 0;
    *size = 1;
    *caps = 0;
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    std::memcpy(c->recv, c->send, c->count);
    return DDH_OK;
  };
  return t;
}

// A model of programs with masks and optimizers, and a StepCoordinator on it.
class OneRank {
 public:
  struct Program {
    int32_t optimizer;
    std::vector<uint8_t> trains;
  };
  OneRank(std::vector<Program> programs, const std::vector<double>& lr_scales) : programs_(std::move(programs)) {
    params_.resize(kNumels.size());
    for (size_t p = 0; p < params_.size(); ++p) {
      params_[p].struct_size = sizeof(ddh_param_desc);
      params_[p].name = "w";
      params_[p].numel = kNumels[p];
      params_[p].lr_scale = lr_scales[p];
      param_pointers_.push_back(&params_[p]);
    }
    descs_.resize(programs_.size());
    for (size_t g = 0; g < programs_.size(); ++g) {
      descs_[g].name = g == 0 ? "first" : "second";
      descs_[g].optimizer = programs_[g].optimizer;
      program_pointers_.push_back(&descs_[g]);
      runs_.push_back({sizeof(ddh_run_program), static_cast<int32_t>(g), nullptr, 0, 0, 1, programs_[g].trains.data()});
    }
    model_.n_params = static_cast<uint32_t>(params_.size());
    model_.params = param_pointers_.data();
    model_.n_programs = static_cast<uint32_t>(descs_.size());
    model_.programs = program_pointers_.data();
    memory_.use(device_);
    step_.emplace(comm_, device_, windows_, model_, StepSettings{});
  }
  StepCoordinator& step() { return *step_; }
  void set(const std::vector<OptimizerRef>& refs) { step_->set_optimizers(refs, runs_); }
  // Up to decide, with a mean over one target.
  void begin(int64_t step, int32_t program, double lr) {
    step_->begin(step, program, lr, 1.0, 1.0);
    count_gradients(program);
    metrics_.begin(1, 1);
    metrics_.counts(0)[0] = 1;
    step_->set_metrics(metrics_, {});
    step_->decide();
  }

 private:
  // Zeros, for every element that the program trains: decide asks for each of them once.
  void count_gradients(int32_t program) {
    const std::span<const uint8_t> trained = step_->optimizers().trained_by(program);
    for (uint32_t p = 0; p < model_.n_params; ++p) {
      if (trained[p] == 0) continue;
      const std::vector<float> zeros(model_.params[p]->numel);
      const ddh_range range{static_cast<int32_t>(p), 0, 0, 0, zeros.size()};
      step_->add_gradient(zeros.data(), 0, zeros.size(), {&range, 1});
    }
  }

  MicroMetrics metrics_;
  std::vector<Program> programs_;
  std::vector<ddh_param_desc> params_;
  std::vector<const ddh_param_desc*> param_pointers_;
  std::vector<ddh_program_desc> descs_;
  std::vector<const ddh_program_desc*> program_pointers_;
  std::vector<ddh_run_program> runs_;
  ddh_model_desc model_{};
  const ddh_comm_backend_api backend_ = make_backend();
  Clock clock_;
  Device device_{ddhost::test::cpu_inst(), ddhost::test::cpu_device(), DDH_CAP_HOST_MEMORY, "cpu", 0};
  Memory memory_;
  Staging staging_{memory_};
  Comm comm_{nullptr, &backend_, nullptr, clock_};
  Windows windows_{comm_, memory_, staging_, {false, false, 1}};
  std::optional<StepCoordinator> step_;
};

// Values and gradients that differ by element.
Shard filled(uint32_t n_slots) {
  Shard shard(kNumels, n_slots, 1);
  for (size_t i = 0; i < shard.master.size(); ++i) {
    shard.master[i] = 0.01F * static_cast<float>(i % 37) - 0.1F;
    shard.grads[0][i] = 0.02F * static_cast<float>(i % 23) - 0.2F;
  }
  return shard;
}

}  // namespace

TEST_CASE("a factor on the learning rate has the effect of a parameter group of torch with that rate", "[instances]") {
  const std::vector<double> factors = {5, 0, 0.25};  // 0: 1
  const auto [entry, options, n_slots] = GENERATE(
      table<ddh_plugin_entry_fn, Numbers, uint32_t>({{ddh_entry_adamw, kAdamW, 2U}, {ddh_entry_sgd, kSgd, 0U}}));
  const OptimizerFixture optimizer(entry, options, kNumels), alone(entry, options, kNumels);
  OneRank rank({{0, {1, 1, 1}}}, factors);
  rank.set({{optimizer.inst(), &optimizer.table(), "optimizer"}});
  Shard mine = filled(n_slots), expected = filled(n_slots);
  for (int64_t step = 1; step <= 3; ++step) {
    rank.begin(step, 0, 0.1);
    rank.step().update(mine.view(), nullptr);
    // A group of its own for each parameter, with a rate of its own.
    for (size_t p = 0; p < kNumels.size(); ++p) {
      ddh_optim_shard group = expected.view();
      group.ranges += p;
      group.n_ranges = 1;
      alone.update(group, step_block(step, 0.1 * (factors[p] == 0 ? 1 : factors[p])), {step, step, step});
    }
    CHECK(mine.master == expected.master);
    CHECK(mine.slots == expected.slots);
  }
  CHECK(rank.step().block().lr == 0.1);  // what metrics show
}

TEST_CASE("decoupled decay by the formula of torch.optim.AdamW: p (1 - factor lr decay)", "[instances]") {
  const OptimizerFixture optimizer(ddh_entry_adamw, kAdamW, kNumels);
  OneRank rank({{0, {1, 1, 1}}}, {5, 1, 1});
  rank.set({{optimizer.inst(), &optimizer.table(), "optimizer"}});
  Shard shard = filled(2);
  shard.grads[0].assign(shard.grads[0].size(), 0.0F);
  const std::vector<float> before = shard.master;
  rank.begin(1, 0, 0.1);
  rank.step().update(shard.view(), nullptr);
  for (size_t i = 0; i < kNumels[0]; ++i) CHECK(shard.master[i] == before[i] * static_cast<float>(1 - 5 * 0.1 * 0.1));
  for (size_t i = 128; i < 192; ++i) CHECK(shard.master[i] == before[i] * static_cast<float>(1 - 0.1 * 0.1));
}

TEST_CASE("two Adams over shared parameters have their own slots and step counts", "[instances]") {
  const OptimizerFixture first(ddh_entry_adamw, kAdamW, kNumels), second(ddh_entry_adam, kAdam, kNumels),
      first_alone(ddh_entry_adamw, kAdamW, kNumels), second_alone(ddh_entry_adam, kAdam, kNumels);
  OneRank rank({{0, {1, 1, 0}}, {1, {0, 1, 1}}}, {0, 0, 0});
  rank.set({{first.inst(), &first.table(), "optimizer"}, {second.inst(), &second.table(), "optimizer_kg"}});
  const Optimizers& all = rank.step().optimizers();
  REQUIRE(all.slot_count() == 4);
  CHECK(std::string(all.slot(1).name) == "exp_avg_sq");
  CHECK(std::string(all.slot(2).name) == "kg.exp_avg");
  CHECK_THROWS_WITH(all.slot(4), Catch::Contains("there are 4"));
  for (const uint32_t slot : {0U, 1U}) {
    CHECK(all.slot_used(slot, 0));
    CHECK(all.slot_used(slot, 1));
    CHECK_FALSE(all.slot_used(slot, 2));
    CHECK_FALSE(all.slot_used(slot + 2, 0));
    CHECK(all.slot_used(slot + 2, 1));
    CHECK(all.slot_used(slot + 2, 2));
  }
  Shard mine = filled(4), expected = filled(4);
  std::vector<int64_t> updates(2, 0);
  for (const int32_t program : {0, 1, 1, 0, 1}) {
    const auto o = static_cast<size_t>(program);
    const int64_t t = ++updates[o];
    ddh_optim_shard given = mine.view(), alone = expected.view();
    given.ranges += program;  // what the program trains
    alone.ranges += program;
    given.n_ranges = alone.n_ranges = 2;
    alone.slots += 2 * o;
    alone.n_slots = 2;
    rank.begin(updates[0] + updates[1], program, 0.1);
    rank.step().update(given, nullptr);
    (program == 0 ? first_alone : second_alone).update(alone, step_block(1, 0.1), {t, t, t});
    CHECK(mine.master == expected.master);
    CHECK(mine.slots == expected.slots);
  }
}

TEST_CASE("a strategy that leaves out a slot, or updates what the program does not train, is refused", "[instances]") {
  const OptimizerFixture first(ddh_entry_adamw, kAdamW, kNumels), second(ddh_entry_adam, kAdam, kNumels);
  OneRank rank({{0, {1, 1, 0}}, {1, {0, 1, 1}}}, {0, 0, 0});
  rank.set({{first.inst(), &first.table(), "optimizer"}, {second.inst(), &second.table(), "optimizer_kg"}});
  Shard values = filled(4);
  rank.begin(1, 1, 0.1);
  CHECK_THROWS_WITH(rank.step().update(values.view(), nullptr), Catch::Contains("program 'second' does not train"));
  ddh_optim_shard shard = values.view();
  shard.ranges += 1;
  shard.n_ranges = 2;
  values.slot_pointers[0] = nullptr;  // of the other instance
  CHECK_NOTHROW(rank.step().update(shard, nullptr));
  values.slot_pointers[3] = nullptr;
  CHECK_THROWS_WITH(rank.step().update(shard, nullptr), Catch::Contains("'kg.exp_avg_sq'"));
  shard.n_slots = 2;
  CHECK_THROWS_WITH(rank.step().update(shard, nullptr), Catch::Contains("2 slots, but the optimizer has 4"));
}
