// SPDX-License-Identifier: Apache-2.0
//
// zero3: parameters, gradients and optimizer state sharded.
//
// Each of N ranks owns      1/N of the parameters, of the gradients and of the optimizer state
// Bytes per rank            16 P/N with AdamW, and in flight: the parameters of a unit and of those prefetched (shared
//                           pages: the other ranks' (N-1)/N of them); two gradient buffers of the largest unit; full
//                           gradients of tied parameters, which live from the head's backward to the embedding's. In
//                           micro_first order with accumulation: + 4 P instead of the buffers
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
// persistence_bytes         small parameters stay gathered: 4 bytes for each element more; their gradients are full until
//                           the last unit's backward. They are one flat space: one reduction and one publish for all
// overlap_comm=false        one gradient buffer less; a unit's gradients are reduced before the next one's backward
//
// Against zero2: a unit's full parameters are there from acquire to release only; what stays is the rank's segment. What is
// gathered ahead or kept for the next use is a matter of limits.
#include <set>
#include "ddh/sdk/gathered_params.hpp"
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/stage_options.hpp"
#include "ddh/sdk/strategy.hpp"

namespace {

class Zero3 final : public ddh::Strategy {
 public:
  explicit Zero3(const ddh_create& create) : Strategy(create) {
    const auto limit = [&](const char* key) {
      const std::optional<int64_t> given = host.i64_if_given(key);
      return given ? static_cast<uint64_t>(*given) : kNoLimit;
    };
    const std::optional<int64_t> units = host.i64_if_given("strategy.prefetch_units");
    prefetch_bytes_ = limit("strategy.prefetch_bytes");
    prefetch_units_ = units ? static_cast<uint32_t>(*units) : prefetch_bytes_ == kNoLimit ? 1 : UINT32_MAX;
    max_live_bytes_ = limit("strategy.max_live_bytes");
    reuse_bytes_ = static_cast<uint64_t>(host.i64("strategy.reuse_bytes"));
    grouping_.persistent_bytes = static_cast<uint64_t>(host.i64("strategy.persistence_bytes"));
  }

