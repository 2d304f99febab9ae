// SPDX-License-Identifier: Apache-2.0
//
// Attention in tiles, with dropout on the probabilities, against sums in double.
#include "../../models/ops/attention.hpp"

#include <ATen/ops/empty.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "../../models/ops/attention_kernels.hpp"
#include "fixtures/harness/golden_fill.hpp"

using namespace ddhost::test;

namespace {

at::Tensor filled(const char* name, at::IntArrayRef sizes) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  const std::vector<float> values = golden_uni(name, static_cast<size_t>(out.numel()), 1.0);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<float>());
  return out;
}

// Attention of one head, row by row. Arrays are (T, D).
struct Reference {
  const ops::AttentionShape& s;
  const ops::DropoutPlace& place;
  using Rows = std::vector<std::vector<double>>;
  Rows q, k, v, d_out;
  Rows out, d_q, d_k, d_v;

  Reference(const ops::AttentionShape& shape, const ops::DropoutPlace& dropped, const at::Tensor& qkv,
            const at::Tensor& d, int64_t b, int64_t h)
      : s(shape), place(dropped) {
    const at::Tensor heads = qkv[b].select(2, h), d_rows = d.view({s.B, s.T, s.H, s.D})[b].select(1, h);
    for (int64_t t = 0; t < s.T; ++t) {
      q.push_back(row(heads[t][0])), k.push_back(row(heads[t][1])), v.push_back(row(heads[t][2]));
      d_out.push_back(row(d_rows[t]));
    }
    out = d_q = d_k = d_v = Rows(static_cast<size_t>(s.T), std::vector<double>(static_cast<size_t>(s.D)));
    for (int64_t i = 0; i < s.T; ++i) attend(static_cast<size_t>(i), (b * s.H + h) * s.T * s.T + i * s.T);
  }

 private:
  static std::vector<double> row(const at::Tensor& x) {
    std::vector<double> out;
    for (int64_t i = 0; i < x.size(0); ++i) out.push_back(x[i].item<double>());
    return out;
  }
  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static void add(std::vector<double>& to, double factor, const std::vector<double>& x) {
    for (size_t i = 0; i < x.size(); ++i) to[i] += factor * x[i];
  }
  // Row i; its first probability is number `element` of all.
  void attend(size_t i, int64_t element) {
    const double scale = 1 / std::sqrt(static_cast<double>(s.D));
    const ddh::Dropout dropout(place.probability, place.key);
    const size_t keys = s.causal ? i + 1 : static_cast<size_t>(s.T);
    std::vector<double> p(keys), factor(keys), d_p(keys);
    double sum = 0, weighted = 0;
    for (size_t j = 0; j < keys; ++j) {
      p[j] = std::exp(scale * dot(q[i], k[j]));
      sum += p[j];
    }
    for (size_t j = 0; j < keys; ++j) {
      p[j] /= sum;
      factor[j] = dropout.factor(static_cast<uint64_t>(element) + j);
      d_p[j] = factor[j] * dot(d_out[i], v[j]);
      weighted += p[j] * d_p[j];
    }
    for (size_t j = 0; j < keys; ++j) {
      add(out[i], p[j] * factor[j], v[j]);
      add(d_v[j], p[j] * factor[j], d_out[i]);
      const double d_score = p[j] * (d_p[j] - weighted) * scale;
      add(d_q[i], d_score, k[j]);
      add(d_k[j], d_score, q[i]);
    }
  }
};

}  // namespace

TEST_CASE("attention is fused, in tiles, flash or explicit by device, format, dropout and the width of heads") {
  using ops::AttentionWay;
  const auto way = [](int64_t D, bool drops, at::ScalarType type, bool is_cuda, bool by_operators) {
    return ops::attention_way({2, 16, 2, D, true}, drops, type, is_cuda, by_operators);
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    CHECK(way(64, false, type, false, false) == AttentionWay::kFused);
    CHECK(way(64, true, type, false, false) == AttentionWay::kTiled);
    CHECK(way(64, false, type, false, true) == AttentionWay::kExplicit);  // operators on a CPU
    CHECK(way(64, true, type, true, true) == AttentionWay::kExplicit);
    const AttentionWay on_gpu = type == at::kFloat ? AttentionWay::kExplicit : AttentionWay::kFlash;
    for (const int64_t D : {8, 64, 192}) CHECK(way(D, false, type, true, true) == on_gpu);
    for (const int64_t D : {12, 200, 224, 256}) CHECK(way(D, false, type, true, true) == AttentionWay::kExplicit);
  }
}

