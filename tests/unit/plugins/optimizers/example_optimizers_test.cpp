// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of sdk/examples that have state of other sizes, against references in double: adamw8bit against AdamW, its
// codes against their definition, soap against algorithm 3 of its paper.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "unit/plugins/optimizers/optimizer_fixture.hpp"

using namespace ddhost::test;

extern "C" ddh_rc ddh_entry_adamw8bit(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;
extern "C" ddh_rc ddh_entry_soap(const ddh_host*, const ddh_module**, ddh_err*) DDH_NX;

namespace {

Numbers adamw8bit_options(double beta1, double beta2) {
  return {{"lr", {0.01}},          {"betas", {beta1, beta2}}, {"eps", {1e-8}},     {"bias_correction", {1}},
          {"weight_decay", {0.1}}, {"decay_groups", {0}},     {"min_numel", {128}}};
}

// One parameter of adamw8bit, which is quantized.
struct Quantized {
  explicit Quantized(uint64_t numel, double beta1 = 0.9, double beta2 = 0.999)
      : optimizer(&ddh_entry_adamw8bit, adamw8bit_options(beta1, beta2), {numel}),
        range{0, 0, 0, 0, numel},
        master(numel),
        grad(numel),
        m(numel),
        v(numel),
        m_scale((numel + 63) / 64),
        v_scale(m_scale) {}

  void update() {
    const float* grads[] = {grad.data()};
    void* slots[] = {m.data(), v.data(), m_scale.data(), v_scale.data(), nullptr, nullptr};
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = 1;
    shard.ranges = &range;
    shard.master = master.data();
    shard.n_grads = 1;
    shard.grads = grads;
    shard.slots = slots;
    shard.n_slots = 6;
    ++step;
    optimizer.update(shard, step_block(step, 0.01), {step});
  }

  static double scale_of(uint16_t bf16) { return static_cast<double>(std::bit_cast<float>(uint32_t{bf16} << 16)); }
  // The value of a code with 4 bits of fraction, the largest of which is 1.
  static double value_of(int code, int largest) {
    const auto plain = [](int c) { return c < 16 ? std::ldexp(c, 1 - 4) : std::ldexp(16 + c % 16, c / 16 - 4); };
    return plain(code) / plain(largest);
  }
  [[nodiscard]] double m_of(size_t i) const {
    return (m[i] < 128 ? 1 : -1) * value_of(m[i] % 128, 127) * scale_of(m_scale[i / 64]);
  }
  [[nodiscard]] double v_of(size_t i) const { return value_of(v[i], 255) * scale_of(v_scale[i / 64]); }

  OptimizerFixture optimizer;
  ddh_range range;
  std::vector<float> master, grad;
  std::vector<uint8_t> m, v;
  std::vector<uint16_t> m_scale, v_scale;
  int64_t step = 0;
};

using Matrix = std::vector<std::vector<double>>;
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
void average(Matrix& a, const Matrix& b, double weight) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) a[i][j] += weight * (b[i][j] - a[i][j]);
}

// The columns of `q`, in the order of their eigenvalues, after one step of the power iteration; by Gram and Schmidt.
std::vector<size_t> iterate(Matrix& q, const Matrix& l) {
  const size_t n = q.size();
  const Matrix lq = product(l, q), values = product(transposed(q), lq);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a][a] > values[b][b]; });
  Matrix rows;
  for (const size_t column : order) {
    std::vector<double> row(n);
    for (size_t i = 0; i < n; ++i) row[i] = lq[i][column];
    for (int pass = 0; pass < 2; ++pass)
      for (const std::vector<double>& other : rows) {
        const double dot = std::inner_product(row.begin(), row.end(), other.begin(), 0.0);
        for (size_t i = 0; i < n; ++i) row[i] -= dot * other[i];
      }
    const double length = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
    for (double& x : row) x /= length;
    rows.push_back(row);
  }
  q = transposed(rows);
  return order;
}

}  // namespace

TEST_CASE("codes of adamw8bit are within one step of the value, and right on average", "[examples]") {
  constexpr size_t kNumel = 200;
  constexpr int kSteps = 2000;
  Quantized q(kNumel, 0, 0);  // m = g, v = g^2
  for (size_t i = 0; i < kNumel; ++i)
    q.grad[i] = static_cast<float>((i % 3 == 0 ? -1 : 1) * std::pow(10.0, -2.0 * static_cast<double>(i % 64) / 64));
  std::vector<double> m_sum(kNumel), v_sum(kNumel);
  for (int step = 0; step < kSteps; ++step) {
    q.update();
    for (size_t i = 0; i < kNumel; ++i) {
      const double g = static_cast<double>(q.grad[i]), largest = static_cast<double>(q.grad[i / 64 * 64]);
      REQUIRE(std::abs(q.m_of(i) - g) <= std::max(std::abs(g) / 16, std::abs(largest) / 1900) * 1.01);
      REQUIRE(std::abs(q.v_of(i) - g * g) <= std::max(g * g / 16, largest * largest / 5e5) * 1.01);
      m_sum[i] += q.m_of(i);
      v_sum[i] += q.v_of(i);
    }
  }
  for (size_t i = 0; i < kNumel; ++i) {
    const double g = static_cast<double>(q.grad[i]);
    CHECK(m_sum[i] / kSteps == Approx(g).epsilon(0.02));
    CHECK(v_sum[i] / kSteps == Approx(g * g).epsilon(0.03));
  }
}

