// SPDX-License-Identifier: Apache-2.0
//
// fsdp: fully sharded data parallelism with PyTorch's modes and names.
//
// A shard group of S ranks holds the model once; the N/S shard groups are replicas of each other.
//   full_shard     S = N    each rank owns 1/N of parameters, gradients and optimizer state: zero3
//   shard_grad_op  S = N    the same, and parameters stay gathered from their forward to their backward
//   hybrid_shard   S = a node (run.ranks_per_node) or shard_size; hybrid_shard_zero2 keeps parameters as shard_grad_op does
//   no_shard       S = 1    everything on every rank: ddp
// Bytes per rank            16 P/S with AdamW, and in flight: the gathered parameters of the wrapped units and of the
//                           prefetched ones (shard_grad_op: all parameters between forward and backward; with shared pages
//                           only the other ranks' (S-1)/S); gradients in flight and full gradients of tied parameters,
//                           as in zero2
// No shared pages,          the gathered parameters take 4 T at all times and 4 L n in flight. T: tied parameters; n: the most
// or cpu_offload            other flat spaces that are open at once; L: the largest of them
// Sent per rank and step    in the shard group as zero3, (2 A + R) (S-1)/S 4 P (shard_grad_op: A + R); among M = N/S
//                           replicas an all_reduce of the segment for each reduction, R 2 (M-1)/M 4 P/S
// Collectives per step      R reductions for each unit, with replicas an all_reduce after each; one publish for each unit
// reshard_after_forward=k   without shared pages 4 P/k more, and one more publish for each unit that is freed after its
//                           forward
// cpu_offload               16 P/S are pinned host memory; each gather is one all_gather, and there is no publish
// Terms: ddh/sdk/data_parallel.hpp. A: micro-batches. Source: Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded
// Data Parallel, VLDB 2023.
//
// Differences from zero3: the ranks of a shard group can be chosen, and so can the times of gathering and freeing.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/params/regrouped_params.hpp"
#include "ddh/sdk/tier/pinned_params.hpp"
#include "fsdp_options.hpp"

namespace {

struct ParamSettings {
  uint64_t wrap_numel = 0;  // a group takes units until it has this many elements
  Prefetch backward_prefetch = Prefetch::kPre;
  bool forward_prefetch = true;
  size_t groups_ahead = 1;
  bool reshards_after_forward = true;
  bool offloads = false;               // segments are in pinned memory
  ddh_group* reshard_group = nullptr;  // parameters stay sharded in it after forward, on transports that copy
  ddh::GroupRanks reshard_ranks;       // of that group
};

// Decides which spaces are gathered together, and when.
class FsdpParams final : public ddh::GatheredStore {
 public:
  FsdpParams(const ddh::Host& host, const ddh::ModelLayout& layout, const ddh_attach_args& args,
             const ParamSettings& settings)
      : GatheredStore(host, layout, args), settings_(settings) {
    wrap();
  }

  void* values(size_t space) override {
    return settings_.offloads ? static_cast<ddh::PinnedParams*>(source())->segment(space)
                              : GatheredStore::values(space);
  }
  void values_changed() override {
    if (settings_.reshard_group != nullptr) static_cast<ddh::RegroupedParams*>(source())->forget();
  }

 protected:
  std::unique_ptr<ddh::ViewSource> make_source() const override {
    if (settings_.offloads) return std::make_unique<ddh::PinnedParams>(host_, layout_, args_.group, args_.rank);
    if (settings_.reshard_group == nullptr) return nullptr;
    return std::make_unique<ddh::RegroupedParams>(host_, layout_, settings_.reshard_group, settings_.reshard_ranks);
  }
  uint64_t source_calls(const Gathered& dry) const override {
    return settings_.offloads ? dry.params.opens() : static_cast<ddh::RegroupedParams&>(*dry.source).publishes();
  }

  void gather_for(const ddh_unit_use& use, Gathered& gathered) const override {
    ddh::GatheredParams& params = gathered.params;
    params.acquire(wrapped_[group_of(use.unit)]);
    if (!prefetches_before(use)) return;
    for_next_groups(use, [&](size_t group) { params.open(wrapped_[group]); });
  }

  void drop_after(const ddh_unit_use& use, Gathered& gathered) const override {
    ddh::GatheredParams& params = gathered.params;
    if (settings_.reshard_group != nullptr)
      static_cast<ddh::RegroupedParams&>(*gathered.source).keep_closed(use.phase == DDH_PHASE_FORWARD);
    params.release(wrapped_[group_of(use.unit)]);
    const auto keep_group = [&](size_t group) {
      for (const size_t s : wrapped_[group]) params.keep(s);
    };
    if (use.n_next > 0 && group_of(use.next[0]) == group_of(use.unit)) keep_group(group_of(use.unit));
    if (prefetches_before(use) || prefetches_after(use)) for_next_groups(use, keep_group);
    // Without resharding, parameters stay gathered until the backward of their unit.
    if (!settings_.reshards_after_forward && use.phase != DDH_PHASE_EVAL) {
      layout_.for_backwards_after(use, [&](int32_t unit) {
        for (const size_t s : wrapped_[group_of(unit)])
          if (params.is_open(s)) params.keep(s);
      });
    }
    params.close_others();
    if (!prefetches_after(use)) return;
    for_next_groups(use, [&](size_t group) { params.open(wrapped_[group]); });
  }

