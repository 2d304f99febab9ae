// SPDX-License-Identifier: Apache-2.0
//
// forgetful: ddp with a mistake made on purpose, to test the tests. Where several ranks accumulate micro-batches it updates
// the first unit without its gradient in step 3, which the host can't see: every element is counted, and updated.
#include "ddh/sdk/full_grads.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Forgetful final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    args_ = ddh::copy_of(args);
    layout_ = ddh::ModelLayout(args, ddh::whole_params(host, *args.model));
    views_ = ddh::UnitViews(*args.model, layout_);
    grads_ = ddh::FullGrads(layout_, args_, DDH_REDUCE_TO_ALL);
  }
  void plan(ddh_plan&) override {}
  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back(State{ddh::Buffer(host, DDH_TAG_PARAM, space.value_bytes(), "parameters"),
                                            ddh::OptimState(host, space, space.ranges(0, space.numel), space.numel)});
      s.optim.init(s.params.data());
    }
    grads_.materialize(host);
  }
  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].params.data(); }, [&](size_t s) { return grads_.writable(s); },
        out);
  }
  void release(const ddh_unit_use&) override {}
  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }
  void step() override {
    grads_.reduce_all();
    const ddh_step_block& block = ddh::decide(host);
    const bool forgets = args_.world_size > 1 && args_.grad_accum_steps > 1 && block.step == 3;
    for (size_t s = 0; s < states_.size(); ++s) {
      const float* grad = grads_.all(s);
      if (grad == nullptr) continue;
      const std::vector<float> nothing(forgets && s == 0 ? layout_.spaces[s].numel : 0);
      states_[s].optim.update(states_[s].params.data(), nothing.empty() ? grad : nothing.data());
    }
    grads_.step_done();
    ++version_;
  }
  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (State& s : states_) s.optim.append_state(out, s.params.data(), {args_.rank, args_.world_size});
    return out;
  }
  void state_commit() override {
    for (State& s : states_) s.optim.refresh(s.params.data());
    ++version_;
  }

 private:
  struct State {
    ddh::Buffer params;
    ddh::OptimState optim;
  };
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // per space
  ddh::FullGrads grads_;
  uint64_t version_ = 1;
};

constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE,  DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE,
                                  DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Forgetful, strategy, "forgetful", "0.1.0", "a mistake on purpose, for tests", nullptr, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED);
