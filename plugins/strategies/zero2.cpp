// SPDX-License-Identifier: Apache-2.0
//
// zero2: gradients and optimizer state sharded, parameters replicated.
//
// Each of N ranks owns      all parameters, 1/N of the gradients and of the optimizer state
// Bytes per rank            4 P + 12 P/N with AdamW, and in flight: two gradient buffers of the largest bucket (one
//                           with overlap_comm=false), and full gradients of tied parameters. In micro_first order
//                           with accumulation: + 4 P instead. An optimizer that needs whole parameters has two flat
//                           spaces in a unit: three buffers (two), and twice the collectives
// Moved per rank and step   reduce_scatter of P gradients R times, all_gather of P parameters: (R+1) (N-1)/N 4 P sent
// Collectives per step      R reductions and one publish for each bucket. A bucket is a unit, or with
//                           reduce_bucket_bytes so many units, in the order of their backward, as reach it; tied
//                           parameters are a bucket of their own
// In bf16 and fp16          parameters take half, and 4 P/N for the master come to the optimizer state
// R: reductions of a gradient in a step: one for each of A micro-batches in rank_first order, 1 in micro_first.
// P: parameters of the model, each padded to 64 elements. Source: Rajbhandari et al., ZeRO, SC 2020 (P_os+g).
//
// Against zero1: a bucket's full gradients are there from its backward to their reduction only; what stays is the
// rank's segment.
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/stage_options.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Zero2 final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    args_ = args;
    layout_ = ddh::ModelLayout(args_, ddh::whole_params(host, *args.model), ddh::bucket_options(options));
    views_ = ddh::UnitViews(*args.model, layout_);
    overlap_publish_ = options.flag("overlap_publish");
    grads_ = ddh::GradRing(layout_, args_, {.overlap = options.flag("overlap_comm")});
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.value_bytes();
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.segment_numel(args_.rank));
      if (!space.trained_in(layout_.first_program())) continue;
      out.reduce_calls += ddh::reductions_per_step(args_);
      out.publish_calls += 1;
    }
    out.grad_bytes = grads_.bytes();
  }

  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back(
          State{ddh::Window(host, args_.group, space, DDH_WINDOW_PERMANENT),
                ddh::OptimState(host, space, space.segment_ranges(args_.rank), space.segment_numel(args_.rank))});
      s.params.write_begin();
      s.optim.init(s.params.segment());
      s.params.commit();
    }
    grads_.materialize(host);
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) states_[s].view = states_[s].params.open();
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].view; }, [&](size_t s) { return grads_.writable(s); }, out);
  }

  void release(const ddh_unit_use& use) override {
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) states_[s].params.close();
  }

  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }

  void step() override {
    grads_.reduce_all();
    ddh::decide(host);
    for (size_t s = 0; s < states_.size(); ++s) {
      if (const float* grad = grads_.segment(s)) states_[s].optim.prepare(states_[s].params.segment(), grad, {});
    }
    ddh::sum_norms(host);
    for (size_t s = 0; s < states_.size(); ++s) {
      if (grads_.segment(s) == nullptr) continue;
      states_[s].params.write_begin();
      states_[s].optim.update(states_[s].params.segment(), grads_.segment(s));
      states_[s].params.commit();
    }
    grads_.step_done();
    ++version_;
    if (overlap_publish_) return;
    for (State& s : states_) s.params.open();
    for (State& s : states_) s.params.close();
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (State& s : states_) s.optim.append_state(out, s.params.segment(), {});
    return out;
  }

  void state_commit() override {
    for (State& s : states_) {
      s.params.write_begin();
      s.optim.refresh(s.params.segment());
      s.params.commit();
    }
    ++version_;
  }

 private:
  struct State {
    ddh::Window params;
    ddh::OptimState optim;  // of this rank's segment
    void* view = nullptr;   // while open
  };

  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // per space
  ddh::GradRing grads_;
  uint64_t version_ = 1;
  bool overlap_publish_ = true;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "overlap_comm": {"type": "boolean", "default": true, "x-affects": "memory",
    "description": "sum a bucket's gradients while the next ones are computed; false: at once, with a buffer less"},
)" DDH_BUCKET_OPTIONS "," DDH_STAGE_OPTIONS("2") "," DDH_NO_OFFLOAD_OPTIONS R"(},
  "x-aliases": {)" DDH_BUCKET_ALIASES "," DDH_OFFLOAD_ALIASES R"(}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                  DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Zero2, strategy, "zero2", "0.1.0", "gradients and optimizer state sharded (ZeRO stage 2)", kSchema,
               kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD, 0,
               DDH_FEATURES_ALL);
