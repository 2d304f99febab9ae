// SPDX-License-Identifier: Apache-2.0
#include "engine/state/phase_state.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ddhost {
namespace {

void zero(const StateSource& source, const ddh_state_entry& entry, uint32_t index, Staging& staging) {
  const uint64_t width = ddh_dtype_bytes(entry.dtype);
  if (entry.data != nullptr) {
    char* const at = staging.begin(entry.data, entry.numel * width);
    std::memset(at, 0, entry.numel * width);
    staging.store(entry.data, at, entry.numel * width, nullptr);
    return staging.wait();
  }
  if (!DDH_CAN(&source.table, ddh_strategy_api, state_write))
    source.strategy.caller().blame(PluginCall::kState, {},
                                   "has entries without a pointer, but there is no state_write");
  constexpr uint64_t kPieceNumel = uint64_t{4} << 20;
  const std::vector<char> zeros(std::min(kPieceNumel, entry.numel) * width);
  for (uint64_t done = 0, numel = 0; done < entry.numel; done += numel) {
    numel = std::min(kPieceNumel, entry.numel - done);
    source.strategy.call(PluginCall::kStateWrite, source.table.state_write, index, done, numel, zeros.data());
  }
}

}  // namespace

void renew_optimizer_state(const StateSource& source, StepCoordinator& step, int32_t program, Staging& staging) {
  staging.device().synchronize(nullptr);  // the last updates
  const Optimizers::SlotRange slots = step.optimizers().slots_of(program);
  const std::span<const uint8_t> trained = step.optimizers().trained_by(program);
  const std::vector<ddh_state_entry> entries = state_entries(source);
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const ddh_state_entry& e = entries[i];
    const auto slot = static_cast<uint32_t>(e.slot);
    const bool is_its = e.kind == DDH_STATE_SLOT && slot >= slots.first && slot < slots.end;
    if (is_its && trained[static_cast<size_t>(e.param)] != 0) zero(source, e, i, staging);
  }
  source.strategy.call(PluginCall::kStateCommit, source.table.state_commit);
  step.forget_updates(program);
}

void free_past_state(const StateSource& source, const Optimizers& optimizers) {
  if (!DDH_CAN(&source.table, ddh_strategy_api, trains_later)) return;
  const std::vector<uint8_t> trains = optimizers.trained_later();
  source.strategy.call(PluginCall::kTrainsLater, source.table.trains_later, trains.data());
}

}  // namespace ddhost
