// SPDX-License-Identifier: Apache-2.0
//
// The C table of a C++ strategy.
#include "ddh/sdk/strategy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {
// Entries for a caller whose struct may be shorter than this build's; without `entries`, only their number.
void copy_state(const std::vector<ddh_state_entry>& state, ddh_state_entry* entries, uint64_t stride, uint32_t* n) {
  const auto count = static_cast<uint32_t>(state.size());
  if (entries != nullptr) {
    if (*n < count) fail(DDH_OUT_OF_RANGE, "there is room for ", *n, " state entries, but there are ", count);
    if (stride < DDH_STATE_ENTRY_MIN_SIZE)
      fail(DDH_INVALID_ARGUMENT, "the stride of state entries is ", stride, " bytes, but the least is ",
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
}  // namespace

void no_such_state_entry(uint32_t entry) {
  fail(DDH_INVALID_ARGUMENT, "state entry ", entry, " has a pointer; use it");
}

const void* Strategy::interface(std::string_view id) const {
  static const ddh_strategy_api table = {
      sizeof(ddh_strategy_api),
      0,
      [](ddh_inst* i, const ddh_attach_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).attach(copy_of(*args)); });
      },
      [](ddh_inst* i, ddh_plan* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_plan mine{};
          mine.sent_bytes = mine.sent_between_nodes_bytes = DDH_PLAN_UNKNOWN;
          mine.grad_in_blocks = out->grad_in_blocks;
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
        return guard(err, [&] { copy_state(self_as<Strategy>(i).state(), entries, stride, n); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Strategy>(i).state_commit(); }); },
      [](ddh_inst* i, uint32_t entry, uint64_t offset, uint64_t numel, void* dst, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).state_read(entry, offset, numel, dst); });
      },
      [](ddh_inst* i, uint32_t entry, uint64_t offset, uint64_t numel, const void* src, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).state_write(entry, offset, numel, src); });
      },
      [](ddh_inst* i, const uint8_t* trains, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).trains_later(trains); });
      },
      [](ddh_inst* i, ddh_rhythm* out, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Strategy>(i).rhythm(*out); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Strategy>(i).settle(); }); },
      [](ddh_inst* i, const ddh_unit_use* use, ddh_grad_block* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_grad_block mine{};
          self_as<Strategy>(i).next_block(copy_of(*use), mine);
          copy_out(mine, *out);
        });
      },
  };
  return id == DDH_STRATEGY_IFACE ? &table : nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
