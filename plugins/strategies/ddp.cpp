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

#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"
#include "ddh/sdk/window.hpp"

namespace {

class Ddp final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    ddh::require_fp32(args, "ddp");
    args_ = args;
    layout_ = ddh::ModelLayout(*args.model, args.world_size);
    views_ = ddh::UnitViews(*args.model, layout_);
    accumulates_ = args.grad_accum_steps > 1 && args.reduce_order == DDH_RANK_FIRST;
  }

  void plan(ddh_plan& out) override {
    const uint64_t slot_bytes = ddh::OptimState::bytes_per_element(host);
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.bytes();
      if (!space.trained()) continue;
      out.grad_bytes += space.bytes() + (accumulates_ ? space.segment_bytes(args_.rank) : 0);
      out.optim_bytes += space.numel * slot_bytes;
      out.reduce_calls += accumulates_ ? args_.grad_accum_steps : 1;
    }
  }

  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back();
      s.params = ddh::Buffer(host, DDH_TAG_PARAM, space.bytes(), ddh::str("ddp parameters of ", space.name));
      ddh::init_segment(host, space.ranges(0, space.numel), s.params.f32());
      if (!space.trained()) continue;
      s.segment_ranges = space.segment_ranges(args_.rank);
      s.grads.emplace(host, args_.group, space.name, space.numel);
      s.optim.emplace(host, space.name, space.ranges(0, space.numel), space.numel);
      if (accumulates_) s.sum = ddh::Buffer(host, DDH_TAG_GRAD, space.segment_bytes(args_.rank), space.name);
    }
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].params.f32(); }, [&](size_t s) { return writable_grads(s); },
        out);
  }

  void release(const ddh_unit_use&) override {}

  void grads_ready(const ddh_unit_use& use) override {
    const bool last = static_cast<uint32_t>(use.micro_batch) + 1 == args_.grad_accum_steps;
    if (args_.reduce_order == DDH_MICRO_FIRST && !last) return;
    for (const size_t s : layout_.trained_spaces(use.unit, use.program)) {
      states_[s].grads->ready();
      states_[s].phase = Phase::kReady;
      views_.forget_gradients(layout_.spaces[s]);
    }
  }

  void step() override {
    for (size_t s = 0; s < states_.size(); ++s) {
      if (states_[s].phase == Phase::kReady) reduce(s, DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL);
    }
    const ddh_step_block* block = nullptr;
    ddh::call(host.optim->decide, host.h, &block);
    for (State& s : states_) {
      if (s.phase != Phase::kReduced) continue;
      s.grads->wait();
      s.optim->update(s.params.f32(), s.grads->buffer());
      s.phase = Phase::kIdle;
      s.reductions = 0;
    }
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
  // What a gradient buffer holds: nothing yet; this rank is writing; complete here; summed over the ranks.
  enum class Phase { kIdle, kWriting, kReady, kReduced };

  struct State {
    ddh::Buffer params;
    std::vector<ddh_range> segment_ranges;
    std::optional<ddh::Exchange> grads;
    std::optional<ddh::OptimState> optim;
    ddh::Buffer sum;  // of earlier micro-batches, this rank's segment
    Phase phase = Phase::kIdle;
    uint32_t reductions = 0;  // in this step
  };

  float* writable_grads(size_t index) {
    State& s = states_[index];
    if (s.phase == Phase::kReady) reduce(index, 0);  // the micro-batch before
    if (s.phase != Phase::kWriting) s.grads->write_begin();
    s.phase = Phase::kWriting;
    return s.grads->buffer();
  }

  void reduce(size_t index, uint32_t flags) {
    State& s = states_[index];
    if (s.reductions > 0) flags |= DDH_REDUCE_ADD;
    s.grads->reduce(layout_.spaces[index], accumulates_ ? s.sum.f32() : nullptr, s.segment_ranges, flags);
    s.phase = Phase::kReduced;
    ++s.reductions;
  }

  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // one per flat space
  bool accumulates_ = false;
  uint64_t version_ = 1;
};

constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Ddp, strategy, "ddp", "0.1.0", "replicate everything; all_reduce gradients", nullptr, kNeeds,
               DDH_CAP_IN_PROCESS);
