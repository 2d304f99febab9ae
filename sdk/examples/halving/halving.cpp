// SPDX-License-Identifier: Apache-2.0
//
// halving: a learning-rate schedule. The rate halves every `half_life` steps.
//
//   ddhost --schedule ./halving.so schedule.half_life=50
#include <cmath>

#include "ddh/sdk/options.hpp"
#include "ddh/sdk/schedule.hpp"

namespace {

class Halving final : public ddh::Schedule {
 public:
  explicit Halving(const ddh_create& create) : Schedule(create), half_life_(options.f64("half_life")) {}

  void attach(const ddh_schedule_args& args) override { lr_ = args.lr; }
  [[nodiscard]] double lr(int64_t step) const override {
    return lr_ * std::exp2(-static_cast<double>(step - 1) / half_life_);
  }

 private:
  const double half_life_;  // steps
  double lr_ = 0;
};

constexpr ddh::Option kOptions[] = {
    {"half_life", "integer", "100", R"("minimum": 1, "x-unit": "steps")", "steps in which the rate halves"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Halving, schedule, "halving", "0.1.0", "halves the rate every half_life steps", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS);
