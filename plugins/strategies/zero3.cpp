// SPDX-License-Identifier: Apache-2.0
//
// zero3: parameters, gradients and optimizer state sharded.
//
// Each of N ranks owns      1/N of the parameters, of the gradients and of the optimizer state
// Bytes per rank            16 P/N with AdamW, and in flight: the parameters of a unit and of those prefetched; two
//                           gradient buffers of the largest unit; full gradients of tied parameters, which live from
//                           the head's backward to the embedding's. In micro_first order with accumulation: + 4 P
//                           instead of the buffers
// Moved per rank and step   for each micro-batch all_gather of P parameters for forward and again for backward, and
//                           reduce_scatter of P gradients: 3 (N-1)/N 4 P sent; shared pages need no gather
// Collectives per step      one reduction for each unit and micro-batch, one publish for each unit
// In bf16 and fp16          parameters take half, and 4 P/N for the master come to the optimizer state
// P: parameters of the model, each padded to 64 elements. Source: Rajbhandari et al., ZeRO, SC 2020 (P_os+g+p).
//
// Against zero2: a unit's full parameters are there from acquire to release only; what stays is the rank's segment.
#include <set>
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Zero3 final : public ddh::Strategy {
 public:
  explicit Zero3(const ddh_create& create)
      : Strategy(create), prefetch_units_(static_cast<uint32_t>(host.i64("strategy.prefetch_units"))) {}

  void attach(const ddh_attach_args& args) override {
    args_ = ddh::copy_of(args);
    layout_ = ddh::ModelLayout(*args.model, args.world_size, args.compute_dtype, ddh::whole_params(host, *args.model));
    views_ = ddh::UnitViews(*args.model, layout_);
    gathers_by_copy_ = (host.window->caps(host.h, args.group) & DDH_COMM_SHARED_VIEW) == 0;
    grads_ = ddh::GradRing(layout_, args_);
    for (const ddh::FlatSpace& space : layout_.spaces) {
      if (!space.shared) view_slot_bytes_ = std::max(view_slot_bytes_, space.value_bytes());
    }
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.param_bytes += space.value_segment_bytes(args_.rank);
      if (gathers_by_copy_ && space.shared) out.param_bytes += space.value_bytes();
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.segment_numel(args_.rank));
      if (!space.trained()) continue;
      out.reduce_calls += args_.reduce_order == DDH_RANK_FIRST ? args_.grad_accum_steps : 1;
      out.publish_calls += 1;
    }
    out.grad_bytes = grads_.bytes();
    out.param_bytes += peak_in_flight_bytes();
  }

  void materialize() override {
    for (size_t i = 0; i < layout_.spaces.size(); ++i) {
      const ddh::FlatSpace& space = layout_.spaces[i];
      State& s = states_.emplace_back(
          State{ddh::Window(host, args_.group, space, 0),
                ddh::OptimState(host, space, space.segment_ranges(args_.rank), space.segment_numel(args_.rank))});
      s.params.write_begin();
      s.optim.init(s.params.segment());
      s.params.commit();
      if (gathers_by_copy_ && space.shared) s.own_backing = view_buffer(space.value_bytes());
    }
    grads_.materialize(host);
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    open_unit(use.unit);
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) ++states_[s].uses;
    for (uint32_t i = 0; i < std::min(prefetch_units_, use.n_next); ++i) open_unit(use.next[i]);
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].view; }, [&](size_t s) { return grads_.writable(s); }, out);
  }

  // Closes all that neither an acquired unit nor the next ones need.
  void release(const ddh_unit_use& use) override {
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) --states_[s].uses;
    std::set<size_t> keep;
    for (uint32_t i = 0; i < std::min(prefetch_units_, use.n_next); ++i) {
      const std::vector<size_t>& uses = layout_.unit_uses[static_cast<size_t>(use.next[i])];
      keep.insert(uses.begin(), uses.end());
    }
    for (size_t s = 0; s < states_.size(); ++s) {
      if (states_[s].view != nullptr && states_[s].uses == 0 && keep.count(s) == 0) close(s);
    }
  }

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
  static constexpr size_t kNone = SIZE_MAX;

  struct State {
    ddh::Window params;
    ddh::OptimState optim;       // of this rank's segment
    void* view = nullptr;        // while open
    uint32_t uses = 0;           // acquires without their release
    size_t backing = kNone;      // index in backings_ while open on a transport that copies
    size_t own_backing = kNone;  // of a shared space
  };

  size_t view_buffer(uint64_t bytes) {
    backings_.emplace_back(host, DDH_TAG_PARAM, bytes, "zero3 gathered parameters");
    return backings_.size() - 1;
  }

  void open_unit(int32_t unit) {
    for (const size_t index : layout_.unit_uses[static_cast<size_t>(unit)]) {
      State& s = states_[index];
      if (s.view != nullptr) continue;
      if (gathers_by_copy_) s.backing = s.own_backing != kNone ? s.own_backing : take_backing();
      s.view = s.params.open(s.backing == kNone ? nullptr : backings_[s.backing].data());
    }
  }
  void close(size_t index) {
    State& s = states_[index];
    s.params.close();
    s.view = nullptr;
    if (s.backing != kNone && s.backing != s.own_backing) free_backings_.push_back(s.backing);
    s.backing = kNone;
  }
  size_t take_backing() {
    if (free_backings_.empty()) return view_buffer(view_slot_bytes_);
    const size_t slot = free_backings_.back();
    free_backings_.pop_back();
    return slot;
  }

  // The highest sum, over the steps of every program, of what is open beyond this rank's segments.
  uint64_t peak_in_flight_bytes() const {
    uint64_t peak = 0;
    for (uint32_t p = 0; p < args_.model->n_programs; ++p) {
      const ddh_program_desc& program = *args_.model->programs[p];
      std::vector<int32_t> order(program.units, program.units + program.n_units);
      if (program.kind != DDH_PROGRAM_EVAL) {
        for (uint32_t i = program.n_units; i-- > 0;) {
          order.push_back(program.units[i]);
          const bool recomputed = args_.recompute_every > 0 && (i + 1) % args_.recompute_every == 0;
          if (recomputed) order.push_back(program.units[i]);
        }
        if (args_.grad_accum_steps > 1) order.insert(order.end(), order.begin(), order.begin() + program.n_units);
      }
      for (size_t i = 0; i < order.size(); ++i) {
        std::set<size_t> open;
        for (size_t j = i; j <= std::min<size_t>(i + prefetch_units_, order.size() - 1); ++j) {
          const std::vector<size_t>& uses = layout_.unit_uses[static_cast<size_t>(order[j])];
          open.insert(uses.begin(), uses.end());
        }
        uint64_t bytes = 0;
        for (const size_t s : open) bytes += in_flight_bytes(layout_.spaces[s]);
        peak = std::max(peak, bytes);
      }
    }
    return peak;
  }
  uint64_t in_flight_bytes(const ddh::FlatSpace& space) const {
    if (!gathers_by_copy_) return space.value_bytes() - space.value_segment_bytes(args_.rank);
    return space.shared ? 0 : view_slot_bytes_;  // shared ones have a buffer of their own
  }

  const uint32_t prefetch_units_;
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  bool gathers_by_copy_ = false;
  uint64_t view_slot_bytes_ = 0;  // of the largest space that is not shared
  std::vector<State> states_;     // per space
  ddh::GradRing grads_;
  std::vector<ddh::Buffer> backings_;
  std::vector<size_t> free_backings_;
  uint64_t version_ = 1;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "prefetch_units": {"type": "integer", "default": 1, "minimum": 0, "maximum": 64,
    "description": "how many units to gather ahead of the one in use", "x-affects": "memory"}}})";
constexpr const char* kNeeds[] = {
    DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Zero3, strategy, "zero3", "0.1.0", "parameters, gradients and optimizer state sharded (ZeRO stage 3)",
               kSchema, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD | DDH_CAP_SHARDS_PARAM);
