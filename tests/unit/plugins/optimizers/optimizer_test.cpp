// SPDX-License-Identifier: Apache-2.0
//
// Optimizer plugins through the C ABI: compared with stored trajectories of torch, and with other divisions of the
// ranges.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "ddh/sdk/kernels/lowp.hpp"
#include "fixtures/harness/same_bits.hpp"
#include "fixtures/harness/throws.hpp"
#include "linked.hpp"
#include "unit/plugins/optimizers/optimizer_reference.hpp"

namespace {

using Case = ddhost::test::OptimizerCase;
using ddhost::test::Numbers;
using ddhost::test::OptimizerFixture;
using ddhost::test::options_of;
using ddhost::test::reference_cases;
using ddhost::test::same_bits;
using ddhost::test::sentence_of;
using ddhost::test::Shard;
using ddhost::test::step_block;
using ddhost::test::Texts;
using ddhost::test::texts_of;

// As in make_optimizer_reference.py.
float reference_value(uint64_t tensor, uint64_t step, uint64_t i) {
  auto n = static_cast<uint32_t>(i * 2654435761u + tensor * 40503u + step * 69069u + 12345u);
  n = n * 1664525u + 1013904223u;
  const float x = static_cast<float>(static_cast<int32_t>(n >> 8) - 8388608) / 8388608.0f;
  return step == 0 ? x : std::ldexp(x, -static_cast<int>(i % 20));
}

ddh_plugin_entry_fn entry_of(const std::string& id) { return kLinked.at(id); }
const Case& last_case(const std::string& id) {
  const auto& cases = reference_cases();
  return *std::find_if(cases.rbegin(), cases.rend(), [&](const Case& c) { return c.optimizer == id; });
}
const Case& first_case(const std::string& id) {
  const auto& cases = reference_cases();
  return *std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.optimizer == id; });
}

Numbers adamw_options() { return options_of(first_case("adamw")); }
Numbers sgd_options() { return options_of(last_case("sgd")); }

std::vector<uint64_t> numels_of(const Case& c) {
  std::vector<uint64_t> numels;
  for (const auto& shape : c.shapes) {
    numels.push_back(1);
    for (const int64_t extent : shape) numels.back() *= static_cast<uint64_t>(extent);
  }
  return numels;
}

void fill_random(std::vector<float>& values, uint32_t seed) {
  std::mt19937 random(seed);
  for (float& value : values) value = std::ldexp(static_cast<float>(random() >> 8), -24) - 0.5f;
}

Shard random_shard(const std::vector<uint64_t>& numels, uint32_t n_slots, uint32_t n_grads) {
  Shard shard(numels, n_slots, n_grads);
  fill_random(shard.master, 1);
  for (uint32_t k = 0; k < n_grads; ++k) fill_random(shard.grads[k], 10 + k);
  for (auto& slot : shard.slots)
    for (float& value : slot) value = 0.25f;
  return shard;
}

}  // namespace

TEST_CASE("every optimizer is compared with a stored trajectory") {
  CHECK(kLinked.contains("adamw"));
  for (const auto& [name, entry] : kLinked) {
    INFO(name << " needs a case in tests/data/make_optimizer_reference.py");
    CHECK(std::any_of(reference_cases().begin(), reference_cases().end(),
                      [&id = name](const Case& c) { return c.optimizer == id; }));
  }
}

