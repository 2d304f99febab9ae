// SPDX-License-Identifier: Apache-2.0
//
// wsd: warm-up, stable, decay. The rate stays at the optimizer's lr and falls only over the last decay_ratio of
// decay_steps.
#include <cmath>
#include <numbers>

#include "decay.hpp"
#include "options.hpp"

namespace {

class Wsd final : public Decay {
 public:
  explicit Wsd(const ddh_create& create) : Decay(create), shape_(options.text("decay_type")) {}

 private:
  [[nodiscard]] double begin_of_decay(double end, bool end_is_given) const override {
    const double ratio = options.f64("decay_ratio");
    const double begin = end - std::max(1.0, std::round(ratio * end));
    if (end_is_given && begin < warmup_)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("decay_steps"), " = ", end, " with ", options.key("decay_ratio"),
                " = ", ratio, " would begin the decay at step ", begin, ", before the warm-up ends (",
                options.key("warmup_steps"), " = ", warmup_,
                "); give more decay_steps, a smaller decay_ratio or fewer warmup_steps");
    return begin;
  }

  [[nodiscard]] double share_left(double progress) const override {
    if (shape_ == "linear") return 1 - progress;
    if (shape_ == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    return 1 - std::sqrt(progress);
  }

  const std::string shape_;
};

constexpr ddh::Option kOptions[] = {
    kWarmupSteps,
    kWarmupFromZero,
    kDecaySteps,
    min_lr_ratio("0.1"),
    {"decay_ratio", "number", "0.1", R"("exclusiveMinimum": 0, "maximum": 1)",
     "last fraction of decay_steps, over which the rate falls"},
    {"decay_type", "string", R"("linear")", R"("enum": ["linear", "cosine", "sqrt"])",
     "shape of the fall; sqrt is 1 - sqrt(progress) of the decay"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Wsd, schedule, "wsd", "0.1.0", "warm-up, a constant rate, then a short decay", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS);
