// SPDX-License-Identifier: Apache-2.0
//
// The two losses of KGAT: of pairs (BPR) and of triples (TransR with a wrong tail). Each sample's own loss and gradient are
// computed apart; sums go in the order of the batch.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "layers.hpp"

namespace kgat {
namespace {

// log(1 + exp(x)), and its derivative.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// body(sample) gives a loss; returns their sum.
template <class Body>
double sum_of_losses(int64_t n, const Body& body) {
  std::vector<double> losses(static_cast<size_t>(n));
  constexpr int64_t kSamplesOfPiece = 64;
  ddh::for_pieces((n + kSamplesOfPiece - 1) / kSamplesOfPiece, [&](int64_t piece) {
    const int64_t end = std::min(n, (piece + 1) * kSamplesOfPiece);
    for (int64_t i = piece * kSamplesOfPiece; i < end; ++i) losses[static_cast<size_t>(i)] = body(i);
  });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

// |h + r - t|^2
double energy(const float* h, const float* r, const float* t, int64_t k) {
  double sum = 0;
  for (int64_t c = 0; c < k; ++c) {
    const auto part = static_cast<double>(h[c] + r[c] - t[c]);
    sum += part * part;
  }
  return sum;
}

double half_square(const float* x, int64_t n) { return 0.5 * static_cast<double>(dot(x, x, n)); }

}  // namespace

double cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx) {
  const int64_t B = x.size(0) / 3, F = x.size(1);
  const auto* rows = x.const_data_ptr<float>();
  float* gradients = nullptr;
  if (dx != nullptr) {
    *dx = at::empty_like(x);
    gradients = dx->mutable_data_ptr<float>();
  }
  const double l2 = config.l2_cf;
  return sum_of_losses(B, [&](int64_t b) {
    const float *user = rows + b * F, *right = rows + (B + b) * F, *wrong = rows + (2 * B + b) * F;
    const double lead = static_cast<double>(dot(user, wrong, F)) - static_cast<double>(dot(user, right, F));
    if (gradients != nullptr) {
      const auto slope = static_cast<float>(sigmoid(lead) * seed), decay = static_cast<float>(l2 * seed);
      float *d_user = gradients + b * F, *d_right = gradients + (B + b) * F, *d_wrong = gradients + (2 * B + b) * F;
      for (int64_t f = 0; f < F; ++f) {
        d_user[f] = slope * (wrong[f] - right[f]) + decay * user[f];
        d_right[f] = decay * right[f] - slope * user[f];
        d_wrong[f] = decay * wrong[f] + slope * user[f];
      }
    }
    return softplus(lead) + l2 * (half_square(user, F) + half_square(right, F) + half_square(wrong, F));
  });
}

double kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients) {
  const int64_t k = u.config.relation_dim;
  const auto* rows = y.const_data_ptr<float>();
  float *dy = nullptr, *d_relations = nullptr;
  if (gradients != nullptr) {
    *gradients = {at::empty_like(y), at::zeros({u.graph.n_relations, k}, at::kFloat)};
    dy = gradients->y.mutable_data_ptr<float>();
    d_relations = gradients->relations.mutable_data_ptr<float>();
  }
  const at::Tensor relations = relation_vectors(u);
  const double l2 = u.config.l2_kg;
  const auto decay = static_cast<float>(l2 * seed);
  std::vector<float> slopes(static_cast<size_t>(u.batch.B));
  double sum = 0;
  for (const RelationGroup& group : u.batch.groups) {
    const float* const r = relations.const_data_ptr<float>() + group.relation * k;
    const int64_t step = group.n * k;
    sum += sum_of_losses(group.n, [&](int64_t i) {
      const int64_t head = (group.first_row + i) * k;
      const float *h = rows + head, *right = h + step, *wrong = right + step;
      const double lead = energy(h, r, right, k) - energy(h, r, wrong, k);
      if (dy != nullptr) {
        const auto slope = static_cast<float>(2 * sigmoid(lead) * seed);
        slopes[static_cast<size_t>(group.first + i)] = slope;
        float *d_h = dy + head, *d_right = d_h + step, *d_wrong = d_right + step;
        for (int64_t c = 0; c < k; ++c) {
          d_h[c] = slope * (wrong[c] - right[c]) + decay * h[c];
          d_right[c] = decay * right[c] - slope * (h[c] + r[c] - right[c]);
          d_wrong[c] = decay * wrong[c] + slope * (h[c] + r[c] - wrong[c]);
        }
      }
      return softplus(lead) +
             l2 * (half_square(h, k) + half_square(r, k) + half_square(right, k) + half_square(wrong, k));
    });
    float* const d_r = d_relations + group.relation * k;
    for (int64_t i = 0; i < group.n && dy != nullptr; ++i) {
      const float *right = rows + (group.first_row + i) * k + step, *wrong = right + step;
      const float slope = slopes[static_cast<size_t>(group.first + i)];
      for (int64_t c = 0; c < k; ++c) d_r[c] += slope * (wrong[c] - right[c]) + decay * r[c];
    }
  }
  return sum;
}

}  // namespace kgat
