// SPDX-License-Identifier: Apache-2.0
//
// diloco: groups of ranks train alone, and average what they have learned every sync_every steps (H).
//
//                      bytes on each rank; S: shard_size; with AdamW (terms: ddh/sdk/data_parallel.hpp)
// Inner training       as zero1 in a group of S ranks: 4 P parameters, 4 P gradients, 8 P/S optimizer state
// Outer state          12 P/S: the values of the last synchronization, the outer momentum, and the difference
// Sent in H steps      between groups 2 (M-1)/M 4 P/S, for M groups; ddp sends 2 (N-1)/N 4 P in each step
//
// Each group takes H steps of the run's optimizer on its own samples: norm, clipping and the mean are the group's. Then
//   difference = mean over the groups of (outer - inner)     one all_reduce
//   outer      = a step of SGD with Nesterov momentum        the shipped optimizer sgd, on the difference as its gradient
//   inner      = outer                                       the inner optimizer's state stays with its group
// Source: Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, arXiv 2311.08105.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/own_optim.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    {"sync_every", "integer", "50", R"("minimum": 1)", "steps between two synchronizations of the groups"},
    {"outer_lr", "number", "0.7", ddh::kAbove0, "learning rate of the outer step"},
    {"outer_momentum", "number", "0.9", R"("minimum": 0, "maximum": 0.999999)",
     "Nesterov momentum of the outer step; 0: none. With outer_lr 1 this is local SGD"},
    {"shard_size", "integer", "1", R"("minimum": 1)",
     "ranks of a group, which train together and share the optimizer state; the number of ranks is a multiple of it"},
};

class Diloco final : public ddh::DataParallel {
 public:
  explicit Diloco(const ddh_create& create)
      : DataParallel(create),
        sync_every_(options.i64("sync_every")),
        shard_size_(static_cast<int32_t>(options.i64("shard_size"))),
        sgd_(create) {}

  void attach(const ddh_attach_args& args) override {
    const double momentum = options.f64("outer_momentum");
    sgd_.make("sgd", options.key("outer"),
              ddh::str(R"({"momentum": )", momentum, R"(, "nesterov": )", momentum > 0 ? "true" : "false", "}"));
    DataParallel::attach(args);
  }

  void rhythm(ddh_rhythm& out) override { out.world_every = static_cast<uint32_t>(sync_every_); }

  void plan(ddh_plan& out) override {
    DataParallel::plan(out);
    uint64_t bytes = 0;
    for (const ddh::FlatSpace& space : layout().spaces)
      if (space.trained() || space.dtype == DDH_F32) bytes += space.grad_segment_bytes(args().rank);
    out.optim_bytes += bytes * (2 + sgd_.slot_count());
    const ddh::SentBytes sent = groups_.ranks.all_reduce(bytes / sizeof(float), sizeof(float));
    out.sent_bytes += sent.all / static_cast<uint64_t>(sync_every_);  // the mean of a step
    out.sent_between_nodes_bytes += sent.between_nodes / static_cast<uint64_t>(sync_every_);
  }

  void materialize() override {
    DataParallel::materialize();
    uint64_t numel = 0;
    for (const ddh_state_entry& e : inner_values()) {
      ranges_.push_back({e.param, 0, e.offset, numel, e.numel});
      numel += ddh::round_up_to_grid(e.numel);
    }
    const auto buffer = [&](const char* name) { return ddh::Buffer(host, DDH_TAG_OPTIM, numel * sizeof(float), name); };
    outer_ = buffer("outer values");
    difference_ = buffer("difference to the outer values");
    for (uint32_t i = 0; i < sgd_.slot_count(); ++i) slots_.push_back(buffer("outer momentum"));
    copy_inner(Direction::kToOuter);
  }

  void step_begin(const ddh_step_begin_args& begin) override {
    DataParallel::step_begin(begin);
    step_ = begin.step;
  }

  void step() override {
    DataParallel::step();
    if (synchronizes()) outer_step();
  }

  // The last steps of a run may be fewer than sync_every.
  void settle() override {
    if (!synchronizes()) outer_step();
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out = DataParallel::state();
    for (ddh_state_entry& e : out) e.scope = DDH_SCOPE_RANK;  // groups differ between synchronizations
    append_outer(out, "outer", outer_);
    for (size_t i = 0; i < slots_.size(); ++i) append_outer(out, "outer_momentum", slots_[i]);
    return out;
  }

