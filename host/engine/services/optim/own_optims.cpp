// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/own_optims.hpp"

#include <algorithm>
#include <utility>

#include "engine/calls/instance.hpp"
#include "engine/services/optim/optimizers.hpp"
#include "engine/services/optim/step_account.hpp"
#include "engine/services/tables/interfaces.hpp"

namespace ddhost {
namespace {

class Made final : public OwnOptim {
 public:
  Made(RankServices& services, const ddh_model_desc& model, const Plugin& plugin, const std::string& section,
       const std::string& options)
      : model_(model),
        account_(model),
        seat_(services, "optimizer:" + plugin.id(), section, plugin.desc,
              services.config.with_section(section, plugin.desc->config_schema, "optimizer '" + plugin.id() + "'",
                                           options)),
        instance_(plugin, seat_.host(), section, &services.seat.record),
        table_(instance_.require<ddh_optimizer_api>(DDH_OPTIMIZER_IFACE, DDH_OPTIMIZER_API_MIN_SIZE)) {
    instance_.call(PluginCall::kAttach, table_.attach, &model);
    check_slots(instance_.get(), table_, instance_.caller());
    for (uint32_t i = 0, n = table_.slot_count(instance_.get()); i < n; ++i) {
      ddh_slot_desc& slot = slots_.emplace_back();
      slot.struct_size = sizeof slot;
      instance_.call(PluginCall::kSlot, table_.slot, i, &slot);
    }
    for (uint32_t p = 0; p < model.n_params; ++p)
      if (needs(static_cast<int32_t>(p)) == DDH_NEEDS_PARAM_NORM)
        ddh::fail(DDH_FAILED_PRECONDITION, "optimizer '", plugin.id(), "' of section '", section,
                  "' needs norms of whole parameters over all ranks, which an optimizer of a strategy's own does not ",
                  "get; choose another one");
  }

  [[nodiscard]] const std::vector<ddh_slot_desc>& slots() const override { return slots_; }
  [[nodiscard]] int32_t needs(int32_t param) const override {
    const PluginCaller::Entered entered = instance_.caller().enter(PluginCall::kNeeds);
    return table_.needs == nullptr ? DDH_NEEDS_NOTHING : table_.needs(instance_.get(), param);
  }

  // The strategy counts its updates, the same of all parameters.
  void update(const ddh_optim_shard& shard, const ddh_step_block& block) override {
    account_.check_ranges(shard.ranges, shard.n_ranges);
    if (block.skip != 0 || shard.n_ranges == 0) return;
    const bool is_whole =
        shard.master != nullptr && shard.n_slots == slots_.size() && shard.n_grads > 0 &&
        std::all_of(shard.slots, shard.slots + shard.n_slots, [](const void* p) { return p != nullptr; });
    if (!is_whole)
      ddh::fail(DDH_INVALID_ARGUMENT, "the shard for ", instance_.caller().name(), " of section '", seat_.section,
                "' needs a master, a gradient and memory for each of its ", slots_.size(), " slots; fix the strategy");
    steps_.assign(model_.n_params, block.step);
    const ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block, steps_.data(), nullptr, nullptr};
    instance_.call(PluginCall::kUpdate, table_.update, &args);
  }

 private:
  const ddh_model_desc& model_;
  const StepAccount account_;
  PluginSeat seat_;
  Instance instance_;
  const ddh_optimizer_api& table_;
  std::vector<ddh_slot_desc> slots_;
  std::vector<int64_t> steps_;
};

}  // namespace

OwnOptims::OwnOptims(RankServices& services, const ddh_model_desc& model, FindOptimizer find)
    : services_(services), model_(model), find_(std::move(find)) {}
OwnOptims::~OwnOptims() = default;

OwnOptim& OwnOptims::create(const std::string& id, const std::string& section, const std::string& options) {
  if (!find_) ddh::fail(DDH_NOT_FOUND, "no optimizers can be loaded here");
  all_.push_back(std::make_unique<Made>(services_, model_, find_(id), section, options));
  return *all_.back();
}

}  // namespace ddhost
