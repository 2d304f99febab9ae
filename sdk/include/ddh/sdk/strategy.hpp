// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/strategy.hpp: the C++ base of a strategy; each virtual is the slot of that name in ddh/kind/strategy.h, which
// documents it. Failures are thrown.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Strategy : public Instance {
 public:
  using Instance::Instance;
  virtual void attach(const ddh_attach_args& args) = 0;
  virtual void plan(ddh_plan& out) = 0;
  virtual void materialize() = 0;
  virtual void step_begin(const ddh_step_begin_args&) {}
  virtual void acquire(const ddh_unit_use& use, ddh_unit_view& out) = 0;
  virtual void release(const ddh_unit_use& use) = 0;
  virtual void grads_ready(const ddh_unit_use& use) = 0;
  virtual void step() = 0;
  virtual std::vector<ddh_state_entry> state() = 0;
  virtual void state_commit() = 0;
  // For strategies that have entries without a pointer.
  virtual void state_read(uint32_t entry, uint64_t, uint64_t, void*) { no_such_entry(entry); }
  virtual void state_write(uint32_t entry, uint64_t, uint64_t, const void*) { no_such_entry(entry); }

  [[nodiscard]] const void* interface(std::string_view id) const override;

 private:
  [[noreturn]] static void no_such_entry(uint32_t entry) {
    fail(DDH_INVALID_ARGUMENT, "state entry ", entry, " has a pointer; use it");
  }
};

namespace detail {
inline void copy_state(const std::vector<ddh_state_entry>& state, ddh_state_entry* entries, uint64_t stride,
                       uint32_t* n) {
  const auto count = static_cast<uint32_t>(state.size());
  if (entries != nullptr) {
    if (*n < count) fail(DDH_OUT_OF_RANGE, "room for ", *n, " state entries, there are ", count);
    if (stride < DDH_STATE_ENTRY_MIN_SIZE)
      fail(DDH_INVALID_ARGUMENT, "state entries of ", stride, " bytes are wanted, the least is ",
           DDH_STATE_ENTRY_MIN_SIZE, "; set stride to sizeof(ddh_state_entry)");
    auto* at = reinterpret_cast<char*>(entries);
    for (const ddh_state_entry& entry : state) {
      std::memcpy(at, &entry, std::min<size_t>(stride, sizeof entry));
      const auto written = static_cast<uint32_t>(std::min<size_t>(stride, sizeof entry));
      std::memcpy(at, &written, sizeof written);  // struct_size is the first field
      at += stride;
    }
  }
  *n = count;
}
}  // namespace detail

inline const void* Strategy::interface(std::string_view id) const {
  static const ddh_strategy_api table = {
      sizeof(ddh_strategy_api),
      0,
      [](ddh_inst* i, const ddh_attach_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).attach(copy_of(*args)); });
      },
      [](ddh_inst* i, ddh_plan* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_plan mine{};
          self_as<Strategy>(i).plan(mine);
          copy_out(mine, *out);
        });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Strategy>(i).materialize(); }); },
      [](ddh_inst* i, const ddh_step_begin_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).step_begin(copy_of(*args)); });
      },
      [](ddh_inst* i, const ddh_unit_use* use, ddh_unit_view* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_unit_view mine{};
          self_as<Strategy>(i).acquire(copy_of(*use), mine);
          copy_out(mine, *out);
        });
      },
      [](ddh_inst* i, const ddh_unit_use* use, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).release(copy_of(*use)); });
      },
      [](ddh_inst* i, const ddh_unit_use* use, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).grads_ready(copy_of(*use)); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Strategy>(i).step(); }); },
      [](ddh_inst* i, ddh_state_entry* entries, uint64_t stride, uint32_t* n, ddh_err* err) noexcept {
        return guard(err, [&] { detail::copy_state(self_as<Strategy>(i).state(), entries, stride, n); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Strategy>(i).state_commit(); }); },
      [](ddh_inst* i, uint32_t entry, uint64_t offset, uint64_t numel, void* dst, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).state_read(entry, offset, numel, dst); });
      },
      [](ddh_inst* i, uint32_t entry, uint64_t offset, uint64_t numel, const void* src, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).state_write(entry, offset, numel, src); });
      },
  };
  return id == DDH_STRATEGY_IFACE ? &table : nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
