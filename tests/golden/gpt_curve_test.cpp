// SPDX-License-Identifier: Apache-2.0
//
// The GPT on real text: the first steps of a reference training run, with a plain AdamW in double beside it.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "golden/gpt_fixture.hpp"

using namespace ddhost::test;

namespace {

// torch's AdamW with clipping by the global norm; returns the norm before clipping.
class ReferenceAdamw {
 public:
  explicit ReferenceAdamw(ModelDriver& model) : model_(model) {
    for (size_t i = 0; i < model.desc().n_params; ++i) {
      m_.emplace_back(model.value(i).size(), 0.0);
      v_.emplace_back(model.value(i).size(), 0.0);
    }
  }
  double step(double lr) {
    double squares = 0;
    for (size_t i = 0; i < m_.size(); ++i) {
      for (const float g : model_.grad(i)) squares += static_cast<double>(g) * static_cast<double>(g);
    }
    const double norm = std::sqrt(squares), clip = std::min(1.0, 1.0 / (norm + 1e-6));
    ++steps_;
    const double c1 = 1 - std::pow(kBeta1, steps_), c2 = 1 - std::pow(kBeta2, steps_);
    for (size_t i = 0; i < m_.size(); ++i) {
      const bool decays = (model_.desc().params[i]->attributes & DDH_PARAM_NO_DECAY) == 0;
      std::vector<float>&p = model_.value(i), &g = model_.grad(i);
      for (size_t k = 0; k < p.size(); ++k) {
        const double gk = static_cast<double>(g[k]) * clip;
        m_[i][k] = kBeta1 * m_[i][k] + (1 - kBeta1) * gk;
        v_[i][k] = kBeta2 * v_[i][k] + (1 - kBeta2) * gk * gk;
        const double decayed = static_cast<double>(p[k]) * (1 - (decays ? lr * 0.1 : 0.0));
        p[k] = static_cast<float>(decayed - lr * (m_[i][k] / c1) / (std::sqrt(v_[i][k] / c2) + 1e-8));
      }
    }
    return norm;
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.99;
  ModelDriver& model_;
  std::vector<std::vector<double>> m_, v_;
  int steps_ = 0;
};

void reference_init(ModelDriver& model) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const std::string name = model.name(i);
    std::vector<float>& value = model.value(i);
    if (model.desc().params[i]->n_dims == 1) {
      std::fill(value.begin(), value.end(), 1.0F);
    } else {
      const double deviation = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(8.0) : 0.02;
      value = golden_uni(name, value.size(), deviation * std::sqrt(3.0));
    }
  }
}

}  // namespace

TEST_CASE("the first steps of the character GPT equal those of the reference run") {
  const auto text = find_data("shakespeare/input.txt");
  const auto curve_path = find_data("golden/nanogpt_char_curve.json");
  if (!text || !curve_path) return;
  const nlohmann::json curve = nlohmann::json::parse(std::ifstream(*curve_path));
  ModelDriver model(ddh_entry_gpt, {{"model.size", "0.8M"}, {"data.path", *text}, {"model.matmul", "auto"}});
  REQUIRE(model.desc().n_params == 2 + 4 * 6 + 1);
  uint64_t numel = 0;
  for (size_t i = 0; i < model.desc().n_params; ++i) numel += model.value(i).size();
  REQUIRE(numel == curve.at("params").get<uint64_t>());
  REQUIRE(model.desc().programs[0]->n_samples == 1003854 - 64);
  reference_init(model);
  ReferenceAdamw adamw(model);
  for (size_t it = 0; it < 20; ++it) {
    CAPTURE(it);
    const double loss = model.train_step(golden_ints("batch." + std::to_string(it), 1003854 - 64, 12));
    REQUIRE(loss == Approx(curve.at("loss").at(it).get<double>()).margin(1e-5));
    const double norm = adamw.step(curve.at("lr").at(it).get<double>());
    REQUIRE(norm == Approx(curve.at("grad_norm").at(it).get<double>()).epsilon(1e-4));
  }
}
