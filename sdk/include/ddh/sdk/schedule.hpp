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

#include <optional>
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

 protected:
  // A number option that may be null; then nullopt.
  [[nodiscard]] std::optional<double> f64_if_given(std::string_view name) const;
};

inline const void* Schedule::interface(std::string_view id) const {
  static const ddh_schedule_api table = {
      sizeof(ddh_schedule_api),
      0,
      [](ddh_inst* i, const ddh_schedule_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Schedule>(i).attach(copy_of(args)); });
      },
      [](ddh_inst* i, int64_t step, double* out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<Schedule>(i).lr(step); });
      },
      [](ddh_inst* i, int64_t step, int32_t skipped, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Schedule>(i).step_done(step, skipped != 0); });
      },
      [](ddh_inst* i, double loss, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Schedule>(i).observe(loss); });
      },
      [](ddh_inst* i) noexcept {
        uint32_t n = 1;  // after an exception the host asks for number 0, whose function can report it
        guard(nullptr, [&] { n = static_cast<uint32_t>(self_as<Schedule>(i).numbers().size()); });
        return n;
      },
      [](ddh_inst* i, uint32_t index, ddh_schedule_number* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const std::vector<Number> all = self_as<Schedule>(i).numbers();
          if (index >= all.size()) fail(DDH_OUT_OF_RANGE, "number ", index, " does not exist; there are ", all.size());
          copy_out(ddh_schedule_number{sizeof(ddh_schedule_number), 0, all[index].name, all[index].value}, *out);
        });
      },
  };
  return id == DDH_SCHEDULE_IFACE ? &table : nullptr;
}

inline std::optional<double> Schedule::f64_if_given(std::string_view name) const {
  double value = 0;
  ErrorBuffer none;
  const ddh_rc rc = host.config->get_f64(host.h, options.key(name).c_str(), &value, none.get());
  if (rc == DDH_INVALID_ARGUMENT) return std::nullopt;  // null is not a number
  none.check(rc);
  return value;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
