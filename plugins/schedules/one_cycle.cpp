// SPDX-License-Identifier: Apache-2.0
//
// one_cycle: torch's OneCycleLR. From max_lr / div_factor up to max_lr over pct_start of decay_steps, then down to the
// start / final_div_factor. With three_phase it first falls to the start, in as many steps as it rose. The last rate is
// kept.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ddh/sdk/schedule.hpp"
#include "options.hpp"

namespace {

class OneCycle final : public ddh::Schedule {
 public:
  explicit OneCycle(const ddh_create& create)
      : Schedule(create), is_cosine_(options.text("anneal_strategy") == "cos") {}

  void attach(const ddh_schedule_args& args) override {
    const double peak = options.f64_if_given("max_lr").value_or(args.lr);
    const double steps = options.f64_if_given("decay_steps").value_or(static_cast<double>(args.steps));
    const double first = peak / options.f64("div_factor"), last = first / options.f64("final_div_factor");
    const double part = options.f64("pct_start"), rising = part * steps;
    phases_ = {{rising - 1, first, peak}};
    if (options.flag("three_phase")) {
      if (part > 0.5)
        ddh::fail(DDH_INVALID_ARGUMENT, options.key("pct_start"), " = ", part, " does not go with ",
                  options.key("three_phase"), ", where the rate falls for as long as it rises; give at most 0.5");
      phases_.push_back({2 * rising - 2, peak, first});
      phases_.push_back({steps - 1, first, last});
    } else {
      phases_.push_back({steps - 1, peak, last});
    }
  }

  [[nodiscard]] double lr(int64_t step) const override {
    const double done = std::min(static_cast<double>(step - 1), phases_.back().end);
    double begin = 0;
    size_t p = 0;
    for (; p + 1 < phases_.size() && done > phases_[p].end; ++p) begin = phases_[p].end;
    const auto& [end, from, to] = phases_[p];
    const double progress = end > begin ? (done - begin) / (end - begin) : 1.0;
    return is_cosine_ ? to + (from - to) / 2.0 * (std::cos(std::numbers::pi * progress) + 1)
                      : (to - from) * progress + from;
  }

 private:
  struct Phase {
    double end;  // steps done when `to` is reached; not always whole
    double from, to;
  };
  const bool is_cosine_;
  std::vector<Phase> phases_;
};

constexpr ddh::Option kOptions[] = {
    kMaxLr,
    kDecaySteps,
    kCycleMomentum,
    {"pct_start", "number", "0.3", R"("minimum": 0, "maximum": 1)",
     "fraction of decay_steps over which the rate rises"},
    {"div_factor", "number", "25", ddh::kAbove0, "max_lr / first rate"},
    {"final_div_factor", "number", "10000", ddh::kAbove0, "first rate / last rate"},
    {"anneal_strategy", "string", R"("cos")", R"("enum": ["cos", "linear"])", "shape of rise and fall"},
    {"three_phase", "boolean", "false", "", "fall to the first rate in as many steps as it rose, then to the last"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(OneCycle, schedule, "one_cycle", "0.1.0", "torch's OneCycleLR: one rise and one fall",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
