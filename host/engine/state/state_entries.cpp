// SPDX-License-Identifier: Apache-2.0
#include "engine/state/state_entries.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/usable_values.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kMaxEntries = 1U << 24;

constexpr size_t kMaxStateName = 64;

bool is_state_name(const char* name) {
  const std::string_view text = name == nullptr ? "" : name;
  const auto is_fine = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= kMaxStateName && std::all_of(text.begin(), text.end(), is_fine);
}

template <class Refuse>
void check_place(const StateSource& source, const ddh_state_entry& e, const Refuse& refuse) {
  if (e.param < 0 || static_cast<uint32_t>(e.param) >= source.model.n_params)
    refuse("names parameter ", e.param, " of ", source.model.n_params);
  const Optimizers& optimizers = source.step.optimizers();
  const uint32_t slots = optimizers.slot_count();
  const bool is_slot = e.kind == DDH_STATE_SLOT;
  if (is_slot && (e.slot < 0 || static_cast<uint32_t>(e.slot) >= slots))
    refuse("is of the optimizer's slot ", e.slot, " of ", slots);
  const auto slot = static_cast<uint32_t>(e.slot);
  const uint64_t numel = is_slot ? optimizers.slot_numel(slot, e.param) : source.model.params[e.param]->numel;
  const uint64_t grid = is_slot && optimizers.slot(slot).extent == DDH_SLOT_PER_BLOCK ? 1 : DDH_GRID;
  const auto refuse_place = [&](const auto&... what) {
    refuse("has ", e.numel, " elements from element ", e.offset, " on of ",
           is_slot ? ddh::str("slot '", optimizers.slot(slot).name, "' of ") : "", "parameter ",
           param_text(source.model, e.param), ", which ", what...);
  };
  if (e.offset > numel || e.numel > numel - e.offset) refuse_place("has ", numel);
  if (e.offset % grid != 0 || (e.numel % grid != 0 && e.offset + e.numel != numel))
    refuse_place("is not cut at multiples of ", DDH_GRID, " elements");
}

void check_entry(const StateSource& source, const ddh_state_entry& e, uint32_t index) {
  const auto refuse = [&](const auto&... what) {
    source.strategy.caller().blame(PluginCall::kState, {}, "entry ", index, " ", what...);
  };
  if (e.struct_size < DDH_STATE_ENTRY_MIN_SIZE)
    refuse("has struct_size ", e.struct_size, ", but at least ", DDH_STATE_ENTRY_MIN_SIZE, " are needed");
  if (e.kind != DDH_STATE_PARAM && e.kind != DDH_STATE_SLOT && e.kind != DDH_STATE_OWN)
    refuse("is of kind ", e.kind, "; use DDH_STATE_PARAM, DDH_STATE_SLOT or DDH_STATE_OWN");
  const bool is_own = e.kind == DDH_STATE_OWN, is_array = is_own && e.param == -1;
  if (is_own && !is_state_name(e.name))
    refuse("is DDH_STATE_OWN and ",
           e.name == nullptr || *e.name == '\0' ? "has no name"
                                                : "is called '" + std::string(e.name).substr(0, kMaxStateName) + "'",
           "; give it a name of lower-case letters, digits, '_' and '.', at most ", kMaxStateName);
  if (e.scope != DDH_SCOPE_SHARED && e.scope != DDH_SCOPE_RANK)
    refuse("has scope ", e.scope, "; use DDH_SCOPE_SHARED or DDH_SCOPE_RANK");
  if (!is_array) check_place(source, e, refuse);
  if (is_array && (e.offset % DDH_GRID != 0 || e.offset + e.numel < e.offset))
    refuse("'", e.name, "' begins at element ", e.offset, "; begin at a multiple of ", DDH_GRID);
  const uint64_t width = ddh_dtype_bytes(e.dtype);
  const bool is_number = e.dtype == DDH_F32 || e.dtype == DDH_BF16 || e.dtype == DDH_F16;
  if (width == 0 || (e.kind == DDH_STATE_PARAM && !is_number))
    refuse("has dtype ", e.dtype, "; parameters are DDH_F32, DDH_BF16 or DDH_F16");
  if (e.memory < DDH_MEM_HOST || e.memory > DDH_MEM_FILE) refuse("is in memory ", e.memory, "; use one of DDH_MEM_*");
  if (e.data == nullptr && e.memory != DDH_MEM_FILE && e.numel > 0)
    refuse(is_own ? "'" + std::string(e.name) + "'" : "of parameter " + param_text(source.model, e.param),
           " has no data (NULL), and is not in a file");
  if (reinterpret_cast<uintptr_t>(e.data) % width != 0)
    refuse("has data at an address that is not a multiple of ", width);
  if (e.replica_count < 1 || e.replica_index < 0 || e.replica_index >= e.replica_count)
    refuse("is replica ", e.replica_index, " of ", e.replica_count, "; give 0 of 1 if no other rank holds it");
}

// Two entries of one name hold different elements of one tensor.
void check_names(const StateSource& source, const std::vector<ddh_state_entry>& entries) {
  std::map<std::pair<std::string_view, int32_t>, std::vector<const ddh_state_entry*>> named;
  for (const ddh_state_entry& e : entries) {
    if (e.kind != DDH_STATE_OWN || e.numel == 0) continue;
    std::vector<const ddh_state_entry*>& others = named[{e.name, e.param}];
    for (const ddh_state_entry* other : others)
      if (e.offset < other->offset + other->numel && other->offset < e.offset + e.numel)
        source.strategy.caller().blame(
            PluginCall::kState, {}, "lists the own entry '", e.name, "'",
            e.param < 0 ? std::string() : " of parameter " + param_text(source.model, e.param),
            " twice; give each a name of its own");
    others.push_back(&e);
  }
}

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

std::vector<ddh_state_entry> state_entries(const StateSource& source) {
  uint32_t count = 0;
  source.strategy.call(PluginCall::kState, source.table.state, nullptr, sizeof(ddh_state_entry), &count);
  if (count > kMaxEntries)
    source.strategy.caller().blame(PluginCall::kState, {}, "says that it has ", count, " entries");
  std::vector<ddh_state_entry> entries(count);
  for (ddh_state_entry& entry : entries) entry.struct_size = sizeof entry;
  uint32_t given = count;
  source.strategy.call(PluginCall::kState, source.table.state, entries.data(), sizeof(ddh_state_entry), &given);
  if (given != count)
    source.strategy.caller().blame(PluginCall::kState, {}, "first had ", count, " entries and then gave ", given);
  for (uint32_t i = 0; i < count; ++i) check_entry(source, entries[i], i);
  check_names(source, entries);
  return entries;
}

Cover held_params(const ddh_model_desc& model, const std::vector<ddh_state_entry>& entries) {
  Cover held(model.n_params);
  for (const ddh_state_entry& e : entries)
    if (e.kind == DDH_STATE_PARAM) held.add(e.param, e.offset, e.numel);
  return held;
}

std::optional<NonfinitePlace> first_nonfinite(const std::vector<ddh_state_entry>& entries, Staging& staging) {
  for (const ddh_state_entry& e : entries) {
    if (e.kind != DDH_STATE_PARAM || e.dtype != DDH_F32 || e.data == nullptr) continue;
    const auto* values = reinterpret_cast<const float*>(staging.readable(e.data, e.numel * sizeof(float), nullptr));
    if (const std::optional<uint64_t> at = first_nonfinite(values, e.numel))
      return NonfinitePlace{e.param, e.offset + *at};
  }
  return std::nullopt;
}

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