 private:
  // From here on args() describes the group of this rank: neighbours. Ranks of one index in their groups hold the same part.
  ddh_attach_args sharing(const ddh_attach_args& world) override {
    if (world.world_size % shard_size_ != 0)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("shard_size"), "=", shard_size_, " does not divide the ",
                world.world_size, " ranks into groups; give a number that does");
    const int32_t rank = world.rank, count = world.world_size / shard_size_;
    groups_.ranks = ddh::GroupRanks::strided(rank % shard_size_, shard_size_, count, rank / shard_size_, world.node_of);
    groups_.group = make_group("diloco between groups", rank % shard_size_, shard_size_, count);
    ddh_attach_args out = world;
    out.group = make_group("diloco group", rank / shard_size_ * shard_size_, 1, shard_size_);
    out.rank = rank % shard_size_;
    out.world_size = shard_size_;
    return out;
  }

  std::unique_ptr<ddh::OptimStore> optimizer() override {
    return std::make_unique<ddh::ResidentOptim>(host, layout(), [&](const ddh::FlatSpace& space) {
      ddh::OptimPart part = ddh::segment_part(space, args());
      part.replica = groups_.place();
      return part;
    });
  }
  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::PublishedParams>(host, layout(), args(), /*waits_at_step=*/true);
  }
  std::unique_ptr<ddh::GradStore> gradients() override { return std::make_unique<ddh::FullGrads>(layout(), args(), 0); }

  bool synchronizes() const { return step_ % sync_every_ == 0; }

  const ddh_step_block& decide_step() override {
    return ddh::decide_in(host, args().group, synchronizes() ? 0 : DDH_DECIDE_QUIET);
  }

  // The masters of what this rank updates. Frozen parameters in a low precision never change.
  std::vector<ddh_state_entry> inner_values() {
    std::vector<ddh_state_entry> out = DataParallel::state();
    std::erase_if(out, [](const ddh_state_entry& e) { return e.kind != DDH_STATE_PARAM || e.dtype != DDH_F32; });
    return out;
  }

  enum class Direction { kToOuter, kToInner };
  void copy_inner(Direction direction) {
    const std::vector<ddh_state_entry> inner = inner_values();
    for (size_t i = 0; i < inner.size(); ++i) {
      auto* const value = static_cast<float*>(inner[i].data);
      float* const outer = outer_.f32() + ranges_[i].flat_offset;
      if (direction == Direction::kToOuter)
        std::copy_n(value, inner[i].numel, outer);
      else
        std::copy_n(outer, inner[i].numel, value);
    }
  }

  void outer_step() {
    const std::vector<ddh_state_entry> inner = inner_values();
    for (size_t i = 0; i < inner.size(); ++i) {
      const auto* const value = static_cast<const float*>(inner[i].data);
      const float* const outer = outer_.f32() + ranges_[i].flat_offset;
      float* const difference = difference_.f32() + ranges_[i].flat_offset;
      for (uint64_t k = 0; k < inner[i].numel; ++k) difference[k] = outer[k] - value[k];
    }
    sum_differences();
    ddh_step_block block{};
    block.struct_size = sizeof block;
    block.step = (step_ + sync_every_ - 1) / sync_every_;
    block.lr = options.f64("outer_lr");
    block.loss_scale = block.seed_scale = block.clip_factor = 1;
    block.inv_scale = 1.0 / static_cast<double>(groups_.ranks.size());
    const float* const gradient = difference_.f32();
    std::vector<void*> slots;
    for (const ddh::Buffer& slot : slots_) slots.push_back(slot.data());
    sgd_.update(ddh::shard_of(ranges_, {outer_.data(), DDH_F32, nullptr, &slots}, &gradient), block);
    copy_inner(Direction::kToInner);
    state_commit();
  }

  void sum_differences() {
    ddh_coll coll{};
    coll.struct_size = sizeof coll;
    coll.dtype = DDH_F32;
    coll.op = DDH_SUM;
    coll.send = coll.recv = difference_.data();
    coll.count = difference_.bytes() / sizeof(float);
    coll.group = groups_.group;
    coll.label = "sum of the groups' differences";
    ddh::call(host.comm->all_reduce, host.h, &coll);
  }

  void append_outer(std::vector<ddh_state_entry>& out, const char* name, const ddh::Buffer& buffer) const {
    for (const ddh_range& r : ranges_) {
      void* const at = buffer.f32() + r.flat_offset;
      const ddh::Replica place = groups_.place();
      out.push_back({sizeof(ddh_state_entry), r.param, DDH_STATE_OWN, 0, DDH_F32, DDH_MEM_HOST, r.param_offset, r.numel,
                     at, place.index, place.count, name, DDH_SCOPE_SHARED, 0});
    }
  }

  const int64_t sync_every_;
  const int32_t shard_size_;
  ddh::OwnOptim sgd_;
  ddh::ReplicaGroup groups_;  // the ranks that hold the same part, one in each group
  int64_t step_ = 0;
  std::vector<ddh_range> ranges_;  // of outer_, difference_ and slots_
  ddh::Buffer outer_, difference_;
  std::vector<ddh::Buffer> slots_;
};

constexpr auto kNeeds = [] {
  std::array<const char*, std::size(ddh::DataParallel::kNeeds) + 1> out{DDH_OWN_OPTIM_IFACE};
  std::copy(std::begin(ddh::DataParallel::kNeeds), std::end(ddh::DataParallel::kNeeds), out.begin() + 1);
  return out;
}();
// It computes in host memory, so it is not DDH_CAP_STREAM_ORDERED.
constexpr uint64_t kCaps = DDH_CAP_IN_PROCESS | DDH_CAP_DRY_ATTACH | DDH_CAP_SHARDS_OPTIM | DDH_CAP_LOSSY;

}  // namespace

DDH_CXX_PLUGIN(Diloco, strategy, "diloco", "0.1.0", "groups train alone and average every sync_every steps",
               ddh::kSchemaOf<kOptions>, kNeeds.data(), kCaps, 0, ddh::DataParallel::kUnderstands);
