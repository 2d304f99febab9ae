// SPDX-License-Identifier: Apache-2.0
//
// ema: an average of the weights that follows any optimizer (Polyak and Juditsky 1992, "Acceleration of Stochastic
// Approximation by Averaging"). With the weights p after each step:
//
//   s = p                            after a parameter's first update
//   s = s + (1 - decay) (p - s)      after each further one
//
// State: one fp32 number per element. Evaluations, exports and final weights have the average, training does not.
//
//   ddhost --optimizer adamw 'train.followers=["./ema.so"]' follower.ema.decay=0.999
#include <algorithm>

#include "ddh/sdk/kernels/elementwise.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    {"decay", "number", "0.999", R"("minimum": 0, "maximum": 1)", "share of the average that a step keeps"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

struct Average {
  DDH_SIMD_BODY void run(float* average, const float* weights, float share, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) average[i] = average[i] + share * (weights[i] - average[i]);
  }
};

class Ema final : public ddh::Optimizer {
 public:
  explicit Ema(const ddh_create& create) : Optimizer(create), share_(ddh::f32(1.0 - options.f64("decay"))) {}
  void attach(const ddh_model_desc&) override {}
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }
  [[nodiscard]] bool shows() const noexcept override { return true; }

  // A follower gets no gradients, and the weights as the optimizer has left them.
  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      const float* const weights = shard.master + range.flat_offset;
      float* const average = average_of(shard) + range.flat_offset;
      if (args.param_steps[range.param] == 1)
        std::copy_n(weights, range.numel, average);
      else
        ddh::Kernel<Average>::run(average, weights, share_, range.numel);
    }
  }

  void show(const ddh_optim_shard& shard, float* dst) const override {
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      std::copy_n(average_of(shard) + range.flat_offset, range.numel, dst + range.flat_offset);
    }
  }

 private:
  static constexpr auto kSlots = ddh::slots("average");
  static float* average_of(const ddh_optim_shard& shard) { return static_cast<float*>(shard.slots[0]); }

  const float share_;
};

}  // namespace

DDH_CXX_PLUGIN(Ema, optimizer, "ema", "0.1.0", "exponential average of the weights", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_FOLLOWS);
