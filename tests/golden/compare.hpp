// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/compare.hpp: how far tensors are from reference values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <vector>

#include "check.hpp"
#include "fixtures/harness/model_driver.hpp"

namespace ddhost::test {

// NaN if one of them is NaN.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

inline double norm(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// |a - b| / |b|, by Euclid's norm.
inline double relative_distance(std::vector<float> a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < b.size(); ++i) a[i] -= b[i];
  return norm(a) / norm(b);
}

inline double deviation(const std::vector<float>& v) {
  double sum = 0, squares = 0;
  const auto n = static_cast<double>(v.size());
  for (const float x : v) sum += static_cast<double>(x), squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares / n - sum / n * (sum / n));
}

inline std::vector<float> values_of(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}

inline std::vector<std::vector<float>> gradients(ModelDriver& model) {
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < model.desc().n_params; ++i) out.push_back(model.grad(i));
  return out;
}

// Two micro-batches that exist at the same time produce the sum of their gradients. `tied`: a parameter that a micro-batch uses
// twice, so that its additions have another order.
inline void require_second_micro_batch_adds(ModelDriver& model, const std::string& tied = "") {
  model.train_step({3, 50});
  const auto first = gradients(model);
  model.train_step({120, 7});
  const auto second = gradients(model);
  auto a = model.create_batch({3, 50}, 0, 1, 0), b = model.create_batch({120, 7}, 0, 1, 1);
  model.forward(a.batch, 0, 1, 0);
  model.forward(b.batch, 0, 1, 1);  // both exist at the same time
  model.backward(a.batch, 1 / a.info.loss_count, 0, 1, 0);
  model.backward(b.batch, 1 / b.info.loss_count, 0, 1, 1);
  for (size_t i = 0; i < first.size(); ++i) {
    CAPTURE(model.name(i));
    for (size_t k = 0; k < first[i].size(); ++k) {
      const float sum = first[i][k] + second[i][k];
      if (model.name(i) == tied) {
        REQUIRE(model.grad(i)[k] == Approx(sum).margin(1e-6));
      } else {
        REQUIRE(model.grad(i)[k] == sum);
      }
    }
  }
  model.discard(0), model.discard(1);
  model.destroy_batch(a), model.destroy_batch(b);
}

}  // namespace ddhost::test
