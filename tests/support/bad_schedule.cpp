// SPDX-License-Identifier: Apache-2.0
//
// bad_schedule: a constant rate, and a fault by option.
#include <cmath>

#include "ddh/sdk/schedule.hpp"
#include "support/misbehave.hpp"

namespace {

using ddhost::test::Fault;
using ddhost::test::misbehave;

class BadSchedule final : public ddh::Schedule {
 public:
  explicit BadSchedule(const ddh_create& create) : Schedule(create), fault_(host, "schedule") {}

  void attach(const ddh_schedule_args& args) override { lr_ = args.lr; }
  [[nodiscard]] double lr(int64_t step) const override {
    if (!fault_.hits("lr", -1, step)) return lr_;
    misbehave(fault_.what, nullptr);
    if (fault_.what == "throw") throw std::runtime_error("the tide is out");
    if (fault_.what == "nan") return std::nan("");
    return fault_.what == "negative" ? -1 : lr_;
  }
  void step_done(int64_t step, bool /*skipped*/) override {
    if (fault_.hits("step_done", -1, step) && fault_.what == "throw") throw std::runtime_error("the tide is out");
  }
  [[nodiscard]] std::vector<Number> numbers() override {
    if (!fault_.hits("number", -1, 0)) return {};
    if (fault_.what == "null_name") return {{nullptr, &lr_}};
    if (fault_.what == "null_value") return {{"lr", nullptr}};
    return {{"lr", &lr_}, {"lr", &lr_}};
  }

 private:
  const Fault fault_;
  double lr_ = 0;
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(BadSchedule, schedule, "bad_schedule", "0.1.0", "mistakes on purpose, for tests",
               R"({"properties": {)" DDH_FAULT_SCHEMA R"(}})", kNeeds, DDH_CAP_IN_PROCESS);
