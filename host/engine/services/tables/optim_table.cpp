// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/optim.h: a strategy's calls of the optimizers, and of decide.
#include <algorithm>

#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

StepCoordinator& step_of(void* h) { return required(services_of(h).step, "ddh.optim"); }
const Optimizers& optimizers_of(void* h) { return step_of(h).optimizers(); }

// A call within a step. If a strategy continues after a refusal, this is detected when its step returns.
template <class Body>
ddh_rc in_step(void* h, ddh_err* err, Body&& body) noexcept {
  return guard(err, [&] {
    StepCoordinator& step = step_of(h);
    try {
      body(step);
    } catch (const std::exception& error) {
      step.note_refusal(error.what());
      throw;
    }
  });
}

ddh_optim_shard checked_shard(const ddh_optim_shard* shard) {
  const ddh_optim_shard mine = checked(shard);
  check_ranges(mine.ranges, mine.n_ranges);
  return mine;
}

}  // namespace

const ddh_optim_api kOptimTable = {
    sizeof(ddh_optim_api),
    0,
    [](void* h) noexcept -> uint32_t {
      uint32_t n = 0;
      guard(nullptr, [&] { n = optimizers_of(h).slot_count(); });
      return n;
    },
    [](void* h, uint32_t index, ddh_slot_desc* out, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::copy_out(optimizers_of(h).slot(index), *out); });
    },
    [](void* h, int32_t param) noexcept -> int32_t {
      int32_t needs = DDH_NEEDS_NOTHING;
      guard(nullptr, [&] { needs = optimizers_of(h).needs(param); });
      return needs;
    },
    [](void* h, const float* grad, const ddh_range* ranges, uint32_t n_ranges, ddh_err* err) noexcept {
      return in_step(h, err, [&](StepCoordinator& step) {
        check_ranges(ranges, n_ranges);
        const PartSpan span(services_of(h).clock, StepPart::norm, "norm");
        step.check_own_sums();
        step.account().check_ranges(ranges, n_ranges);
        if (grad == nullptr && n_ranges > 0) ddh::fail(DDH_INVALID_ARGUMENT, "add_gradient got no gradient (NULL)");
        uint64_t end = 0;
        for (uint32_t i = 0; i < n_ranges; ++i) end = std::max(end, ranges[i].flat_offset + ranges[i].numel);
        if (step.sums_on_device() && !services_of(h).memory.is_host_memory(grad))
          return step.add_device_gradient(grad, 0, end, {ranges, n_ranges}, nullptr);
        const void* values = services_of(h).staging->readable(grad, end * sizeof(float), nullptr);
        step.add_gradient(static_cast<const float*>(values), 0, end, {ranges, n_ranges});
      });
    },
    [](void* h, const ddh_step_block** out, ddh_err* err) noexcept {
      return in_step(h, err, [&](StepCoordinator& step) { *out = &step.decide(); });
    },
    [](void* h, const ddh_optim_shard* shard, ddh_stream* stream, ddh_err* err) noexcept {
      return in_step(h, err, [&](StepCoordinator& step) { step.update(checked_shard(shard), stream); });
    },
    [](void* h, const ddh_optim_shard* shard, int32_t replica_index, int32_t replica_count, ddh_stream* stream,
       ddh_err* err) noexcept {
      return in_step(h, err, [&](StepCoordinator& step) {
        if (replica_count < 1 || replica_index < 0 || replica_index >= replica_count)
          ddh::fail(DDH_OUT_OF_RANGE, "replica ", replica_index, " of ", replica_count, " is not valid; give 0 of 1");
        step.prepare(checked_shard(shard), replica_index, replica_count, stream);
      });
    },
    [](void* h, ddh_err* err) noexcept { return in_step(h, err, [](StepCoordinator& step) { step.sum_norms(); }); },
    [](void* h, uint32_t index, int32_t param) noexcept -> int32_t {
      int32_t used = 1;
      guard(nullptr, [&] { used = optimizers_of(h).slot_used(index, param) ? 1 : 0; });
      return used;
    },
    [](void* h, uint32_t index, int32_t param) noexcept -> uint64_t {
      uint64_t numel = 0;
      guard(nullptr, [&] {
        const Optimizers& optimizers = optimizers_of(h);
        if (optimizers.slot_used(index, param)) numel = optimizers.slot_numel(index, param);
      });
      return numel;
    },
    [](void* h, const ddh_decide_args* args, const ddh_step_block** out, ddh_err* err) noexcept {
      return in_step(h, err, [&](StepCoordinator& step) { *out = &step.decide_in(checked(args)); });
    },
};

}  // namespace ddhost::detail