TEST_CASE("adamw8bit follows AdamW in double on a noisy quadratic", "[examples]") {
  constexpr size_t kNumel = 1000;
  Quantized q(kNumel);
  std::vector<double> p(kNumel), m(kNumel), v(kNumel), target(kNumel);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (double& t : target) t = normal(random);
  double difference = 0, moved = 0;
  for (int t = 1; t <= 300; ++t) {
    for (size_t i = 0; i < kNumel; ++i) {
      const double noise = normal(random), curvature = std::pow(10.0, static_cast<double>(i % 5) / 2 - 2);
      const auto gradient = [&](double x) { return curvature * (x - target[i] + noise); };
      q.grad[i] = static_cast<float>(gradient(static_cast<double>(q.master[i])));
      const double g = gradient(p[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] -= 0.01 * 0.1 * p[i] +
              0.01 * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
    q.update();
  }
  for (size_t i = 0; i < kNumel; ++i) {
    difference += std::pow(static_cast<double>(q.master[i]) - p[i], 2);
    moved += p[i] * p[i];
  }
  INFO("relative difference " << std::sqrt(difference / moved));
  CHECK(difference < 0.05 * 0.05 * moved);
}

TEST_CASE("a gradient that is not finite makes the scale of its block a NaN", "[examples]") {
  Quantized q(256);
  std::fill(q.grad.begin(), q.grad.end(), 1.0F);
  q.grad[70] = HUGE_VALF;
  q.update();
  CHECK(std::isnan(q.v_of(64)));
  CHECK(std::isfinite(q.v_of(0)));
  CHECK(std::isfinite(q.v_of(128)));
}

TEST_CASE("soap makes the updates of its paper", "[examples]") {
  constexpr size_t kN = 8;
  constexpr double kLr = 0.01, kBeta1 = 0.9, kBeta2 = 0.8;
  const OptimizerFixture soap(&ddh_entry_soap,
                              {{"lr", {kLr}},
                               {"betas", {kBeta1, kBeta2}},
                               {"eps", {1e-8}},
                               {"weight_decay", {0.1}},
                               {"decay_groups", {0}},
                               {"every", {3}},
                               {"max_dim", {64}}},
                              {kN * kN}, {}, {{kN, kN}});
  REQUIRE(soap.needs(0) == DDH_NEEDS_WHOLE_PARAM);
  REQUIRE(soap.table().slot_numel(soap.inst(), 2, 0) == kN * kN);
  Shard shard({kN * kN}, 6, 1);
  Matrix p(kN, std::vector<double>(kN)), m = p, v = p, l = p, r = p, ql = p, qr = p;
  for (size_t i = 0; i < kN; ++i) ql[i][i] = qr[i][i] = 1;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto refresh = [&] {
    const std::vector<size_t> rows = iterate(ql, l), columns = iterate(qr, r);
    const Matrix before = v;
    for (size_t i = 0; i < kN; ++i)
      for (size_t j = 0; j < kN; ++j) v[i][j] = before[rows[i]][columns[j]];
  };
  for (int t = 1; t <= 10; ++t) {
    Matrix g(kN, std::vector<double>(kN));
    for (size_t i = 0; i < kN; ++i)
      for (size_t j = 0; j < kN; ++j) {
        shard.grads[0][i * kN + j] = static_cast<float>(normal(random) / static_cast<double>(1 + i));
        g[i][j] = static_cast<double>(shard.grads[0][i * kN + j]);
      }
    soap.update(shard.view(), step_block(t, kLr), {t});
    average(l, product(g, transposed(g)), 1 - kBeta2);
    average(r, product(transposed(g), g), 1 - kBeta2);
    if (t == 1) {
      for (int k = 0; k < 5; ++k) refresh();
    } else {
      average(m, g, 1 - kBeta1);
      Matrix rotated = product(product(transposed(ql), m), qr);
      const Matrix gradient = product(product(transposed(ql), g), qr);
      for (size_t i = 0; i < kN; ++i)
        for (size_t j = 0; j < kN; ++j) {
          v[i][j] = kBeta2 * v[i][j] + (1 - kBeta2) * gradient[i][j] * gradient[i][j];
          rotated[i][j] = rotated[i][j] / (1 - std::pow(kBeta1, t - 1)) /
                          (std::sqrt(v[i][j] / (1 - std::pow(kBeta2, t - 1))) + 1e-8);
        }
      const Matrix direction = product(product(ql, rotated), transposed(qr));
      for (size_t i = 0; i < kN; ++i)
        for (size_t j = 0; j < kN; ++j) p[i][j] = p[i][j] * (1 - kLr * 0.1) - kLr * direction[i][j];
    }
    if (t % 3 == 0) refresh();
    for (size_t i = 0; i < kN; ++i)
      for (size_t j = 0; j < kN; ++j)
        REQUIRE(static_cast<double>(shard.master[i * kN + j]) == Approx(p[i][j]).margin(2e-5));
  }
}
