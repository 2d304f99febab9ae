// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/tiered_optim.hpp: optimizer state of this rank's segments on a tier (OffloadedState), counted and reported.
// optim_of chooses between this and memory by the options of ddh/sdk/tier/offload_options.hpp.
// The update is never delayed, so the bits equal those of ResidentOptim. Source: Ren et al., ZeRO-Offload, ATC 2021.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "ddh/sdk/optim/optim_store.hpp"
#include "ddh/sdk/tier/offload_options.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class TieredOptim final : public OptimStore {
 public:
  // Host and layout outlive the store. The parameters' views must outlive it too: a tier may still read into them.
  TieredOptim(const Host& host, const ModelLayout& layout, int32_t rank, const OffloadSettings& settings)
      : host_(host),
        n_spaces_(layout.spaces.size()),
        params_away_(settings.values != Place::device),
        offloaded_(host, layout, rank, settings) {}
  TieredOptim(const TieredOptim&) = delete;
  TieredOptim& operator=(const TieredOptim&) = delete;
  ~TieredOptim() override { report(); }

  // For OffloadedParams, where the values are offloaded too.
  [[nodiscard]] OffloadedState& offloaded() { return offloaded_; }

  [[nodiscard]] uint64_t bytes() const override { return offloaded_.state_bytes(); }
  [[nodiscard]] uint64_t file_bytes() const override { return offloaded_.file_bytes(); }
  [[nodiscard]] uint64_t pinned_bytes() const override { return offloaded_.pinned_state_bytes(); }
  void materialize() override { offloaded_.materialize(); }
  void init(ParamStore& params) override;
  void step_begin() override;
  void prepare(const ddh_step_block& block, ParamStore& params, GradStore& grads) override;
  void update(const ddh_step_block& block, ParamStore& params, GradStore& grads) override;
  void step_done() override;
  void refresh(ParamStore& params) override;
  void free_unused() override { offloaded_.free_unused(); }
  void append_state(std::vector<ddh_state_entry>& out, ParamStore& params) override;
  void state_read(uint32_t entry, uint64_t offset, uint64_t numel, void* dst) override {
    offloaded_.copy_entry(entry, offset, numel, dst, nullptr);
  }
  void state_write(uint32_t entry, uint64_t offset, uint64_t numel, const void* src) override {
    offloaded_.copy_entry(entry, offset, numel, nullptr, src);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Counted {
    uint64_t file_read = 0, file_written = 0, memory_read = 0, memory_written = 0;
  };

  template <class Chosen, class Body>
  void write_windows(ParamStore& params, Chosen&& chosen, Body&& body) const;
  // Reports at the end the disk's transfers, and whether the run waited for them.
  void report() const;

  const Host& host_;
  const size_t n_spaces_;
  const bool params_away_;
  OffloadedState offloaded_;
  std::optional<Clock::time_point> first_step_begun_;
  Clock::time_point last_step_ended_{};
  Tier::Traffic file_traffic_before_;
  Counted counted_;
};

// The store of this rank's segments: in memory with offload_optimizer.device=none, else on that tier. `options` has
// kOffloadOptimizer.
[[nodiscard]] std::unique_ptr<OptimStore> optim_of(const Host& host, const ModelLayout& layout,
                                                   const ddh_attach_args& args, const SectionOptions& options);

}  // namespace DDH_HIDDEN
}  // namespace ddh
