// SPDX-License-Identifier: Apache-2.0
//
// The whole matrix: every strategy and mode, world, transport, precision and feature. A cell has the reference's bits,
// and the memory and the calls of its strategy's plan. The model (tests/fixtures/models/toy_model.cpp) has tied,
// frozen, unused and one-element parameters and units with fewer blocks than ranks. A feature is a set of options for a
// run.
#include <chrono>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 8;

struct Feature {
  const char* name;
  Options options;
  bool counted = true;  // calls equal the plan; false for features with evaluations or skipped steps
};

const std::vector<Feature> kFeatures = {
    {"plain", {}},
    {"accumulation", {"train.grad_accum_steps=3"}},
    {"accumulation, micro-batches first", {"train.grad_accum_steps=3", "train.reduce_order=micro_first"}},
    {"clip", {"train.clip_norm=0.05"}},
    {"recompute", {"train.recompute=1"}},
    {"a unit that occurs twice, every second recomputed", {"model.repeat=1", "train.recompute=2"}},
    {"overflow at a step", {"model.nan_at_step=3"}, false},
    {"evaluation between steps", {"train.eval_every=3", "train.eval_batches=2"}, false},
    {"sums of rounded gradients", {"precision.reduce_dtype=bf16"}},
    {"clip by value", {"train.clip_value=0.003"}},
    {"uneven last steps, ignored targets", {"model.samples=50", "data.drop_last=false", "model.ignore_every=3"}},
    {"two programs", {"model.programs=2", "train.grad_accum_steps=2"}, false},
    {"buffers", {"model.buffers=true", "train.eval_every=3", "train.recompute=2"}, false},
};

// Two nodes for an even number of ranks, else one.
int node_of(int world) { return world % 2 == 0 && world > 2 ? world / 2 : world; }

class Matrix {
 public:
  Matrix() {
    const std::vector<std::string> strategies = taken_strategies();
    modes_ = strategies.size() > 1 ? built_in_modes() : std::vector<Mode>{{strategies[0], {}}};
  }

  void compare(int world, const char* precision, const Feature& feature) {
    Options options = {std::string("precision.compute=") + precision, "precision.initial_scale_power=16",
                       "precision.hysteresis=1", "data.micro_batch=3"};
    options.insert(options.end(), feature.options.begin(), feature.options.end());
    Options in_blocks = options;
    in_blocks.push_back("train.reduce_block=" + std::to_string(node_of(world)));
    in_blocks.push_back("run.ranks_per_node=" + std::to_string(node_of(world)));
    const Result reference = run(kReference, world, options, kSteps);
    // A block of all ranks is another order too: with accumulation, a block is summed before it is added to the step's
    // sum.
    const Result reference_in_blocks = world == 1 ? reference : run(kReference, world, in_blocks, kSteps);
    for (const Mode& mode : modes_) {
      for (const char* comm : {"loop", "shm"}) {
        const Variant way = {mode.strategy, comm, mode.options};
        const Result other = run(way, world, mode.sums_in_blocks ? in_blocks : options, kSteps);
        INFO(feature.name << ", " << precision << ", " << world << " ranks");
        check_same_bits(mode.sums_in_blocks ? reference_in_blocks : reference, other);
        check_plan(other);
        if (feature.counted) check_counts(other);
        ++cells_;
      }
    }
  }

  [[nodiscard]] int cells() const { return cells_; }

 private:
  std::vector<Mode> modes_;
  int cells_ = 0;
};

}  // namespace

// Run with DDHOST_ALL_VARIANTS by `./dev test --all`; one world again: same_bits "[.matrix]" -c "8 ranks".
TEST_CASE("all strategies, worlds, transports, precisions and features have the same bits", "[.matrix]") {
  static int all_cells = 0;
  for (const int world : {1, 2, 3, 4, 8}) {
    DYNAMIC_SECTION(world << " ranks") {
      const auto begin = std::chrono::steady_clock::now();
      Matrix matrix;
      for (const char* precision : {"fp32", "bf16", "fp16"}) {
        for (const Feature& feature : kFeatures) matrix.compare(world, precision, feature);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      all_cells += matrix.cells();
      WARN(world << " ranks: " << matrix.cells() << " cells in " << took.count() << " s; " << all_cells << " so far");
    }
  }
}