TEST_CASE("optimizers follow the fp64 trajectory, with an error near that of torch in fp32") {
  for (const Case& c : reference_cases()) {
    INFO(c.optimizer << " lr " << c.lr << " at " << &c - reference_cases().data());
    const std::vector<uint64_t> numels = numels_of(c);
    const OptimizerFixture optimizer(entry_of(c.optimizer), options_of(c), numels, {}, c.shapes, texts_of(c));
    Shard shard(numels, optimizer.slot_count(), 1);
    const auto fill = [&](std::vector<float>& values, int64_t step) {
      for (size_t t = 0; t < numels.size(); ++t)
        for (uint64_t i = 0; i < numels[t]; ++i)
          values[shard.ranges[t].flat_offset + i] = reference_value(t, static_cast<uint64_t>(step), i);
    };
    fill(shard.master, 0);
    double error = 0;
    std::vector<double> slot_errors(optimizer.slot_count(), 0);
    for (int64_t step = 1; step <= 10; ++step) {
      fill(shard.grads[0], step);
      optimizer.update(shard.view(), step_block(step, c.lr), std::vector<int64_t>(numels.size(), step));
      for (const auto& kept : c.kept) {
        if (kept.step != step) continue;
        REQUIRE(kept.arrays.size() == 1 + optimizer.slot_count());
        size_t at = 0;
        for (const ddh_range& range : shard.ranges)
          for (uint64_t i = 0; i < range.numel; ++i, ++at) {
            const double p = kept.arrays[0].at(at);
            const double dp = shard.master[range.flat_offset + i] - p;
            error = std::max(error, std::abs(dp) / (std::abs(p) + c.lr));
            for (size_t s = 0; s < slot_errors.size(); ++s)
              slot_errors[s] =
                  std::max(slot_errors[s], std::abs(shard.slots[s][range.flat_offset + i] - kept.arrays[1 + s].at(at)));
          }
      }
    }
    // The largest gradient is just below 1. torch fuses multiply and add on some paths, we nowhere (equal bits at every
    // width), so ours may stray three times as far as its fp32 run, and by one rounding where that hits exactly.
    CAPTURE(error, c.peer_fp32_error);
    CHECK(error <= 1e-6);
    CHECK(error <= std::max(3 * c.peer_fp32_error, 6e-8));
    for (size_t s = 0; s < slot_errors.size(); ++s) {
      CAPTURE(s);
      CHECK(slot_errors[s] <= 1e-6);
      CHECK(slot_errors[s] <= std::max(3 * c.peer_fp32_slot_errors[s], 6e-8));
    }
  }
}

TEST_CASE("an optimizer gives the same bits however its elements are cut into ranges") {
  const std::vector<uint64_t> numels = {5000, 1, 129, 64};
  for (const Case& c : reference_cases())
    for (const uint32_t n_grads : {1u, 2u, 3u, 5u}) {
      INFO(c.optimizer << " with " << n_grads << " gradient sources");
      const OptimizerFixture optimizer(entry_of(c.optimizer), options_of(c), numels, {}, {}, texts_of(c));
      Shard whole = random_shard(numels, optimizer.slot_count(), n_grads);
      Shard cut = whole;
      std::mt19937 random(7);
      cut.ranges.clear();
      for (const ddh_range& range : whole.ranges)
        for (uint64_t done = 0; done < range.numel;) {
          const uint64_t n = std::min<uint64_t>(64 * (1 + random() % 20), range.numel - done);
          cut.ranges.push_back({range.param, 0, done, range.flat_offset + done, n});
          done += n;
        }
      std::shuffle(cut.ranges.begin(), cut.ranges.end(), random);
      for (int64_t step = 1; step <= 3; ++step)
        for (Shard* shard : {&whole, &cut})
          optimizer.update(shard->view(DDH_BF16), step_block(step, 0.01), std::vector<int64_t>(4, step));
      CHECK(same_bits(whole.master, cut.master));
      CHECK(whole.lowp == cut.lowp);
      for (uint32_t s = 0; s < optimizer.slot_count(); ++s) CHECK(same_bits(whole.slots[s], cut.slots[s]));
    }
}

TEST_CASE("the sum of gradient sources is taken in their order") {
  const std::vector<uint64_t> numels = {3000};
  for (const uint32_t n_grads : {2u, 3u, 4u, 7u}) {
    const OptimizerFixture optimizer(ddh_entry_adamw, adamw_options(), numels);
    Shard many = random_shard(numels, 2, n_grads);
    Shard one = random_shard(numels, 2, 1);
    for (uint32_t k = 1; k < n_grads; ++k)
      for (size_t i = 0; i < one.master.size(); ++i) one.grads[0][i] += many.grads[k][i];
    optimizer.update(many.view(), step_block(1, 0.01), {1});
    optimizer.update(one.view(), step_block(1, 0.01), {1});
    CHECK(same_bits(many.master, one.master));
    CHECK(same_bits(many.slots[1], one.slots[1]));
  }
}

