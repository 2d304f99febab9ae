// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/tier/tiered_optim.hpp"

#include <cmath>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

constexpr auto kEvery = [](size_t) { return true; };
constexpr double kDiskLimits = 0.1;  // fraction of the time; below it, a faster disk gains little

// This rank's segment of a space; nullptr if it is offloaded.
OffloadedState::Values values_of(ParamStore& params) {
  return [&params](size_t s) { return params.values(s); };
}
OffloadedState::Grad sums_of(GradStore& grads) {
  return [&grads](size_t s) { return grads.sum(s); };
}

}  // namespace

// Runs `body` while the windows of the chosen spaces are open for writing, if there are windows.
template <class Chosen, class Body>
void TieredOptim::write_windows(ParamStore& params, Chosen&& chosen, Body&& body) const {
  if (params_away_) return body();
  const auto for_windows = [&](auto&& call_one) {
    for (size_t s = 0; s < n_spaces_; ++s)
      if (Window* const window = chosen(s) ? params.window(s) : nullptr; window != nullptr) call_one(*window);
  };
  for_windows([](Window& window) { window.write_begin(); });
  body();
  for_windows([](Window& window) { window.commit(); });
}

void TieredOptim::init(ParamStore& params) {
  write_windows(params, kEvery, [&] { offloaded_.init(values_of(params)); });
}

void TieredOptim::step_begin() {
  if (first_step_begun_) return;
  first_step_begun_ = Clock::now();
  file_traffic_before_ = offloaded_.file_traffic();
}

void TieredOptim::prepare(const ddh_step_block& block, ParamStore& params, GradStore& grads) {
  if (block.skip == 0) offloaded_.prepare(values_of(params), sums_of(grads));
}

void TieredOptim::update(const ddh_step_block& block, ParamStore& params, GradStore& grads) {
  const OffloadedState::Grad sums = sums_of(grads);
  write_windows(
      params, [&](size_t s) { return sums(s) != nullptr; },
      [&] {
        if (block.skip == 0) offloaded_.update(values_of(params), sums);
      });
}

void TieredOptim::refresh(ParamStore& params) {
  write_windows(params, kEvery, [&] { offloaded_.refresh(values_of(params)); });
}

void TieredOptim::append_state(std::vector<ddh_state_entry>& out, ParamStore& params) {
  offloaded_.forget_entries();
  for (size_t s = 0; s < n_spaces_; ++s) offloaded_.append_state_entries(out, s, params.values(s));
}

void TieredOptim::step_done() {
  last_step_ended_ = Clock::now();
  const Tier::Traffic file = offloaded_.file_traffic(), memory = offloaded_.memory_traffic();
  const auto count = [&](const char* name, uint64_t total, uint64_t& counted) {
    if (host_.metrics != nullptr && total > counted) host_.metrics->count(host_.h, name, total - counted);
    counted = total;
  };
  count("offload.file_read_bytes", file.read_bytes, counted_.file_read);
  count("offload.file_written_bytes", file.written_bytes, counted_.file_written);
  count("offload.memory_read_bytes", memory.read_bytes, counted_.memory_read);
  count("offload.memory_written_bytes", memory.written_bytes, counted_.memory_written);
}

void TieredOptim::report() const {
  if (!first_step_begun_ || offloaded_.file_bytes() == 0) return;
  const Tier::Traffic all = offloaded_.file_traffic(), &before = file_traffic_before_;
  const double seconds = std::chrono::duration<double>(last_step_ended_ - *first_step_begun_).count();
  const double waited = seconds > 0 ? (all.wait_seconds - before.wait_seconds) / seconds : 0;
  const double busy = all.busy_seconds - before.busy_seconds;
  const uint64_t read = all.read_bytes - before.read_bytes, written = all.written_bytes - before.written_bytes;
  host_.log(DDH_LOG_INFO, "nvme, in the steps: ", read, " bytes read, ", written, " written, ",
            busy > 0 ? std::lround(static_cast<double>(read + written) / busy / 1e6) : 0,
            " MB/s while it was busy; the steps waited for it ", std::lround(100 * waited),
            " % of their time: ", waited >= kDiskLimits ? "the disk limits the run" : "computation limits the run");
}

std::unique_ptr<OptimStore> optim_of(const Host& host, const ModelLayout& layout, const ddh_attach_args& args,
                                     const SectionOptions& options) {
  const OffloadSettings settings = offload_settings(host, options, /*offloads_params=*/false);
  if (args.rank == 0) warn_of_idle_options(host, options, settings);
  if (settings.state != Place::device) return std::make_unique<TieredOptim>(host, layout, args.rank, settings);
  return segment_optim(host, layout, args);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
