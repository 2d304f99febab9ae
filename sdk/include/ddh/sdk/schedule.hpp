// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/schedule.hpp: the C++ base class of a learning-rate schedule. Each virtual function is the slot of that name
// in ddh/kind/schedule.h, which documents it. Failures are thrown.
//
//   class Halving final : public ddh::Schedule {
//    public:
//     using Schedule::Schedule;
//     void attach(const ddh_schedule_args& args) override { lr_ = args.lr; }
//     [[nodiscard]] double lr(int64_t step) const override { return lr_ * std::exp2(1 - step); }
//    private:
//     double lr_ = 0;
//   };
//   DDH_CXX_PLUGIN(Halving, schedule, "halving", "1.0.0", "half the rate at every step", nullptr, nullptr,
//                  DDH_CAP_IN_PROCESS);
#pragma once

#include <string_view>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Schedule : public Instance {
 public:
  // A state variable. `value` points into the instance.
  struct Number {
    const char* name;
    double* value;
  };

  using Instance::Instance;
  virtual void attach(const ddh_schedule_args& args) = 0;
  // Steps count from 1.
  [[nodiscard]] virtual double lr(int64_t step) const = 0;
  virtual void step_done(int64_t /*step*/, bool /*skipped*/) {}
  // For DDH_CAP_READS_LOSS.
  virtual void observe(double /*loss*/) {}
  [[nodiscard]] virtual std::vector<Number> numbers() { return {}; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