TEST_CASE("a skipped step changes nothing, and a step does not change padding") {
  const std::vector<uint64_t> numels = {7, 65};
  const OptimizerFixture optimizer(ddh_entry_adamw, adamw_options(), numels);
  Shard shard = random_shard(numels, 2, 1);
  const Shard before = shard;
  ddh_step_block block = step_block(1, 0.01);
  block.skip = 1;
  optimizer.update(shard.view(DDH_F16), block, {1, 1});
  CHECK(same_bits(shard.master, before.master));
  CHECK(same_bits(shard.slots[0], before.slots[0]));
  CHECK(shard.lowp == before.lowp);
  block.skip = 0;
  optimizer.update(shard.view(DDH_F16), block, {1, 1});
  for (size_t i = 0; i < shard.master.size(); ++i) {
    const bool inside = i < 7 || (i >= 64 && i < 64 + 65);
    CHECK((shard.master[i] != before.master[i]) == inside);
    CHECK((shard.slots[0][i] != before.slots[0][i]) == inside);
    CHECK((shard.lowp[i] != before.lowp[i]) == inside);
  }
}

TEST_CASE("the low-precision copy is the rounded master") {
  const std::vector<uint64_t> numels = {333};
  for (const Case& c : reference_cases()) {
    INFO(c.optimizer);
    const OptimizerFixture optimizer(entry_of(c.optimizer), options_of(c), numels, {}, {{9, 37}}, texts_of(c));
    Shard bf16 = random_shard(numels, optimizer.slot_count(), 2);
    Shard f16 = bf16;
    optimizer.update(bf16.view(DDH_BF16), step_block(1, 0.01), {1});
    optimizer.update(f16.view(DDH_F16), step_block(1, 0.01), {1});
    CHECK(same_bits(bf16.master, f16.master));
    for (size_t i = 0; i < numels[0]; ++i) {
      CHECK(bf16.lowp[i] == ddh::Bf16::from_f32(bf16.master[i]));
      CHECK(f16.lowp[i] == ddh::F16::from_f32(f16.master[i]));
    }
  }
}

TEST_CASE("unscale and clip multiply the gradient once") {
  const std::vector<uint64_t> numels = {100};
  const OptimizerFixture optimizer(ddh_entry_sgd, sgd_options(), numels);
  Shard scaled = random_shard(numels, 1, 1);
  Shard plain = scaled;
  ddh_step_block block = step_block(1, 0.1);
  block.inv_scale = 1.0 / 3;
  block.clip_factor = 0.7;
  for (float& g : plain.grads[0]) g *= static_cast<float>((1.0 / 3) * 0.7);
  optimizer.update(scaled.view(), block, {1});
  optimizer.update(plain.view(), step_block(1, 0.1), {1});
  CHECK(same_bits(scaled.master, plain.master));
}

TEST_CASE("each optimizer clips the mean gradient to clip_value, for any number of sources") {
  const std::vector<uint64_t> numels = {5000};
  for (const Case& c : reference_cases()) {
    for (const uint32_t n_grads : {1u, 2u, 4u}) {
      INFO(c.optimizer << " with " << n_grads << " gradient sources");
      const OptimizerFixture optimizer(entry_of(c.optimizer), options_of(c), numels, {}, {{50, 100}}, texts_of(c));
      Shard bounded = random_shard(numels, optimizer.slot_count(), n_grads);
      Shard plain = random_shard(numels, optimizer.slot_count(), 1);
      plain.master = bounded.master;
      plain.slots = bounded.slots;
      for (size_t i = 0; i < numels[0]; ++i) {
        float sum = bounded.grads[0][i];
        for (uint32_t k = 1; k < n_grads; ++k) sum += bounded.grads[k][i];
        plain.grads[0][i] = std::clamp(sum * 0.25f, -0.1f, 0.1f);
      }
      ddh_step_block block = step_block(1, 0.01);
      block.inv_scale = 0.25;
      block.clip_value = 0.1;
      optimizer.update(bounded.view(), block, {1});
      optimizer.update(plain.view(), step_block(1, 0.01), {1});
      CHECK(same_bits(bounded.master, plain.master));
      for (uint32_t slot = 0; slot < optimizer.slot_count(); ++slot)
        CHECK(same_bits(bounded.slots[slot], plain.slots[slot]));
    }
  }
}

