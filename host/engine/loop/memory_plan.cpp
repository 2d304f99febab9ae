// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/memory_plan.hpp"

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "engine/loop/estimate.hpp"
#include "engine/loop/rank_setup.hpp"
#include "engine/record/process_memory.hpp"
#include "engine/services/comm/planned_world.hpp"

namespace ddhost {
namespace {

// Of a key that a plugin has asked for; it may lack one.
std::string value_or_absent(const RunConfig& config, const std::string& key) {
  try {
    return config.json(key);
  } catch (const ddh::Error&) {
    return "absent";
  }
}

}  // namespace

PlannedBytes RankMemory::in(MemoryKind kind, bool device_has_memory) const {
  if (kind == MemoryKind::kAddresses) return {param, grad, optim, comm, act};
  if (!device_has_memory)
    return kind == MemoryKind::kHost ? PlannedBytes{param - shared, grad, optim, comm, act} : PlannedBytes{};
  const uint64_t of_optim = std::min(pinned, optim), of_param = std::min(pinned - of_optim, param);
  const uint64_t of_grad = std::min(pinned - of_optim - of_param, grad);
  if (kind == MemoryKind::kHost) return {of_param, of_grad, of_optim, host_comm, 0};
  return {param - of_param, grad - of_grad, optim - of_optim, comm - host_comm, act};
}

const char* first_that_does_not_fit(const PlannedBytes& bytes, uint64_t left) {
  for (size_t tag = 0; tag < bytes.size(); ++tag) {
    if (bytes[tag] > left) return kPlannedTags[tag];
    left -= bytes[tag];
  }
  return nullptr;
}

RankMemory rank_memory(const ddh_plan& plan, int rank, uint64_t host_comm, uint64_t device_comm, uint64_t activations) {
  RankMemory out;
  out.rank = rank;
  out.param = plan.param_bytes;
  out.grad = plan.grad_bytes;
  out.optim = plan.optim_bytes;
  out.comm = plan.comm_bytes + host_comm + device_comm;
  out.host_comm = host_comm;
  out.act = activations;
  out.shared = plan.shared_bytes;
  out.pinned = plan.pinned_bytes;
  out.file = plan.file_bytes;
  if (plan.sent_bytes != DDH_PLAN_UNKNOWN) out.sent = plan.sent_bytes;
  if (plan.sent_between_nodes_bytes != DDH_PLAN_UNKNOWN) out.sent_between_nodes = plan.sent_between_nodes_bytes;
  return out;
}

std::string plan_text(const RankMemory& plan) {
  const auto mb = [](uint64_t bytes) { return number_as("%.1f", static_cast<double>(bytes) / 1e6); };
  std::string out = "planned for each rank, in MB: ";
  for (const auto& [name, bytes] : {std::pair("param", plan.param),
                                    {"grad", plan.grad},
                                    {"optim", plan.optim},
                                    {"comm", plan.comm},
                                    {"act", plan.act}})
    out += ddh::str(name, " ", mb(bytes), ", ");
  return out + "in all " + mb(plan.total()) + (plan.file > 0 ? ", and in files " + mb(plan.file) : "");
}

const RankMemory& MemoryPlan::largest() const {
  return *std::max_element(ranks.begin(), ranks.end(),
                           [](const RankMemory& a, const RankMemory& b) { return a.total() < b.total(); });
}

std::optional<uint64_t> MemoryPlan::unique_of_all() const {
  const std::optional<PlannedBytes> bytes = unique_of_all(MemoryKind::kAddresses);
  return bytes ? std::optional(sum(*bytes)) : std::nullopt;
}

std::optional<PlannedBytes> MemoryPlan::unique_of_all(MemoryKind kind) const {
  if (ranks.size() != static_cast<size_t>(world_size)) return std::nullopt;
  PlannedBytes all{};
  for (const RankMemory& rank : ranks) {
    PlannedBytes bytes = rank.in(kind, device_has_memory);
    if (kind == MemoryKind::kAddresses) bytes.front() -= rank.shared;  // of param
    for (size_t tag = 0; tag < all.size(); ++tag) all[tag] += bytes[tag];
  }
  return all;
}

// What the rest of a planned run refers to.
struct MemoryPlanner::Copies {
  const RunPlan own_plan;
  RankSeat own_seat;
};

// Of one run. The model is the same on all ranks, so it is made once.
class MemoryPlanner::OneRun : Copies, RankSetup {
 public:
  OneRun(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat, int most_ranks)
      : Copies{plan, seat},
        RankSetup(own_plan, std::move(config),
                  std::make_shared<spdlog::logger>("plan", std::make_shared<spdlog::sinks::null_sink_mt>()), own_seat),
        most_ranks_(most_ranks) {}
  OneRun(const OneRun&) = delete;
  OneRun& operator=(const OneRun&) = delete;
  ~OneRun() {
    if (lender_ != nullptr) lender_->model_ = std::move(model_);
    end();
  }

