// SPDX-License-Identifier: Apache-2.0
//
// fsdp: fully sharded data parallelism with PyTorch's modes and names.
//
// A shard group of S ranks holds the model once; N/S of them hold replicas of each other.
//   full_shard     S = N    each rank owns 1/N of parameters, gradients and optimizer state: zero3
//   shard_grad_op  S = N    the same, and parameters stay gathered from their forward to their backward
//   hybrid_shard   S = a node (run.ranks_per_node) or shard_size; hybrid_shard_zero2 keeps parameters as shard_grad_op does
//   no_shard       S = 1    everything on every rank: ddp
// Bytes per rank            16 P/S with AdamW, and in flight: the gathered parameters of a wrapped group and of the one
//                           prefetched (shard_grad_op: of all between forward and backward; shared pages: the other
//                           ranks' (S-1)/S of them); two gradient buffers of the largest unit, as in zero2; full gradients
//                           of tied parameters
// Where views are copies    (copied windows, cpu_offload) instead of these parameters + 4 T at all times and + k 4 L in
//                           flight: T tied ones, k the most other flat spaces (units) that are open at once, L the
//                           elements of the largest of them
// Moved per rank and step   within the shard group as zero3, (2 A + R) (S-1)/S 4 P (shard_grad_op: A + R), and all_reduce
//                           of the segment among M = N/S replicas for each reduction: R 2 (M-1)/M 4 P/S sent
// Collectives per step      R reductions for each unit, with replicas an all_reduce after each; one publish for each unit
// In bf16 and fp16          parameters take half, and 4 P/S for the master come to the optimizer state
// reshard_after_forward=k   with windows that copy: + 4 P/k, and a step has one publish more for each unit that is dropped
//                           after its forward
// cpu_offload               16 P/S are pinned host memory; one all_gather for each gather and no publish
// R: reductions of a gradient in a step: one for each of A micro-batches in rank_first order, 1 in micro_first.
// P: parameters of the model, each padded to 64 elements. Source: Zhao et al., PyTorch FSDP, VLDB 2023.
//
// Against zero3: who shares the segments is a choice, and so is when views open and close.
#include "ddh/sdk/gathered_params.hpp"
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/regrouped_params.hpp"
#include "ddh/sdk/strategy.hpp"
#include "ddh/sdk/tier/pinned_params.hpp"

namespace {

enum class Sharing { kAll, kNode, kNobody };
enum class Prefetch { kPre, kPost, kNone };

class Fsdp final : public ddh::Strategy {
 public:
  explicit Fsdp(const ddh_create& create)
      : Strategy(create),
        forward_prefetch_(options.flag("forward_prefetch")),
        prefetch_groups_(options.flag("limit_all_gathers") ? 1 : 2),
        offloads_(options.flag("cpu_offload")) {
    const std::string mode = options.text("sharding_strategy");
    sharing_ = mode == "no_shard" ? Sharing::kNobody : mode.starts_with("hybrid") ? Sharing::kNode : Sharing::kAll;
    keeps_params_ = mode == "shard_grad_op" || mode == "hybrid_shard_zero2";
    const std::string prefetch = options.text("backward_prefetch");
    backward_prefetch_ = prefetch == "pre" ? Prefetch::kPre : prefetch == "post" ? Prefetch::kPost : Prefetch::kNone;
    reshards_after_forward_ = !keeps_params_ && options.flag("reshard_after_forward");
    // Only a number reads as one; a boolean does not.
    double number = 0;
    ddh::ErrorBuffer no_number;
    if (host.config->get_f64(host.h, options.key("reshard_after_forward").c_str(), &number, no_number.get()) == DDH_OK)
      reshard_size_ = static_cast<int32_t>(number);
    refuse_what_changes_nothing();
  }