TEST_CASE("a step block that is too short or of a newer version is refused") {
  const std::vector<uint64_t> numels = {100};
  const OptimizerFixture optimizer(ddh_entry_sgd, sgd_options(), numels);
  Shard shard = random_shard(numels, 1, 1);
  ddh_step_block block = step_block(1, 0.1);
  block.struct_size = offsetof(ddh_step_block, clip_value);
  CHECK_THAT(sentence_of([&] { optimizer.update(shard.view(), block, {1}); }), Catch::Contains("ddh_step_block"));
}

TEST_CASE("parameters marked no_decay have no weight decay unless decay_groups is off") {
  const std::vector<uint64_t> numels = {64, 64};
  for (const bool groups : {true, false}) {
    Numbers options = adamw_options();
    options["decay_groups"] = {groups ? 1.0 : 0.0};
    const OptimizerFixture optimizer(ddh_entry_adamw, options, numels, {DDH_PARAM_NO_DECAY, 0});
    Shard shard(numels, 2, 1);
    for (float& p : shard.master) p = 1.0f;
    optimizer.update(shard.view(), step_block(1, 0.1), {1, 1});  // gradients are zero: only decay moves a parameter
    CHECK(shard.master[0] == (groups ? 1.0f : static_cast<float>(1 - 0.1 * 0.01)));
    CHECK(shard.master[64] == static_cast<float>(1 - 0.1 * 0.01));
  }
}

TEST_CASE("each parameter's own step count enters its bias correction") {
  const std::vector<uint64_t> numels = {64, 64};
  Numbers options = adamw_options();
  options["weight_decay"] = {0.0};
  const OptimizerFixture optimizer(ddh_entry_adamw, options, numels);
  Shard shard(numels, 2, 1);
  for (float& g : shard.grads[0]) g = 0.5f;
  optimizer.update(shard.view(), step_block(9, 0.1), {1, 9});
  CHECK(shard.master[0] == Approx(-0.1).epsilon(1e-6));  // the first update of Adam moves by lr
  const double m = 0.1 * 0.5 / (1 - std::pow(0.9, 9));
  const double v = 0.001 * 0.25 / (1 - std::pow(0.999, 9));
  CHECK(shard.master[64] == Approx(-0.1 * m / std::sqrt(v)).epsilon(1e-5));
}

TEST_CASE("without bias correction adam and adamw take the moments as they are") {
  const std::vector<uint64_t> numels = {64};
  Numbers options = adamw_options();
  options["weight_decay"] = {0.0};
  options["bias_correction"] = {0};
  for (const std::string id : {"adam", "adamw"}) {
    const OptimizerFixture optimizer(entry_of(id), options, numels);
    Shard shard(numels, 2, 1);
    for (float& g : shard.grads[0]) g = 0.5f;
    optimizer.update(shard.view(), step_block(1, 0.1), {1});
    const double m = 0.1 * 0.5, v = 0.001 * 0.25;
    CHECK(shard.master[0] == Approx(-0.1 * m / std::sqrt(v)).epsilon(1e-5));
  }
}

