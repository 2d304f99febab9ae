// SPDX-License-Identifier: Apache-2.0
//
// ddp: data parallelism with everything replicated.
//
// Each of N ranks owns      all parameters, all gradients, all optimizer state
// Bytes per rank            16 P: 4 parameters, 4 gradients, 8 AdamW slots;
//                           + 4 P/N with accumulation in rank_first order
// Moved per rank and step   all_reduce of P gradients = reduce_scatter + all_gather: 2 (N-1)/N 4 P sent
// Collectives per step      one all_reduce for each unit; in rank_first order one reduction for each further
//                           micro-batch
// P: parameters of the model, each padded to 64 elements. Source: Li et al., PyTorch Distributed, VLDB 2020.
//
// Gradients go straight into exchange buffers that peers can read. Each rank sums its segment of them and leaves the
// sum with everyone; then all ranks make the same update of everything.
#include <optional>

#include "ddh/sdk/full_grads.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Ddp final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    ddh::require_fp32(args, "ddp");
    args_ = args;
    layout_ = ddh::ModelLayout(*args.model, args.world_size);
    views_ = ddh::UnitViews(*args.model, layout_);
    grads_ = ddh::FullGrads(layout_, args_, DDH_REDUCE_TO_ALL);
  }

  void plan(ddh_plan& out) override {
    const uint64_t slot_bytes = ddh::OptimState::bytes_per_element(host);
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.bytes();
      if (!space.trained()) continue;
      out.optim_bytes += space.numel * slot_bytes;
      out.reduce_calls += args_.reduce_order == DDH_RANK_FIRST ? args_.grad_accum_steps : 1;
    }
    out.grad_bytes = grads_.bytes();
  }

  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back();
      s.params = ddh::Buffer(host, DDH_TAG_PARAM, space.bytes(), ddh::str("ddp parameters of ", space.name));
      ddh::init_segment(host, space.ranges(0, space.numel), s.params.f32());
      if (!space.trained()) continue;
      s.optim.emplace(host, space.name, space.ranges(0, space.numel), space.numel);
    }
    grads_.materialize(host);
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].params.f32(); }, [&](size_t s) { return grads_.writable(s); },
        out);
  }

  void release(const ddh_unit_use&) override {}

  void grads_ready(const ddh_unit_use& use) override {
    const bool last = static_cast<uint32_t>(use.micro_batch) + 1 == args_.grad_accum_steps;
    if (args_.reduce_order == DDH_MICRO_FIRST && !last) return;
    for (const size_t s : layout_.trained_spaces(use.unit, use.program)) {
      grads_.ready(s, last);
      views_.forget_gradients(layout_.spaces[s]);
    }
  }

  void step() override {
    grads_.reduce_all();
    const ddh_step_block* block = nullptr;
    ddh::call(host.optim->decide, host.h, &block);
    for (size_t s = 0; s < states_.size(); ++s) {
      if (const float* grad = grads_.all(s)) states_[s].optim->update(states_[s].params.f32(), grad);
    }
    grads_.step_done();
    ++version_;
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (size_t i = 0; i < states_.size(); ++i) {
      const ddh::FlatSpace& space = layout_.spaces[i];
      ddh::append_state(out, space.ranges(0, space.numel), DDH_STATE_PARAM, 0, states_[i].params.f32(), args_.rank,
                        args_.world_size);
      if (states_[i].optim) states_[i].optim->append_state_entries(out, args_.rank, args_.world_size);
    }
    return out;
  }

  void state_commit() override { ++version_; }

 private:
  struct State {
    ddh::Buffer params;
    std::optional<ddh::OptimState> optim;
  };

  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // per space
  ddh::FullGrads grads_;
  uint64_t version_ = 1;
};

constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Ddp, strategy, "ddp", "0.1.0", "replicate everything; all_reduce gradients", nullptr, kNeeds,
               DDH_CAP_IN_PROCESS);
