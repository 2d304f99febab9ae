// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/precisions.hpp: worlds and dtypes in which a model's runs are compared under all strategies.
#pragma once

#include <functional>

#include "equivalence/features.hpp"

namespace ddhost::test {

struct Computation {
  int world;
  std::string compute;  // "fp32", "bf16", "fp16"
  bool recompute;       // units are computed again in the backward
};

// Every world and every dtype once, and units that are computed again.
inline std::vector<Computation> some_computations() {
  return {{1, "fp32", false}, {2, "bf16", true}, {3, "fp16", false}};
}

// Every world in every dtype, with and without units that are computed again: 18, for tests with the label long.
inline std::vector<Computation> all_computations() {
  std::vector<Computation> out;
  for (const int world : {1, 2, 3}) {
    for (const char* compute : {"fp32", "bf16", "fp16"}) {
      for (const bool recompute : {false, true}) out.push_back({world, compute, recompute});
    }
  }
  return out;
}

inline Options options_of(const Computation& c) {
  Options options = {"precision.compute=" + c.compute, c.recompute ? "train.recompute=1" : "train.recompute=0"};
  if (c.compute == "fp16") options.emplace_back("precision.initial_scale_power=10");  // causes no overflow
  return options;
}

// Runs a model under one variant of each strategy and compares with ddp. `also` checks each run further.
inline void check_strategies(const Cell& cell, size_t n_evaluations,
                             const std::function<void(const Result&)>& also = nullptr,
                             const std::vector<Variant>& ways = kOneOfEachStrategy) {
  const Result reference = run(cell);
  INFO(reference.command);
  CHECK(reference.record.evaluations.size() == n_evaluations);
  // A step that is skipped because of an overflow compares nothing.
  for (const nlohmann::json& step : reference.record.steps) CHECK_FALSE(step.value("skipped", false));
  for (const Variant& way : ways) {
    const Result other = run({way, cell.world, cell.options, cell.steps, cell.model});
    check_same_bits(reference, other);
    check_plan(other);
    if (also) also(other);
  }
}

}  // namespace ddhost::test