TEST_CASE("adam decays in the gradient where adamw decays the parameter") {
  const std::vector<uint64_t> numels = {64};
  Numbers options = adamw_options();
  options["weight_decay"] = {0.5};
  for (const std::string id : {"adam", "adamw"}) {
    const OptimizerFixture optimizer(entry_of(id), options, numels);
    Shard shard(numels, 2, 1);
    for (float& p : shard.master) p = 2.0f;
    optimizer.update(shard.view(), step_block(1, 0.1), {1});
    // Gradients are zero. L2 makes one of 1, whose first update is lr; decoupled decay takes lr weight_decay p.
    CHECK(shard.master[0] == Approx(id == "adam" ? 2.0 - 0.1 : 2.0 - 0.1 * 0.5 * 2.0).epsilon(1e-6));
    CHECK(shard.slots[0][0] == Approx(id == "adam" ? 0.1 : 0.0));
  }
}

TEST_CASE("lion changes every element by the learning rate, and does not change one without gradient and momentum") {
  const std::vector<uint64_t> numels = {64};
  const OptimizerFixture optimizer(ddh_entry_lion, options_of(last_case("lion")), numels);
  Shard shard(numels, 1, 1);
  shard.grads[0][0] = 1e-30f;
  shard.grads[0][1] = -1e30f;
  shard.grads[0][3] = std::nanf("");
  optimizer.update(shard.view(), step_block(1, 0.25), {1});
  CHECK(shard.master[0] == -0.25f);
  CHECK(shard.master[1] == 0.25f);
  CHECK(shard.master[2] == 0.0f);
  CHECK(std::isnan(shard.master[3]));
}

TEST_CASE("lamb changes each parameter in proportion to its norm, within the limits of the trust ratio") {
  const std::vector<uint64_t> numels = {64, 64, 64, 64};
  Numbers options = options_of(first_case("lamb"));
  options["max_coeff"] = {3.0};
  const OptimizerFixture optimizer(ddh_entry_lamb, options, numels);
  Shard shard(numels, 2, 1);
  const std::vector<float> starts = {2.0f, 5.0f, 0.0f, 1e-6f};
  for (size_t t = 0; t < starts.size(); ++t)
    for (size_t i = 0; i < 64; ++i) {
      shard.master[64 * t + i] = starts[t];
      shard.grads[0][64 * t + i] = 0.25f;
    }
  optimizer.update(shard.view(), step_block(1, 0.1), {1, 1, 1, 1});
  // The first direction of Adam is 1 everywhere, so the trust ratio is the parameter's value.
  CHECK(shard.master[0] == Approx(2.0 - 0.1 * 2.0).epsilon(1e-6));
  CHECK(shard.master[64] == Approx(5.0 - 0.1 * 3.0).epsilon(1e-6));
  CHECK(shard.master[128] == Approx(-0.1).epsilon(1e-6));  // zero length: ratio 1
  CHECK(shard.master[192] == Approx(1e-6 - 0.1 * 0.01).epsilon(1e-6));
}

TEST_CASE("adagrad's sums start at a parameter's first update") {
  const std::vector<uint64_t> numels = {64};
  Numbers options = options_of(first_case("adagrad"));
  options["initial_accumulator_value"] = {9.0};
  const OptimizerFixture optimizer(ddh_entry_adagrad, options, numels);
  Shard shard(numels, 1, 1);
  for (float& g : shard.grads[0]) g = 4.0f;
  optimizer.update(shard.view(), step_block(1, 1.0), {1});
  CHECK(shard.slots[0][0] == 25.0f);
  CHECK(shard.master[0] == Approx(-4.0 / 5.0));
  optimizer.update(shard.view(), step_block(2, 1.0), {2});
  CHECK(shard.slots[0][0] == 41.0f);
}

