// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/own_optim.h: optimizers of a strategy's own.
#include "engine/services/optim/own_optims.hpp"
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

// The handle that a strategy has is the object itself.
OwnOptim& own(const ddh_own_optim* optim) {
  return *reinterpret_cast<OwnOptim*>(const_cast<ddh_own_optim*>(not_null(optim, "the optimizer")));
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

const ddh_own_optim_api kOwnOptimTable = {
    sizeof(ddh_own_optim_api),
    0,
    [](void* h, const char* id, const char* section, const char* options, ddh_own_optim** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        RankServices& s = services_of(h);
        if (s.own_optims == nullptr)
          ddh::fail(DDH_FAILED_PRECONDITION,
                    "ddh.own_optim is not available yet; use it from attach on, not in create");
        OwnOptim& made = s.own_optims->create(not_null(id, "the optimizer's id"), not_null(section, "the section"),
                                              text_or_empty(options));
        *not_null(out, "out") = reinterpret_cast<ddh_own_optim*>(&made);
      });
    },
    [](void*, const ddh_own_optim* optim) noexcept -> uint32_t {
      uint32_t n = 0;
      guard(nullptr, [&] { n = static_cast<uint32_t>(own(optim).slots().size()); });
      return n;
    },
    [](void*, const ddh_own_optim* optim, uint32_t index, ddh_slot_desc* out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::vector<ddh_slot_desc>& slots = own(optim).slots();
        if (index >= slots.size()) ddh::fail(DDH_OUT_OF_RANGE, "slot ", index, " of ", slots.size());
        ddh::copy_out(slots[index], *not_null(out, "out"));
      });
    },
    [](void*, const ddh_own_optim* optim, int32_t param) noexcept -> int32_t {
      int32_t needs = DDH_NEEDS_NOTHING;
      guard(nullptr, [&] { needs = own(optim).needs(param); });
      return needs;
    },
    [](void*, ddh_own_optim* optim, const ddh_optim_shard* shard, const ddh_step_block* block, ddh_err* err) noexcept {
      return guard(err, [&] {
        const ddh_optim_shard mine = checked(shard);
        check_ranges(mine.ranges, mine.n_ranges);
        own(optim).update(mine, checked(block));
      });
    },
};

}  // namespace ddhost::detail