  void attach(const ddh_attach_args& args) override {
    args_ = args;
    make_groups();
    const ddh_model_desc& model = *args.model;
    layout_ = ddh::ModelLayout(args_, ddh::whole_params(host, model));
    views_ = ddh::UnitViews(model, layout_);
    make_reshard_group();
    gathered_ = gathered();
    grads_ = ddh::GradRing(layout_, args_, {.replicas = replicas_, .memory = memory()});
    wrap(model);
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      out.optim_bytes += ddh::OptimState::bytes(host, space, space.segment_numel(args_.rank));
      if (!space.trained_in(layout_.first_program())) continue;
      const uint64_t reductions = ddh::reductions_per_step(args_);
      out.reduce_calls += reductions * (replicas_.place.count > 1 ? 2 : 1);
      if (!offloads_) out.publish_calls += 1;
    }
    out.grad_bytes = grads_.bytes();
    Gathered dry = gathered(), step = gathered();
    out.param_bytes = dry.params.resting_bytes() + ddh::peak_open_bytes(
                                                       dry.params, [&](const auto& use, auto&) { open(use, dry); },
                                                       [&](const auto& use, auto&) { close(use, dry); });
    run_dry(step);
    if (offloads_) out.publish_calls = step.params.opens();
    if (step.regrouped) out.publish_calls += step.regrouped->publishes();
  }

  void materialize() override {
    gathered_.params.materialize();
    for (size_t s = 0; s < layout_.spaces.size(); ++s) {
      const ddh::FlatSpace& space = layout_.spaces[s];
      optim_.emplace_back(host, space, space.segment_ranges(args_.rank), space.segment_numel(args_.rank), memory());
      write_segment(s, [&](void* segment) { optim_[s].init(segment); });
    }
    grads_.materialize(host);
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    open(use, gathered_);
    views_.fill(
        use, version_, [&](size_t s) { return gathered_.params.view(s); }, [&](size_t s) { return grads_.writable(s); },
        out);
  }