TEST_CASE("slots are named, and sgd without momentum has none") {
  const OptimizerFixture adamw(ddh_entry_adamw, adamw_options(), {1});
  REQUIRE(adamw.slot_count() == 2);
  CHECK(std::string(adamw.slot(0).name) == "exp_avg");
  CHECK(std::string(adamw.slot(1).name) == "exp_avg_sq");
  CHECK(adamw.slot(1).extent == DDH_SLOT_PER_ELEMENT);
  CHECK_THROWS_AS(adamw.slot(2), ddh::Error);
  const OptimizerFixture sgd(ddh_entry_sgd, sgd_options(), {1});
  REQUIRE(sgd.slot_count() == 1);
  CHECK(std::string(sgd.slot(0).name) == "momentum_buffer");
  Numbers plain = sgd_options();
  plain["momentum"] = {0.0};
  plain["nesterov"] = {0.0};
  CHECK(OptimizerFixture(ddh_entry_sgd, plain, {1}).slot_count() == 0);
}

TEST_CASE("muon needs whole matrices and leaves vectors, sparse gradients and listed names to adamw") {
  const Case& c = first_case("muon");
  Texts texts = texts_of(c);
  const auto muon = [&](const std::vector<uint32_t>& attributes) {
    return std::make_unique<OptimizerFixture>(ddh_entry_muon, options_of(c), std::vector<uint64_t>{12, 12, 24},
                                              attributes, std::vector<std::vector<int64_t>>{{3, 4}, {12}, {2, 3, 4}},
                                              texts);
  };
  const auto optimizer = muon({0, 0, 0});
  CHECK(optimizer->needs(0) == DDH_NEEDS_WHOLE_PARAM);
  CHECK(optimizer->needs(1) == DDH_NEEDS_NOTHING);
  CHECK(optimizer->needs(2) == DDH_NEEDS_WHOLE_PARAM);
  CHECK((optimizer->slot_used(0, 0) && !optimizer->slot_used(1, 0) && !optimizer->slot_used(2, 0)));
  CHECK((!optimizer->slot_used(0, 1) && optimizer->slot_used(1, 1) && optimizer->slot_used(2, 1)));
  CHECK(muon({DDH_PARAM_SPARSE_GRAD, 0, 0})->needs(0) == DDH_NEEDS_NOTHING);
  for (const auto& [patterns, needs] : {std::pair{"*", DDH_NEEDS_NOTHING},
                                        {"x,w", DDH_NEEDS_NOTHING},
                                        {"x,?", DDH_NEEDS_NOTHING},
                                        {"x,ww", DDH_NEEDS_WHOLE_PARAM},
                                        {"", DDH_NEEDS_WHOLE_PARAM}}) {
    texts["adamw_params"] = patterns;  // the fixture's parameters are all called w
    CHECK(muon({0, 0, 0})->needs(0) == needs);
  }
}

TEST_CASE("muon refuses a piece of a matrix") {
  const Case& c = first_case("muon");
  const OptimizerFixture optimizer(ddh_entry_muon, options_of(c), {128}, {}, {{2, 64}}, texts_of(c));
  Shard shard({128}, 3, 1);
  shard.ranges[0].numel = 64;
  CHECK_THROWS_WITH(optimizer.update(shard.view(), step_block(1, 0.1), {1}), Catch::Contains("64 of 128"));
}

TEST_CASE("invalid options are refused with a sentence") {
  Numbers sgd = sgd_options();
  sgd["momentum"] = {0.0};
  CHECK_THROWS_WITH(OptimizerFixture(ddh_entry_sgd, sgd, {1}), Catch::Contains("optimizer.nesterov needs momentum"));
  Numbers adamw = adamw_options();
  adamw["betas"] = {0.9, 1.0};
  CHECK_THROWS_WITH(OptimizerFixture(ddh_entry_adamw, adamw, {1}), Catch::Contains("optimizer.betas"));
  Numbers lamb = options_of(first_case("lamb"));
  lamb["min_coeff"] = {20.0};
  CHECK_THROWS_WITH(OptimizerFixture(ddh_entry_lamb, lamb, {1}), Catch::Contains("optimizer.min_coeff"));
  const OptimizerFixture optimizer(ddh_entry_adamw, adamw_options(), {64});
  Shard shard({64}, 1, 1);
  CHECK_THROWS_WITH(optimizer.update(shard.view(), step_block(1, 0.1), {1}), Catch::Contains("optimizer slots"));
}