  void attach(const ddh_attach_args& args) override {
    args_ = ddh::copy_of(args);
    layout_ = ddh::ModelLayout(*args.model, args.world_size, args.compute_dtype, ddh::whole_params(host, *args.model),
                               grouping_);
    views_ = ddh::UnitViews(*args.model, layout_);
    ddh::warn_of_idle(host, args_.rank, {ddh::kContiguousGradients});
    params_ = ddh::GatheredParams(host, layout_, args_.group, args_.rank);
    grads_ = ddh::GradRing(layout_, args_, {.overlap = host.flag("strategy.overlap_comm")});
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.segment_numel(args_.rank));
      if (!space.trained_in(ddh::first_train_program(*args_.model))) continue;
      out.reduce_calls += args_.reduce_order == DDH_RANK_FIRST ? args_.grad_accum_steps : 1;
      out.publish_calls += 1;
    }
    out.grad_bytes = grads_.bytes();
    ddh::GatheredParams dry(host, layout_, args_.group, args_.rank);
    out.param_bytes =
        dry.resting_bytes() + ddh::peak_open_bytes(
                                  args_, dry, [this](const auto& use, auto& params) { open(use, params); },
                                  [this](const auto& use, auto& params) { close(use, params); });
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
    open(use, params_);
    views_.fill(
        use, version_, [&](size_t s) { return params_.view(s); }, [&](size_t s) { return grads_.writable(s); }, out);
  }

  void release(const ddh_unit_use& use) override { close(use, params_); }

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
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Sizes of views are counted in fp32, so that the limits mean the same units in every precision.
  uint64_t view_bytes(size_t space) const {
    return layout_.spaces[space].persistent ? 0 : layout_.spaces[space].numel * sizeof(float);
  }
  const std::vector<size_t>& spaces_of(int32_t unit) const { return layout_.unit_uses[static_cast<size_t>(unit)]; }

  // How many of the next units are to be there, whatever else is.
  uint32_t units_ahead(const ddh_unit_use& use) const {
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (; n < std::min(prefetch_units_, use.n_next); ++n) {
      for (const size_t s : spaces_of(use.next[n])) bytes += view_bytes(s);
      if (bytes > prefetch_bytes_) break;
    }
    return n;
  }

  // This unit and the next ones, while there is room.
  void open(const ddh_unit_use& use, ddh::GatheredParams& params) const {
    params.acquire(spaces_of(use.unit));
    for (uint32_t i = 0, ahead = units_ahead(use); i < ahead; ++i) {
      uint64_t bytes = params.open_numel() * sizeof(float);
      for (const size_t s : spaces_of(use.next[i])) bytes += params.is_open(s) ? 0 : view_bytes(s);
      if (bytes > max_live_bytes_) return;
      params.open(spaces_of(use.next[i]));
    }
  }

  // Keeps what the next ones need and what is used again soon, the nearest first, while there is room beside the very
  // next one; drops the rest.
  void close(const ddh_unit_use& use, ddh::GatheredParams& params) const {
    params.release(spaces_of(use.unit));
    const uint32_t ahead = units_ahead(use);
    std::set<size_t> keep;
    uint64_t live = 0, passed = 0;
    for (uint32_t i = 0; i < use.n_next && (i < ahead || passed < reuse_bytes_); ++i) {
      for (const size_t s : spaces_of(use.next[i])) {
        passed += view_bytes(s);
        if ((i > 0 && !params.is_open(s)) || keep.count(s) > 0) continue;
        live += view_bytes(s);
        if (i > 0 && live > max_live_bytes_) return params.close_except(keep);
        keep.insert(s);
      }
    }
    params.close_except(keep);
  }

  uint32_t prefetch_units_ = 1;
  uint64_t prefetch_bytes_ = kNoLimit, max_live_bytes_ = kNoLimit, reuse_bytes_ = 0;
  ddh::Grouping grouping_;
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  ddh::GatheredParams params_;
  std::vector<ddh::OptimState> optim_;  // per space, of this rank's segment
  ddh::GradRing grads_;
  uint64_t version_ = 1;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "prefetch_units": {"type": ["integer", "null"], "default": null, "minimum": 0, "maximum": 64,
    "description": "how many units to gather ahead of the one in use; null: 1, or what prefetch_bytes allows",
    "x-affects": "memory"},
  "prefetch_bytes": {"type": ["integer", "null"], "default": null, "minimum": 0, "x-unit": "bytes",
    "x-affects": "memory",
    "description": "as many units ahead as have so much, 4 bytes for an element in every precision; null: no limit"},
  "persistence_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes", "x-affects": "memory",
    "description": "parameters of at most so much, 4 bytes for an element, stay gathered; 0: none"},
  "max_live_bytes": {"type": ["integer", "null"], "default": null, "minimum": 0, "x-unit": "bytes",
    "x-affects": "memory",
    "description": "gathered parameters, 4 bytes for an element, beyond which none come ahead or stay; null: no limit"},
  "reuse_bytes": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "bytes", "x-affects": "memory",
    "description": "keep a unit that is used again before so much of others, 4 bytes for an element; 0: none"},
  "overlap_comm": {"type": "boolean", "default": true, "x-affects": "memory",
    "description": "sum a unit's gradients while the next ones are computed; false: at once, with a buffer less"},
  "contiguous_gradients": {"type": "boolean", "default": true,
    "description": "gradients are written contiguously from the start: false changes nothing, and says so"}},
  "x-aliases": {"stage3_prefetch_bucket_size": {"key": "prefetch_bytes", "scale": 4},
    "stage3_param_persistence_threshold": {"key": "persistence_bytes", "scale": 4},
    "stage3_max_live_parameters": {"key": "max_live_bytes", "scale": 4},
    "stage3_max_reuse_distance": {"key": "reuse_bytes", "scale": 4}}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                  DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Zero3, strategy, "zero3", "0.1.0", "parameters, gradients and optimizer state sharded (ZeRO stage 3)",
               kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD |
                   DDH_CAP_SHARDS_PARAM);