TEST_CASE(
    "attention on a processor equals sums in double, for lengths around the ends of tiles and for divided heads") {
  const bool causal = GENERATE(true, false), drops = GENERATE(true, false);
  const int64_t T = GENERATE(1, 30, 64, 65, 150, 400), D = GENERATE(8, 22, 64);
  if (D != 8 && (drops || T > 150))
    return;  // tiles are LibTorch's products; the others have kernels for whole vectors of D
  CAPTURE(causal, drops, T, D);
  const ops::AttentionShape s{2, T, 2, D, causal};
  const ops::DropoutPlace place{drops ? 0.3 : 0.0,
                                {.seed = 5, .step = 2, .global_micro_batch = 1, .position = 3, .site = 1}};
  const at::Tensor qkv = filled("qkv", {s.B, s.T, 3, s.H, s.D}), d_out = filled("d_out", {s.B * s.T, s.width()});
  ops::AttentionSaved saved;
  const at::Tensor out = ops::attention(s, place, qkv, saved);
  const at::Tensor d_qkv = ops::attention_backward(s, place, qkv, out, d_out, saved);
  CHECK(!saved.probabilities.defined());
  double worst = 0;
  const auto compare = [&](const at::Tensor& x, double expected) {
    worst = std::max(worst, std::abs(x.item<double>() - expected));
  };
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t h = 0; h < s.H; ++h) {
      const Reference r(s, place, qkv, d_out, b, h);
      for (int64_t t = 0; t < T; ++t) {
        const auto row = static_cast<size_t>(t);
        for (int64_t c = 0; c < s.D; ++c) {
          const auto i = static_cast<size_t>(c);
          compare(out.view({s.B, s.T, s.H, s.D})[b][t][h][c], r.out[row][i]);
          compare(d_qkv[b][t][0][h][c], r.d_q[row][i]);
          compare(d_qkv[b][t][1][h][c], r.d_k[row][i]);
          compare(d_qkv[b][t][2][h][c], r.d_v[row][i]);
        }
      }
    }
  }
  CHECK(worst < 1e-5);
}

TEST_CASE("attention of a head has the same bits at the vector widths that have fused multiply-adds") {
  if (ddh::simd_level() != ddh::SimdLevel::avx512) {
    WARN("not compared: this processor has no AVX-512 beside AVX2");
    return;
  }
  const ops::HeadShape s{77, 24, /*causal=*/true};
  const int64_t numel = s.T * s.D;
  const at::Tensor in = filled("heads", {4, numel});  // q, k, v, the gradient of the result
  const auto rows = [&](const at::Tensor& x, int64_t i) { return ops::HeadRows{x[i].const_data_ptr<float>(), s.D}; };
  const auto run = [&](ddh::SimdLevel level) {
    const ops::HeadKernels kernels = ops::head_kernels(level);
    at::Tensor out = at::empty({4, numel}, at::kFloat), sums = at::empty({s.T}, at::kFloat);
    std::vector<float> memory(static_cast<size_t>(std::max(ops::attend_numel(s), ops::attend_backward_numel(s))));
    const auto to = [&](int64_t i) { return ops::HeadResult{out[i].mutable_data_ptr<float>(), s.D}; };
    kernels.forward(s, rows(in, 0), rows(in, 1), rows(in, 2), to(0), sums.mutable_data_ptr<float>(), memory.data());
    kernels.backward(s, rows(in, 0), rows(in, 1), rows(in, 2), rows(out, 0), rows(in, 3), sums.const_data_ptr<float>(),
                     {to(1), to(2), to(3)}, memory.data());
    return out;
  };
  CHECK(run(ddh::SimdLevel::avx2).equal(run(ddh::SimdLevel::avx512)));
}

TEST_CASE("attention with dropout has the FLOPs of attention without it, for several tiles too", "[attention]") {
  for (const int64_t T : {32, 128, 1024}) {
    const ops::AttentionShape shape{2, T, 3, 8, true};
    const ops::AttentionCost with = ops::attention_cost(shape, ops::AttentionWay::kTiled),
                             without = ops::attention_cost(shape, ops::AttentionWay::kFused);
    CHECK(with.forward_flops == without.forward_flops);
    CHECK(with.backward_flops == without.backward_flops);
    CHECK(without.forward_flops == 4.0 * 2 * 3 * 8 * static_cast<double>(T * T));
  }
}
