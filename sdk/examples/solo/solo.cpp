// SPDX-License-Identifier: Apache-2.0
//
// solo: the smallest strategy. It has one rank, which keeps everything and sends nothing.
#include "ddh/sdk/optim/optim_state.hpp"
#include "ddh/sdk/params/unit_views.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Solo final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    if (args.world_size != 1 || args.grad_accum_steps != 1)
      ddh::fail(DDH_FAILED_PRECONDITION,
                "solo trains on one rank without accumulation; use --nproc 1, or --strategy ddp");
    layout_ = ddh::ModelLayout(args, ddh::whole_params(host, *args.model));
    views_ = ddh::UnitViews(*args.model, layout_);
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.value_bytes();
      out.grad_bytes += space.grad_bytes();
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.numel);
    }
    out.sent_bytes = out.sent_between_nodes_bytes = 0;
  }

  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      const std::vector<ddh_range> ranges = space.ranges(0, space.numel);
      states_.push_back({ddh::Buffer(host, DDH_TAG_PARAM, space.value_bytes(), space.name),
                         ddh::Buffer(host, DDH_TAG_GRAD, space.grad_bytes(), space.name), ranges,
                         ddh::OptimState(host, space, ranges, space.numel), false});
      states_.back().optim.init(states_.back().params.data());
    }
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].params.data(); },
        [&](size_t s) { return states_[s].grads.f32(); }, out);
  }
  void release(const ddh_unit_use&) override {}

  void grads_ready(const ddh_unit_use& use) override {
    for (const size_t s : layout_.trained_spaces(use.unit, use.program)) states_[s].ready = true;
  }

  void step() override {
    const auto each_ready = [&](auto&& body) {
      for (State& s : states_)
        if (s.ready) body(s);
    };
    each_ready([&](State& s) {
      ddh::call(host.optim->add_gradient, host.h, s.grads.f32(), s.ranges.data(),
                static_cast<uint32_t>(s.ranges.size()));
    });
    ddh::decide(host);
    each_ready([&](State& s) { s.optim.prepare(s.params.data(), s.grads.f32(), {}); });
    ddh::sum_norms(host);
    each_ready([&](State& s) { s.optim.update(s.params.data(), s.grads.f32()); });
    for (size_t i = 0; i < states_.size(); ++i) {
      states_[i].ready = false;
      views_.forget_gradients(layout_.spaces[i]);
    }
    ++version_;
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (const State& s : states_) s.optim.append_state(out, s.params.data(), {});
    return out;
  }
  void state_commit() override {
    for (State& s : states_) s.optim.refresh(s.params.data());
    ++version_;
  }

 private:
  struct State {
    ddh::Buffer params, grads;
    std::vector<ddh_range> ranges;
    ddh::OptimState optim;
    bool ready;  // the gradients of this step are complete
  };
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // one per flat space
  uint64_t version_ = 1;
};

constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE,  DDH_FLATOPS_IFACE, DDH_OPTIM_IFACE,
                                  DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Solo, strategy, "solo", "0.1.0", "one rank, nothing sharded", nullptr, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_DRY_ATTACH | DDH_CAP_STREAM_ORDERED);