  void release(const ddh_unit_use& use) override { close(use, gathered_); }

  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }

  void step() override {
    grads_.reduce_all();
    ddh::decide(host);
    for (size_t s = 0; s < optim_.size(); ++s) {
      if (const float* grad = grads_.segment(s)) optim_[s].prepare(segment(s), grad, replicas_.place);
    }
    ddh::sum_norms(host);
    for (size_t s = 0; s < optim_.size(); ++s) {
      if (grads_.segment(s) == nullptr) continue;
      write_segment(s, [&](void* segment) { optim_[s].update(segment, grads_.segment(s)); });
    }
    grads_.step_done();
    values_changed();
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (size_t s = 0; s < optim_.size(); ++s) optim_[s].append_state(out, segment(s), replicas_.place);
    return out;
  }

  void state_commit() override {
    for (size_t s = 0; s < optim_.size(); ++s) {
      write_segment(s, [&](void* segment) { optim_[s].refresh(segment); });
    }
    values_changed();
  }

 private:
  // Full views, and what stands behind them where it is not a window alone.
  struct Gathered {
    std::unique_ptr<ddh::RegroupedParams> regrouped;
    std::unique_ptr<ddh::PinnedParams> pinned;
    ddh::GatheredParams params;
  };

  // Options of a mode that was not chosen.
  void refuse_what_changes_nothing() const {
    if (const int64_t size = options.i64("shard_size"); size > 0 && sharing_ != Sharing::kNode)
      ddh::fail(DDH_INVALID_ARGUMENT, "strategy.shard_size=", size,
                " changes nothing with strategy.sharding_strategy=", options.text("sharding_strategy"),
                "; take hybrid_shard, or leave shard_size out");
    const std::optional<int64_t> numel = options.i64_if_given("min_num_params");
    const std::string policy = options.text("auto_wrap_policy");
    if (numel && policy != "size")
      ddh::fail(DDH_INVALID_ARGUMENT, "strategy.min_num_params=", *numel,
                " changes nothing with strategy.auto_wrap_policy=", policy, "; take size, or leave min_num_params out");
  }

  // ---- Where segments lie ------------------------------------------------------------------------------------------------

  int32_t memory() const { return offloads_ ? DDH_MEM_PINNED : DDH_MEM_DEVICE; }
  // In numbers only, until it is materialized.
  Gathered gathered() const {
    Gathered out;
    ddh::ViewSource* source = nullptr;
    if (offloads_)
      source = (out.pinned = std::make_unique<ddh::PinnedParams>(host, layout_, args_.group, args_.rank)).get();
    if (reshard_group_ != nullptr)
      source = (out.regrouped = std::make_unique<ddh::RegroupedParams>(
                    host, layout_, reshard_group_, ddh::Replica{args_.rank % reshard_size_, reshard_size_}))
                   .get();
    out.params = ddh::GatheredParams(host, layout_, args_.group, args_.rank, source);
    return out;
  }
  void* segment(size_t s) {
    return gathered_.pinned ? gathered_.pinned->segment(s) : gathered_.params.window(s).segment();
  }
  template <class Body>
  void write_segment(size_t s, Body&& body) {
    if (gathered_.pinned) return body(gathered_.pinned->segment(s));
    ddh::Window& window = gathered_.params.window(s);
    window.write_begin();
    body(window.segment());
    window.commit();
  }
  void values_changed() {
    ++version_;
    if (gathered_.regrouped) gathered_.regrouped->forget();
  }

  // ---- Who shares ----------------------------------------------------------------------------------------------------

  int32_t shard_size() const {
    if (sharing_ == Sharing::kNobody) return 1;
    if (sharing_ == Sharing::kAll) return args_.world_size;
    const auto given = static_cast<int32_t>(options.i64("shard_size"));
    const int32_t size = given > 0 ? given : args_.ranks_per_node;
    if (size == 0 || args_.world_size % size != 0) {
      ddh::fail(DDH_INVALID_ARGUMENT, "fsdp ", options.text("sharding_strategy"),
                " needs nodes of equal size: strategy.shard_size=", given,
                ", run.ranks_per_node=", args_.ranks_per_node, " with ", args_.world_size,
                " ranks; give one that divides the ranks");
    }
    const auto block = static_cast<int32_t>(args_.reduce_block);
    if (size != 1 && size != args_.world_size && block != size) {
      ddh::fail(DDH_FAILED_PRECONDITION, "fsdp ", options.text("sharding_strategy"), " sums within ", size,
                " ranks first, and train.reduce_block is ", block, "; set train.reduce_block=", size);
    }
    return size;
  }

  // From here on args_ is about the shard group: its ranks are neighbours, replicas are shard_size apart.
  void make_groups() {
    const int32_t size = shard_size(), world = args_.world_size, rank = world_rank_ = args_.rank;
    if (size == world) return;
    replicas_.place = {rank / size, world / size};
    replicas_.group = size == 1 ? args_.group : make_group("fsdp replicas", rank % size, size, world / size);
    args_.group = make_group("fsdp shard", rank / size * size, 1, size);
    args_.rank = rank % size;
    args_.world_size = size;
  }
  // reshard_after_forward as a number: groups of so many neighbours in the shard group.
  void make_reshard_group() {
    const int32_t size = args_.world_size, k = reshard_size_;
    if (k == 0) return;
    if (size % k != 0 || (keeps_params_ && k != 1))
      ddh::fail(DDH_INVALID_ARGUMENT, "strategy.reshard_after_forward=", k, " asks for groups of ", k,
                " ranks in each of ", size,
                keeps_params_ ? ", but this sharding_strategy keeps parameters whole; take full_shard or hybrid_shard"
                              : "; give a number that divides these");
    if (offloads_ && k != 1 && k != size)
      ddh::fail(DDH_FAILED_PRECONDITION, "strategy.reshard_after_forward=", k,
                " keeps parameters on the device after forward and cpu_offload does not; set one of them to false");
    reshards_after_forward_ = k != 1;
    const bool moves = (host.window->caps(host.h, args_.group) & DDH_COMM_SHARED_VIEW) == 0;
    if (k != 1 && k != size && moves) reshard_group_ = make_group("fsdp reshard", world_rank_ / k * k, 1, k);
  }
  ddh_group* make_group(const char* name, int32_t first, int32_t stride, int32_t count) const {
    std::vector<int32_t> ranks;
    for (int32_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
    ddh_group* group = nullptr;
    ddh::call(host.comm->group_create, host.h, name, ranks.data(), static_cast<uint32_t>(count), &group);
    return group;
  }

  // ---- What opens together, and when -----------------------------------------------------------------------------------

  // Units are wrapped in the order in which they stand in the model.
  void wrap(const ddh_model_desc& model) {
    const std::string policy = options.text("auto_wrap_policy");
    const auto min_numel = static_cast<uint64_t>(options.i64_if_given("min_num_params").value_or(100'000'000));
    uint64_t numel = 0;
    for (uint32_t u = 0; u < model.n_units; ++u) {
      const bool starts = u == 0 || policy == "unit" || (policy == "size" && numel >= min_numel);
      if (starts) {
        wrapped_.emplace_back();
        numel = 0;
      }
      for (const ddh::FlatSpace& space : layout_.spaces)
        numel += space.unit == static_cast<int32_t>(u) ? space.numel : 0;
      for (const size_t s : layout_.unit_uses[u]) {
        std::vector<size_t>& spaces = wrapped_.back();
        if (std::find(spaces.begin(), spaces.end(), s) == spaces.end()) spaces.push_back(s);
      }
      group_of_unit_.push_back(wrapped_.size() - 1);
    }
  }
  size_t group_of(int32_t unit) const { return group_of_unit_[static_cast<size_t>(unit)]; }

  // The groups that come after this use's own, nearest first, as far as prefetching goes.
  std::vector<size_t> next_groups(const ddh_unit_use& use) const {
    std::vector<size_t> groups;
    size_t last = group_of(use.unit);
    for (uint32_t i = 0; i < use.n_next && groups.size() < prefetch_groups_; ++i) {
      const size_t group = group_of(use.next[i]);
      if (group != last) groups.push_back(group);
      last = group;
    }
    return groups;
  }
  bool prefetches_before(const ddh_unit_use& use) const {
    const bool forward = use.phase == DDH_PHASE_FORWARD || use.phase == DDH_PHASE_EVAL;
    return forward ? forward_prefetch_ : backward_prefetch_ == Prefetch::kPre;
  }
  bool prefetches_after(const ddh_unit_use& use) const {
    return use.phase == DDH_PHASE_BACKWARD && backward_prefetch_ == Prefetch::kPost;
  }

  void open(const ddh_unit_use& use, Gathered& gathered) const {
    ddh::GatheredParams& params = gathered.params;
    params.acquire(wrapped_[group_of(use.unit)]);
    if (!prefetches_before(use)) return;
    for (const size_t group : next_groups(use)) params.open(wrapped_[group]);
  }

  void close(const ddh_unit_use& use, Gathered& gathered) const {
    ddh::GatheredParams& params = gathered.params;
    if (gathered.regrouped) gathered.regrouped->keep_closed(use.phase == DDH_PHASE_FORWARD);
    params.release(wrapped_[group_of(use.unit)]);
    std::set<size_t> keep;
    const auto keep_group = [&](size_t group) { keep.insert(wrapped_[group].begin(), wrapped_[group].end()); };
    if (use.n_next > 0 && group_of(use.next[0]) == group_of(use.unit)) keep_group(group_of(use.unit));
    if (prefetches_before(use) || prefetches_after(use)) {
      for (const size_t group : next_groups(use)) keep_group(group);
    }
    // Without resharding everything stays until the backward of its own unit.
    if (!reshards_after_forward_ && use.phase != DDH_PHASE_EVAL) {
      for (const int32_t unit : backwards_after(use)) {
        for (const size_t s : wrapped_[group_of(unit)]) {
          if (params.is_open(s)) keep.insert(s);
        }
      }
    }
    params.close_except(keep);
    if (!prefetches_after(use)) return;
    for (const size_t group : next_groups(use)) params.open(wrapped_[group]);
  }

  // The units whose backward in this micro-batch is still to come.
  std::vector<int32_t> backwards_after(const ddh_unit_use& use) const {
    std::vector<int32_t> units;
    const auto program = std::find_if(layout_.programs.begin(), layout_.programs.end(),
                                      [&](const ddh::RunProgram& p) { return p.program == use.program; });
    bool is_after = false;
    for (const ddh_op& op : program->ops) {
      if (is_after && op.phase == DDH_PHASE_BACKWARD) units.push_back(op.unit);
      is_after = is_after || (op.position == use.position && op.phase == use.phase);
    }
    return units;
  }

  // A step of the first train program, in numbers.
  void run_dry(Gathered& gathered) const {
    ddh::run_train_step(
        layout_, [&](const auto& use) { open(use, gathered); }, [&](const auto& use) { close(use, gathered); });
  }

  Sharing sharing_ = Sharing::kAll;
  bool keeps_params_ = false;  // from forward to backward, by the mode
  Prefetch backward_prefetch_ = Prefetch::kPre;
  const bool forward_prefetch_;
  bool reshards_after_forward_ = true;
  const size_t prefetch_groups_;
  const bool offloads_;
  int32_t reshard_size_ = 0;  // 0: not given as a number
  ddh_group* reshard_group_ = nullptr;
  int32_t world_rank_ = 0;
  ddh_attach_args args_{};  // of the shard group
  ddh::ReplicaGroup replicas_;
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<std::vector<size_t>> wrapped_;  // per group: the spaces that open together
  std::vector<size_t> group_of_unit_;
  Gathered gathered_;
  std::vector<ddh::OptimState> optim_;  // per space, of this rank's segment
  ddh::GradRing grads_;
  uint64_t version_ = 1;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "sharding_strategy": {"type": "string", "default": "full_shard",
    "enum": ["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"],
    "x-spellings": {"FULL_SHARD": "full_shard", "SHARD_GRAD_OP": "shard_grad_op", "NO_SHARD": "no_shard",
      "HYBRID_SHARD": "hybrid_shard", "HYBRID_SHARD_ZERO2": "hybrid_shard_zero2",
      "_HYBRID_SHARD_ZERO2": "hybrid_shard_zero2"},
    "description": "what is sharded, and among whom"},
  "shard_size": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024, "x-unit": "ranks",
    "description": "hybrid_shard: ranks that share the model; 0: run.ranks_per_node"},
  "auto_wrap_policy": {"type": "string", "default": "unit", "enum": ["unit", "size", "none"],
    "x-spellings": {"TRANSFORMER_BASED_WRAP": "unit", "SIZE_BASED_WRAP": "size", "NO_WRAP": "none"},
    "description": "what is gathered together: each unit, neighbours up to min_num_params, everything",
    "x-affects": "memory"},
  "min_num_params": {"type": ["integer", "null"], "default": null, "minimum": 1, "x-unit": "elements",
    "description": "auto_wrap_policy=size: a group takes units until it has so many; null: 100 million"},
  "backward_prefetch": {"type": "string", "default": "pre",
    "enum": ["pre", "post", "none"],
    "x-spellings": {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", "NO_PREFETCH": "none", "null": "none"},
    "description": "gather the next group before a unit's backward, after it, or when it is needed", "x-affects": "memory"},
  "forward_prefetch": {"type": "boolean", "default": true,
    "description": "gather the next group before a unit's forward", "x-affects": "memory"},
  "limit_all_gathers": {"type": "boolean", "default": true,
    "description": "one group ahead; false: two", "x-affects": "memory"},
  "mixed_precision": {"type": "object", "properties": {
    "param_dtype": {"type": "string", "x-sets": "precision.compute", "description": "another name of precision.compute"},
    "reduce_dtype": {"type": "string", "x-sets": "precision.reduce_dtype",
      "description": "another name of precision.reduce_dtype"},
    "buffer_dtype": {"type": ["string", "null"], "default": null, "enum": ["fp32", null],
      "x-spellings": {"float32": "fp32", "torch.float32": "fp32"},
      "description": "buffers keep the model's dtype, which is fp32: no other is offered"}}},
  "reshard_after_forward": {"type": ["boolean", "integer"], "default": true, "minimum": 1, "maximum": 1048576,
    "x-unit": "ranks",
    "description": "drop gathered parameters after forward; false or 1: after backward; a number: shard among so many",
    "x-affects": "memory"},
  "cpu_offload": {"type": "boolean", "default": false,
    "description": "what this rank owns lives in pinned host memory and is updated there",
    "x-affects": "memory"}
}, "x-aliases": {"offload_params": {"key": "cpu_offload"}, "cpu_offload.offload_params": {"key": "cpu_offload"}}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE,   DDH_CONFIG_IFACE, DDH_COMM_IFACE,  DDH_COPY_IFACE,
                                  DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE,
                                  DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Fsdp, strategy, "fsdp", "0.1.0", "fully sharded data parallel, with PyTorch's modes", kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD |
                   DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS,
               0, DDH_FEATURES_ALL);
