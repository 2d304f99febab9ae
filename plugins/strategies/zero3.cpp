// SPDX-License-Identifier: Apache-2.0
//
// zero3: parameters, gradients and optimizer state sharded.
//
// Each of N ranks owns      1/N of the parameters, of the gradients and of the optimizer state
// Bytes per rank            16 P/N with AdamW, and in flight: the parameters of a unit and of those prefetched (shared
//                           pages: the other ranks' (N-1)/N of them); two gradient buffers of the largest unit (as in zero2,
//                           three where whole parameters are needed); full gradients of tied parameters, in a buffer of
//                           their own. In micro_first order with accumulation: + 4 P instead of the buffers
// Where windows are copied  instead of these parameters + 4 T at all times and + k 4 L in flight: T tied ones, k the most
//                           other flat spaces (units) that are open at once, L the elements of the largest of them
// Moved per rank and step   for each of A micro-batches all_gather of P parameters for forward and again for backward,
//                           and reduce_scatter of P gradients R times: (2 A + R) (N-1)/N 4 P sent; shared pages need no
//                           gather
// Collectives per step      R reductions and one publish for each unit
// In bf16 and fp16          parameters take half, and 4 P/N for the master come to the optimizer state
// R: reductions of a gradient in a step: one for each of A micro-batches in rank_first order, 1 in micro_first.
// P: parameters of the model, each padded to 64 elements. Source: Rajbhandari et al., ZeRO, SC 2020 (P_os+g+p).
//
// persistence_bytes         small parameters stay gathered: 4 (N-1)/N bytes for each element more (half in 16 bits), and 4
//                           for a full gradient. They are one flat space: one reduction and one publish for all
// overlap_comm=false        one gradient buffer less; a unit's gradients are reduced before the next one's backward
//
// Against zero2: a unit's full parameters are there from acquire to release only; what stays is the rank's segment. What is
// gathered ahead or kept for the next use is a matter of limits.
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/prefetch_policy.hpp"
#include "ddh/sdk/stage_options.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Zero3 final : public ddh::Strategy {
 public:
  explicit Zero3(const ddh_create& create) : Strategy(create), policy_(options) {}

  void attach(const ddh_attach_args& args) override {
    args_ = args;
    layout_ = ddh::ModelLayout(args_, ddh::whole_params(host, *args.model), policy_.grouping());
    views_ = ddh::UnitViews(*args.model, layout_);
    params_ = ddh::GatheredParams(host, layout_, args_.group, args_.rank);
    grads_ = ddh::GradRing(layout_, args_, {.overlap = options.flag("overlap_comm")});
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.segment_numel(args_.rank));
      if (!space.trained_in(layout_.first_program())) continue;
      out.reduce_calls += ddh::reductions_per_step(args_);
      out.publish_calls += 1;
    }
    out.grad_bytes = grads_.bytes();
    ddh::GatheredParams dry(host, layout_, args_.group, args_.rank);
    out.param_bytes =
        dry.resting_bytes() + ddh::peak_open_bytes(
                                  dry, [this](const auto& use, auto& params) { policy_.open(use, params); },
                                  [this](const auto& use, auto& params) { policy_.close(use, params); });
  }

  void materialize() override {
    params_.materialize();
    for (size_t s = 0; s < layout_.spaces.size(); ++s) {
      const ddh::FlatSpace& space = layout_.spaces[s];
      optim_.emplace_back(host, space, space.segment_ranges(args_.rank), space.segment_numel(args_.rank));
      ddh::Window& window = params_.window(s);
      window.write_begin();
      optim_[s].init(window.segment());
      window.commit();
    }
    grads_.materialize(host);
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    policy_.open(use, params_);
    views_.fill(
        use, version_, [&](size_t s) { return params_.view(s); }, [&](size_t s) { return grads_.writable(s); }, out);
  }

  void release(const ddh_unit_use& use) override { policy_.close(use, params_); }

  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }

  void step() override {
    grads_.reduce_all();
    ddh::decide(host);
    for (size_t s = 0; s < optim_.size(); ++s) {
      if (const float* grad = grads_.segment(s)) optim_[s].prepare(params_.window(s).segment(), grad, {});
    }
    ddh::sum_norms(host);
    for (size_t s = 0; s < optim_.size(); ++s) {
      if (grads_.segment(s) == nullptr) continue;
      ddh::Window& window = params_.window(s);
      window.write_begin();
      optim_[s].update(window.segment(), grads_.segment(s));
      window.commit();
    }
    grads_.step_done();
    ++version_;
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (size_t s = 0; s < optim_.size(); ++s) optim_[s].append_state(out, params_.window(s).segment(), {});
    return out;
  }

  void state_commit() override {
    for (size_t s = 0; s < optim_.size(); ++s) {
      params_.window(s).write_begin();
      optim_[s].refresh(params_.window(s).segment());
      params_.window(s).commit();
    }
    ++version_;
  }

 private:
  const ddh::PrefetchPolicy policy_;
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  ddh::GatheredParams params_;
  std::vector<ddh::OptimState> optim_;  // per space, of this rank's segment
  ddh::GradRing grads_;
  uint64_t version_ = 1;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "overlap_comm": {"type": "boolean", "default": true, "x-affects": "memory",
    "description": "sum a unit's gradients while the next ones are computed; false: at once, with a buffer less"},
)" DDH_STAGE_OPTIONS("3") "," DDH_STAGE3_IDLE_OPTIONS "," DDH_NO_OFFLOAD_OPTIONS "," DDH_PREFETCH_OPTIONS R"(},
  "x-aliases": {)" DDH_PREFETCH_ALIASES "," DDH_OFFLOAD_ALIASES R"(}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                  DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Zero3, strategy, "zero3", "0.1.0", "parameters, gradients and optimizer state sharded (ZeRO stage 3)",
               kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD |
                   DDH_CAP_SHARDS_PARAM,
               0, DDH_FEATURES_ALL);
