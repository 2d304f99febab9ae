// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_checks.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/numerics/kernels.hpp"

namespace ddhost {

StepChecks::StepChecks(const StateSource& source, const StepCoordinator& step, const InitialValues& initial,
                       const Comm& comm, Staging& staging)
    : source_(source), step_(step), staging_(staging) {
  staging.device().synchronize(nullptr);
  const std::vector<ddh_state_entry> entries = state_entries(source);
  held_ = held_params(source.model, entries);
  check_held_once(entries, comm);
  check_initial(entries, initial);
}

void StepChecks::check_held_once(const std::vector<ddh_state_entry>& entries, const Comm& comm) const {
  Cover first(source_.model.n_params);
  for (const ddh_state_entry& e : entries)
    if (e.kind == DDH_STATE_PARAM && e.replica_index == 0) first.add(e.param, e.offset, e.numel);
  const std::vector<Cover::Param>& mine = first.params();
  std::vector<Cover::Param> all(mine.size() * static_cast<size_t>(comm.world_size())), sum(mine.size());
  comm.all_gather_bytes(mine.data(), all.data(), mine.size() * sizeof(Cover::Param), "held parameters");
  for (size_t i = 0; i < all.size(); ++i) sum[i % mine.size()] += all[i];
  for (uint32_t p = 0; p < source_.model.n_params; ++p) {
    const auto param = static_cast<int32_t>(p);
    const uint64_t numel = source_.model.params[p]->numel;
    if (sum[p] == Cover::piece(param, 0, numel)) continue;
    source_.strategy.caller().blame(PluginCall::kState, {}, "the entries of all ranks with replica_index 0 have ",
                                    sum[p].numel, " elements of parameter ", param_text(source_.model, param),
                                    "; each of its ", numel, " must occur once");
  }
}

void StepChecks::check_initial(const std::vector<ddh_state_entry>& entries, const InitialValues& initial) const {
  std::array<float, DDH_GRID> drawn{};
  std::array<char, DDH_GRID * sizeof(float)> wanted{};
  for (const ddh_state_entry& e : entries) {
    if (e.kind != DDH_STATE_PARAM || e.numel == 0 || e.data == nullptr) continue;
    const uint64_t width = ddh_dtype_bytes(e.dtype);
    for (const uint64_t begin : {uint64_t{0}, (e.numel - 1) / DDH_GRID * DDH_GRID}) {
      const uint64_t numel = std::min<uint64_t>(DDH_GRID, e.numel - begin), bytes = numel * width;
      initial.init_range(e.param, e.offset + begin, numel, drawn.data());
      kernels::cast(wanted.data(), e.dtype, drawn.data(), DDH_F32, numel);
      const char* const held = staging_.readable(static_cast<const char*>(e.data) + begin * width, bytes, nullptr);
      if (std::memcmp(held, wanted.data(), bytes) == 0) continue;
      source_.strategy.caller().blame(PluginCall::kMaterialize, {}, "left parameter ",
                                      param_text(source_.model, e.param), " with other values than its initial ones, ",
                                      "in elements ", e.offset + begin, " to ", e.offset + begin + numel - 1,
                                      "; initialize it by ddh.params init_range");
    }
  }
}

void StepChecks::after_step() {
  const ddh_step_block& block = step_.block();
  const bool nonfinite = !step_.outcome().nonfinite.empty();
  source_.strategy.caller().checked(PluginCall::kStep, [&] {
    step_.require_done();
    if (block.skip == 0) step_.account().check_updates(held_);
  });
  if (nonfinite && block.skip == 0) applied_nonfinite_ = true;
  if (block.skip == 0) ++updates_;
  if (!applied_nonfinite_ && (nonfinite || (block.skip == 0 && updates_ <= kFirstUpdates))) check_finite("after step ");
}

void StepChecks::check_finite(const char* when) const {
  staging_.device().synchronize(nullptr);
  const std::optional<NonfinitePlace> place = first_nonfinite(state_entries(source_), staging_);
  if (!place) return;
  ddh::fail(DDH_DATA_LOSS, "parameter ", param_text(source_.model, place->param), " is not finite from element ",
            place->element, " on ", when, step_.block().step, ": ", blame_for_nonfinite());
}

std::string StepChecks::blame_for_nonfinite() const {
  if (applied_nonfinite_)
    return "a gradient that is not finite was applied, because train.skip_nonfinite is false; set it to true, or lower "
           "optimizer.lr";
  if (updates_ == 0)
    return "its first value is not finite; fix the file of train.init_from, or the model's initial values";
  return ddh::str("every gradient that was applied was finite; lower optimizer.lr, and if that does not help, check ",
                  source_.strategy.caller().name(), " and ", step_.optimizer_caller().name(), ", which write it");
}

}  // namespace ddhost