  // Whether a run would make the model of this one. A model that talks to the ranks needs those of its own run.
  [[nodiscard]] bool makes_model_of(const RunPlan& plan, const RunConfig& config) const {
    if (model_seat_.has_asked_for_ranks() || plan.model.desc != plan_.model.desc ||
        plan.device.desc != plan_.device.desc)
      return false;
    const std::set<std::string> keys = model_seat_.read_keys();
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
      return value_or_absent(config, key) == value_or_absent(this->config(), key);
    });
  }
  // Takes the model of another run until this one ends.
  void borrow_model(OneRun& lender) {
    lender_ = &lender;
    model_ = std::move(lender.model_);
    model_table_ = lender.model_table_;
    model_desc_ = lender.model_desc_;
    data_sets_ = lender.data_sets_;
    libraries_ = lender.libraries_;
  }
  // What stays of a run whose model others borrow.
  void keep_model() {
    leave_place();
    comm_ = Instance();
    host_comm_ = Instance();
    inside_comm_ = Instance();
  }

  MemoryPlan run() {
    require_dry_attach();
    open_device();
    open_transports();
    take_place(0);
    MemoryPlan out;
    if (lender_ == nullptr) make_model();
    out.data_sets = data_sets_;
    out.libraries = libraries_;
    choose_programs();
    out.strategy = plan_.strategy.id();
    out.model = model_desc_->name;
    out.world_size = own_seat.world_size();
    out.has_hosts = plan_.memory_by_host;
    out.has_nodes = own_seat.nodes->count() > 1;
    out.device_has_memory = !services_.device->is_host_memory();
    for (uint32_t p = 0; p < model_desc_->n_params; ++p) out.n_params += model_desc_->params[p]->numel;
    for (const int32_t program : train_programs_)
      out.programs.push_back({model_desc_->programs[program]->name, eval_program_of(*model_desc_, program) >= 0});
    const std::optional<uint64_t> activations = activation_bytes();
    out.knows_act = activations.has_value();
    for (const int rank : ranks_to_plan()) {
      if (rank > 0) take_place(rank);
      make_optimizers();
      if (rank == 0) out.checkpoints = checkpoint_memory();
      out.ranks.push_back(plan_rank(activations.value_or(0)));
    }
    for (uint32_t p = 0; p < model_desc_->n_params; ++p)
      if (grad_in_blocks_[p] != 0)
        out.in_blocks.push_back({model_desc_->params[p]->name, model_desc_->params[p]->numel * sizeof(float)});
    out.knows_comm = knows_comm_;
    return out;
  }

 private:
  void require_dry_attach() const {
    if (plan_.strategy.has_cap(DDH_CAP_DRY_ATTACH)) return;
    ddh::fail(
        DDH_FAILED_PRECONDITION, "strategy '", plan_.strategy.id(),
        "' can't be planned without its ranks (it lacks DDH_CAP_DRY_ATTACH); a run of it prints its plan before it ",
        "allocates memory");
  }

  void make_model() {
    const uint64_t before = process_memory().anon_rss;
    describe_model();
    const ProcessMemory with_model = process_memory();
    data_sets_ = with_model.anon_rss - std::min(with_model.anon_rss, before);
    libraries_ = with_model.libraries + before;
  }

  // Created, and never connected.
  void open_transports() {
    if (plan_.has_host_comm()) host_comm_ = make(plan_.host_comm, host_comm_seat_, "comm_host");
    comm_ = make(plan_.comm, comm_seat_, "comm");
    if (plan_.has_inside_comm()) inside_comm_ = make(plan_.inside_comm, inside_comm_seat_, kInsideCommSection);
  }

  // Strategies refuse a transport with less than these caps, and shared pages would take less memory.
  ddh_comm_plan group_plan(const std::vector<int32_t>& ranks) {
    const std::optional<GroupPlan> group = transport_plan(ranks, /*is_world=*/world_ == nullptr);
    if (!group) knows_comm_ = false;
    const GroupPlan known = group.value_or(GroupPlan{DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL});
    device_comm_ += known.device;
    return {sizeof(ddh_comm_plan), known.caps, known.host + known.device};
  }

  void leave_place() {
    strategy_ = Instance();
    services_.codec.reset();
    codec_ = Instance();
    optimizers_.clear();
    optimizer_seats_.clear();
    services_.step.reset();
    services_.model_group = nullptr;
    services_.windows.reset();
    services_.comm.reset();
    world_.reset();
  }

  // From now on the services are those of this rank.
  void take_place(int rank) {
    leave_place();
    device_comm_ = 0;
    own_seat.rank = rank;
    const bool two = plan_.has_host_comm();
    const Instance& main = plan_.has_inside_comm() ? inside_comm_ : two ? host_comm_ : comm_;
    world_ = std::make_unique<PlannedWorld>(rank, own_seat.world_size(),
                                            [this](const std::vector<int32_t>& ranks) { return group_plan(ranks); });
    const bool shares = main.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE) != nullptr;
    services_.comm =
        std::make_unique<Comm>(world_->inst(), &PlannedWorld::table(), shares ? &PlannedWorld::shared_table() : nullptr,
                               services_.clock, main.caller(), own_seat.nodes);
    make_windows();
  }

  std::vector<int> ranks_to_plan() const {
    if (own_seat.world_size() > most_ranks_) return {0, own_seat.world_size() - 1};
    std::vector<int> all;
    for (int rank = 0; rank < own_seat.world_size(); ++rank) all.push_back(rank);
    return all;
  }

  RankMemory plan_rank(uint64_t activations) {
    make_codec();
    make_strategy(DDH_ATTACH_DRY);
    return rank_memory(memory_plan_, own_seat.rank, world_->bytes() - device_comm_ + buffer_bytes() + codec_bytes_,
                       device_comm_, activations);
  }

  void end() { end_setup(); }

  int most_ranks_;
  std::unique_ptr<PlannedWorld> world_;
  uint64_t device_comm_ = 0;  // of world_->bytes(): of the device's transport
  bool knows_comm_ = true;
  OneRun* lender_ = nullptr;                // of the model; null: this run has made it
  uint64_t data_sets_ = 0, libraries_ = 0;  // as in MemoryPlan
};

MemoryPlanner::MemoryPlanner() = default;
MemoryPlanner::~MemoryPlanner() = default;

MemoryPlan MemoryPlanner::plan(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat,
                               int most_ranks) {
  const bool has_model = first_ != nullptr && first_->makes_model_of(plan, *config);
  auto one = std::make_unique<OneRun>(plan, std::move(config), seat, most_ranks);
  if (has_model) {
    one->borrow_model(*first_);
    return one->run();
  }
  first_.reset();
  MemoryPlan out = one->run();
  one->keep_model();
  first_ = std::move(one);
  return out;
}

}  // namespace ddhost
