// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/schedule.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

const void* Schedule::interface(std::string_view id) const {
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

}  // namespace DDH_HIDDEN
}  // namespace ddh