 private:
  // Units are wrapped in the model's order.
  void wrap() {
    uint64_t numel = 0;
    for (size_t u = 0; u < layout_.unit_uses.size(); ++u) {
      const bool starts = u == 0 || numel >= settings_.wrap_numel;
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

  // Calls `visit` with the next groups after this use's own, nearest first, within the limits of prefetching.
  template <class Visit>
  void for_next_groups(const ddh_unit_use& use, Visit&& visit) const {
    size_t last = group_of(use.unit), visited = 0;
    for (uint32_t i = 0; i < use.n_next && visited < settings_.groups_ahead; ++i) {
      const size_t group = group_of(use.next[i]);
      if (group == last) continue;
      visit(group);
      ++visited;
      last = group;
    }
  }
  bool prefetches_before(const ddh_unit_use& use) const {
    const bool forward = use.phase == DDH_PHASE_FORWARD || use.phase == DDH_PHASE_EVAL;
    return forward ? settings_.forward_prefetch : settings_.backward_prefetch == Prefetch::kPre;
  }
  bool prefetches_after(const ddh_unit_use& use) const {
    return use.phase == DDH_PHASE_BACKWARD && settings_.backward_prefetch == Prefetch::kPost;
  }

  const ParamSettings settings_;
  std::vector<std::vector<size_t>> wrapped_;  // per group: the spaces that open together
  std::vector<size_t> group_of_unit_;
};

class Fsdp final : public ddh::DataParallel {
 public:
  explicit Fsdp(const ddh_create& create) : DataParallel(create), offloads_(options.flag("cpu_offload")) {
    const std::string mode = options.text("sharding_strategy");
    sharing_ = mode == "no_shard" ? Sharing::kNobody : mode.starts_with("hybrid") ? Sharing::kNode : Sharing::kAll;
    keeps_params_ = mode == "shard_grad_op" || mode == "hybrid_shard_zero2";
    // Only a number converts to i64; a boolean does not.
    double number = 0;
    ddh::ErrorBuffer no_number;
    if (host.config->get_f64(host.h, options.key("reshard_after_forward").c_str(), &number, no_number.get()) == DDH_OK)
      reshard_size_ = static_cast<int32_t>(number);
    refuse_what_changes_nothing();
  }

  void plan(ddh_plan& out) override {
    DataParallel::plan(out);
    if (replicas_.place().count > 1) out.reduce_calls *= 2;  // in the shard group, then among the replicas
  }

 private:
  // From here on args() describes the shard group: its ranks are neighbours; replicas are shard_size ranks apart.
  ddh_attach_args sharing(const ddh_attach_args& world) override {
    ddh_attach_args out = world;
    const int32_t size = shard_size(world), rank = world_rank_ = world.rank;
    if (size == world.world_size) return out;
    const int32_t replicas = world.world_size / size;
    replicas_.ranks = ddh::GroupRanks::strided(rank % size, size, replicas, rank / size, world.node_of);
    replicas_.group = size == 1 ? world.group : make_group("fsdp replicas", rank % size, size, replicas);
    out.group = make_group("fsdp shard", rank / size * size, 1, size);
    out.rank = rank % size;
    out.world_size = size;
    return out;
  }

  ddh::Grouping grouping() const override { return ddh::with_blocks({}, args(), ddh::grad_buffer_bytes(options)); }

  std::unique_ptr<ddh::OptimStore> optimizer() override {
    return std::make_unique<ddh::ResidentOptim>(host, layout(), [&](const ddh::FlatSpace& space) {
      ddh::OptimPart part = ddh::segment_part(space, args());
      part.replica = replicas_.place();
      part.memory = memory();
      return part;
    });
  }
  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<FsdpParams>(host, layout(), args(), param_settings());
  }
  std::unique_ptr<ddh::GradStore> gradients() override {
    const uint64_t buffer_bytes = ddh::grad_buffer_bytes(options);
    const ddh::GradRingOptions ring = {.replicas = replicas_, .buffer_bytes = buffer_bytes, .memory = memory()};
    return std::make_unique<ddh::GradRing>(layout(), args(), ring);
  }
  int32_t memory() const { return offloads_ ? DDH_MEM_PINNED : DDH_MEM_DEVICE; }

  // ---- Options -------------------------------------------------------------------------------------------------------

  // "strategy.shard_size=2", as in the user's configuration.
  template <class Value>
  std::string said(const char* option, const Value& value) const {
    return ddh::str(options.key(option), "=", value);
  }

  // Refuses options of a mode that was not chosen.
  void refuse_what_changes_nothing() const {
    if (const int64_t size = options.i64("shard_size"); size > 0 && sharing_ != Sharing::kNode)
      ddh::fail(DDH_INVALID_ARGUMENT, said("shard_size", size), " changes nothing with ",
                said("sharding_strategy", options.text("sharding_strategy")),
                "; use hybrid_shard, or leave shard_size out");
    const std::optional<int64_t> numel = options.i64_if_given("min_num_params");
    const std::string policy = options.text("auto_wrap_policy");
    if (numel && policy != "size")
      ddh::fail(DDH_INVALID_ARGUMENT, said("min_num_params", *numel), " changes nothing with ",
                said("auto_wrap_policy", policy), "; use size, or leave min_num_params out");
  }

  ParamSettings param_settings() {
    ParamSettings out;
    const std::string policy = options.text("auto_wrap_policy"), prefetch = options.text("backward_prefetch");
    const auto min_numel = static_cast<uint64_t>(options.i64_if_given("min_num_params").value_or(100'000'000));
    out.wrap_numel = policy == "unit" ? 0 : policy == "size" ? min_numel : UINT64_MAX;
    out.backward_prefetch = prefetch == "pre" ? Prefetch::kPre : prefetch == "post" ? Prefetch::kPost : Prefetch::kNone;
    out.forward_prefetch = options.flag("forward_prefetch");
    out.groups_ahead = options.flag("limit_all_gathers") ? 1 : 2;
    out.offloads = offloads_;
    out.reshards_after_forward = !keeps_params_ && options.flag("reshard_after_forward");
    if (reshard_size_ > 0) reshard_to_groups(out);
    return out;
  }

  // reshard_after_forward as a number: the size of a group of neighbours in the shard group.
  void reshard_to_groups(ParamSettings& out) const {
    const int32_t size = args().world_size, k = reshard_size_;
    if (size % k != 0 || (keeps_params_ && k != 1))
      ddh::fail(DDH_INVALID_ARGUMENT, said("reshard_after_forward", k), " asks for groups of ", k,
                " ranks in a shard group of ", size,
                keeps_params_
                    ? " ranks, but this sharding_strategy keeps parameters whole; use full_shard or hybrid_shard"
                    : " ranks; give a number that divides the latter");
    if (offloads_ && k != 1 && k != size)
      ddh::fail(DDH_FAILED_PRECONDITION, said("reshard_after_forward", k),
                " keeps parameters on the device after forward and cpu_offload does not; set one of them to false");
    out.reshards_after_forward = k != 1;
    const bool moves = (host.window->caps(host.h, args().group) & DDH_COMM_SHARED_VIEW) == 0;
    if (k == 1 || k == size || !moves) return;
    out.reshard_group = make_group("fsdp reshard", world_rank_ / k * k, 1, k);
    out.reshard_ranks = ddh::GroupRanks::strided(world_rank_ / k * k, 1, k, args().rank % k, args().node_of);
  }

  int32_t shard_size(const ddh_attach_args& world) const {
    if (sharing_ == Sharing::kNobody) return 1;
    if (sharing_ == Sharing::kAll) return world.world_size;
    const auto given = static_cast<int32_t>(options.i64("shard_size"));
    const int32_t size = given > 0 ? given : world.ranks_per_node;
    if (size == 0 || world.world_size % size != 0) {
      ddh::fail(DDH_INVALID_ARGUMENT, "fsdp ", options.text("sharding_strategy"),
                " needs nodes of equal size: ", said("shard_size", given),
                ", run.ranks_per_node=", world.ranks_per_node, " with ", world.world_size,
                " ranks; give a size that divides the number of ranks");
    }
    const auto block = static_cast<int32_t>(world.reduce_block);
    if (size != 1 && size != world.world_size && block != size) {
      ddh::fail(DDH_FAILED_PRECONDITION, "fsdp ", options.text("sharding_strategy"), " sums within ", size,
                " ranks first, and train.reduce_block is ", block, "; set train.reduce_block=", size);
    }
    return size;
  }

  Sharing sharing_ = Sharing::kAll;
  bool keeps_params_ = false;  // the mode keeps them from forward to backward
  const bool offloads_;
  int32_t reshard_size_ = 0;  // 0: not given as a number
  int32_t world_rank_ = 0;
  ddh::ReplicaGroup replicas_;
};

constexpr uint64_t kCaps =
    ddh::DataParallel::kCaps | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD | DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Fsdp, strategy, "fsdp", "0.1.0", "fully sharded data parallel, with PyTorch's modes",
               ddh::kSchemaOf<kFsdpOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands,
               nullptr, ddh::DataParallel::kWants);
