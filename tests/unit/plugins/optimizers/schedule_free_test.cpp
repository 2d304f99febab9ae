// SPDX-License-Identifier: Apache-2.0
//
// sdk/examples/schedule_free through the C ABI, compared with AdamWScheduleFree as it is published, which keeps z and y and
// computes x where it is evaluated (facebookresearch/schedule_free; here in fp64).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "unit/plugins/optimizers/optimizer_fixture.hpp"

extern "C" ddh_rc ddh_entry_schedule_free(const ddh_host* host, const ddh_module** out, ddh_err* err) noexcept;

namespace {

using namespace ddhost::test;

struct Settings {
  double lr = 0.0025, beta = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  int64_t warmup_steps = 0;
};

// One group of parameters.
class Published {
 public:
  Published(Settings settings, std::vector<double> weights)
      : set_(settings), y(weights), z(weights), v_(weights.size()) {}

  void step(const std::vector<double>& gradient) {
    const double sched =
        k_ < set_.warmup_steps ? static_cast<double>(k_ + 1) / static_cast<double>(set_.warmup_steps) : 1;
    const double lr = set_.lr * sched * std::sqrt(1 - std::pow(set_.beta2, static_cast<double>(k_ + 1)));
    lr_max_ = std::max(lr, lr_max_);
    const double weight = lr_max_ * lr_max_;
    weight_sum_ += weight;
    const double ckp1 = weight_sum_ == 0 ? 0 : weight / weight_sum_;
    for (size_t i = 0; i < y.size(); ++i) {
      v_[i] = v_[i] * set_.beta2 + gradient[i] * gradient[i] * (1 - set_.beta2);
      const double normalized = gradient[i] / (std::sqrt(v_[i]) + set_.eps) + y[i] * set_.decay;
      y[i] += ckp1 * (z[i] - y[i]);
      y[i] += normalized * (lr * (set_.beta * (1 - ckp1) - 1));
      z[i] -= normalized * lr;
    }
    ++k_;
  }
  [[nodiscard]] double x(size_t i) const { return y[i] + (1 - 1 / set_.beta) * (z[i] - y[i]); }

 private:
  const Settings set_;

 public:
  std::vector<double> y, z;

 private:
  std::vector<double> v_;
  int64_t k_ = 0;
  double lr_max_ = -1, weight_sum_ = 0;
};

Numbers options_of(const Settings& s) {
  return {{"lr", {s.lr}},       {"beta", {s.beta}},          {"beta2", {s.beta2}},
          {"eps", {s.eps}},     {"weight_decay", {s.decay}}, {"warmup_steps", {static_cast<double>(s.warmup_steps)}},
          {"decay_groups", {1}}};
}

// A gradient that depends on the weights, as in a training, and noise.
double gradient_of(double weight, size_t i, int64_t step) {
  const double noise = std::sin(12.9898 * static_cast<double>(i + 1) + 78.233 * static_cast<double>(step));
  return 0.3 * (weight - std::cos(static_cast<double>(i))) + 0.5 * noise;
}

}  // namespace

TEST_CASE("schedule_free makes 100 steps of the published AdamWScheduleFree") {
  const Settings settings = GENERATE(Settings{}, Settings{.lr = 0.01, .decay = 0.1, .warmup_steps = 10},
                                     Settings{.lr = 0.02, .beta = 0.95, .beta2 = 0.99, .warmup_steps = 150});
  constexpr uint64_t kNumel = 200;
  const OptimizerFixture optimizer(&ddh_entry_schedule_free, options_of(settings), {kNumel});
  Shard shard({kNumel}, optimizer.slot_count(), 1);
  std::vector<double> first(kNumel);
  for (size_t i = 0; i < kNumel; ++i) {
    shard.master[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    first[i] = static_cast<double>(shard.master[i]);
  }
  Published published(settings, first);
  for (int64_t step = 1; step <= 100; ++step) {
    std::vector<double> gradient(kNumel);
    for (size_t i = 0; i < kNumel; ++i) {
      shard.grads[0][i] = static_cast<float>(gradient_of(published.y[i], i, step));
      gradient[i] = static_cast<double>(shard.grads[0][i]);
    }
    ddh_optim_shard view = shard.view(), nothing = view;
    nothing.n_ranges = 0;
    const ddh_step_block block = step_block(step, settings.lr);
    optimizer.update(nothing, block, {step});  // it sets the numbers
    optimizer.update(view, block, {step});
    published.step(gradient);
  }
  std::vector<float> shown(shard.master.size());
  const ddh_optim_shard view = shard.view();
  ddh::call(optimizer.table().show, optimizer.inst(), &view, shown.data());
  double y_error = 0, x_error = 0, moved = 0, apart = 0;
  for (size_t i = 0; i < kNumel; ++i) {
    y_error = std::max(y_error, std::abs(static_cast<double>(shard.master[i]) - published.y[i]));
    x_error = std::max(x_error, std::abs(static_cast<double>(shown[i]) - published.x(i)));
    moved = std::max(moved, std::abs(published.y[i] - first[i]));
    apart = std::max(apart, std::abs(published.x(i) - published.y[i]));
  }
  CAPTURE(y_error, x_error);
  CHECK(y_error <= 1e-5);
  CHECK(x_error <= 1e-5);
  CHECK(moved > 0.05);
  CHECK(apart > 1e-3);
}

TEST_CASE("schedule_free's numbers go on from a checkpoint, and stay in a step that is skipped") {
  const Settings settings{.lr = 0.01, .warmup_steps = 5};
  const auto numbers = [](const OptimizerFixture& optimizer) {
    std::map<std::string, double*> all;
    for (uint32_t i = 0; i < optimizer.table().number_count(optimizer.inst()); ++i) {
      ddh_optimizer_number one{};
      one.struct_size = sizeof one;
      ddh::call(optimizer.table().number, optimizer.inst(), i, &one);
      all[one.name] = one.value;
    }
    return all;
  };
  const OptimizerFixture whole(&ddh_entry_schedule_free, options_of(settings), {64}),
      resumed(&ddh_entry_schedule_free, options_of(settings), {64});
  Shard shard({64}, whole.slot_count(), 1);
  ddh_optim_shard nothing = shard.view();
  nothing.n_ranges = 0;
  for (int64_t step = 1; step <= 4; ++step) whole.update(nothing, step_block(step, 0.01), {step});
  ddh_step_block skipped = step_block(5, 0.01);
  skipped.skip = 1;
  const double before = *numbers(whole).at("weight_sum");
  whole.update(nothing, skipped, {4});
  CHECK(*numbers(whole).at("weight_sum") == before);
  for (const auto& [name, value] : numbers(whole)) *numbers(resumed).at(name) = *value;
  for (const OptimizerFixture* one : {&whole, &resumed}) one->update(nothing, step_block(6, 0.01), {5});
  for (const auto& [name, value] : numbers(whole)) CHECK(*numbers(resumed).at(name) == *value);
}
