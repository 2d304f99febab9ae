// SPDX-License-Identifier: Apache-2.0
//
// ddp: data parallelism with everything replicated.
//
// Each of N ranks owns      all parameters, all gradients, all optimizer state
// Bytes per rank            16 P: 4 parameters, 4 gradients, 8 AdamW slots;
//                           + 4 P/N with accumulation in rank_first order
// Moved per rank and step   reduce_scatter of P gradients R times, all_gather of the last sums: (R+1) (N-1)/N 4 P sent
// Collectives per step      R reductions for each bucket, of which the last is an all_reduce. A bucket is a unit, or with
//                           bucket_bytes so many units, in the order of their backward, as reach it; tied parameters
//                           are a bucket of their own
// In bf16 and fp16          parameters take half, and 4 P for the master come to the optimizer state
// R: reductions of a gradient in a step: one for each of A micro-batches in rank_first order, 1 in micro_first.
// P: parameters of the model, each padded to 64 elements. Source: Li et al., PyTorch Distributed, VLDB 2020.
//
// Gradients go straight into exchange buffers that peers can read. Each rank sums its segment of them and leaves the
// sum with everyone; then all ranks make the same update of everything.
#include "ddh/sdk/full_grads.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Ddp final : public ddh::Strategy {
 public:
  using Strategy::Strategy;

  void attach(const ddh_attach_args& args) override {
    args_ = args;
    ddh::Grouping buckets;
    buckets.bucket_bytes = static_cast<uint64_t>(options.i64("bucket_bytes"));
    layout_ = ddh::ModelLayout(args_, ddh::whole_params(host, *args.model), buckets);
    views_ = ddh::UnitViews(*args.model, layout_);
    grads_ = ddh::FullGrads(layout_, args_, DDH_REDUCE_TO_ALL);
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.value_bytes();
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.numel);
      if (!space.trained_in(layout_.first_program())) continue;
      out.reduce_calls += ddh::reductions_per_step(args_);
    }
    out.grad_bytes = grads_.bytes();
  }

  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back(
          State{ddh::Buffer(host, DDH_TAG_PARAM, space.value_bytes(), ddh::str("ddp parameters of ", space.name)),
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
    ddh::decide(host);
    const ddh::Replica replica{args_.rank, args_.world_size};
    for (size_t s = 0; s < states_.size(); ++s) {
      if (const float* grad = grads_.all(s)) states_[s].optim.prepare(states_[s].params.data(), grad, replica);
    }
    ddh::sum_norms(host);
    for (size_t s = 0; s < states_.size(); ++s) {
      if (const float* grad = grads_.all(s)) states_[s].optim.update(states_[s].params.data(), grad);
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

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "bucket_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes",
    "description": "units whose gradients are reduced together: as many as reach so much; 0: each alone"},
  "reduce_dtype": {"type": "string", "x-sets": "precision.reduce_dtype",
    "description": "another name of precision.reduce_dtype"}},
  "x-aliases": {"bucket_cap_mb": {"key": "bucket_bytes", "scale": 1048576}}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                  DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Ddp, strategy, "ddp", "0.1.0", "replicate everything; all_reduce gradients", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED, 0, DDH_FEATURES_ALL);
