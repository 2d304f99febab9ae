// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/memory_plan.hpp"

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "engine/loop/estimate.hpp"
#include "engine/loop/rank_setup.hpp"
#include "engine/record/progress_text.hpp"
#include "engine/services/comm/planned_world.hpp"

namespace ddhost {
namespace {

// Of one strategy. The model and the optimizers are the same on all ranks, so they are made once.
class Planner : RankSetup {
 public:
  Planner(const RunPlan& plan, std::unique_ptr<RunConfig> config, RankSeat& seat)
      : RankSetup(plan, std::move(config),
                  std::make_shared<spdlog::logger>("plan", std::make_shared<spdlog::sinks::null_sink_mt>()), seat),
        seat_(seat) {}
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;
  ~Planner() { end(); }

  MemoryPlan run() {
    require_dry_attach();
    open_device();
    open_transports();
    take_place(0);
    describe_model();
    choose_programs();
    MemoryPlan out;
    out.strategy = plan_.strategy.id();
    out.model = model_desc_->name;
    out.world_size = seat_.world_size();
    out.has_hosts = plan_.memory_by_host;
    out.has_nodes = seat_.nodes->count() > 1;
    out.device_has_memory = !services_.device->is_host_memory();
    for (uint32_t p = 0; p < model_desc_->n_params; ++p) out.n_params += model_desc_->params[p]->numel;
    for (const int32_t program : train_programs_)
      out.programs.push_back({model_desc_->programs[program]->name, eval_program_of(*model_desc_, program) >= 0});
    const std::optional<uint64_t> activations = activation_bytes();
    out.knows_act = activations.has_value();
    for (const int rank : ranks_to_plan()) {
      if (rank > 0) take_place(rank);
      make_optimizers();
      if (rank == 0) out.memory_checkpoints = memory_checkpoint_bytes();
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

  // Created, and never connected.
  void open_transports() {
    if (plan_.has_host_comm()) host_comm_ = make(plan_.host_comm, host_comm_seat_, "comm_host");
    comm_ = make(plan_.comm, comm_seat_, "comm");
    if (plan_.has_inside_comm()) inside_comm_ = make(plan_.inside_comm, inside_comm_seat_, kInsideCommSection);
  }

  // What a transport says of a group. Error of another kind than "not known" is the transport's own.
  ddh_comm_plan ask(const Instance& comm, size_t n_ranks) {
    const ddh_device_info device = services_.device->info();
    return ask(comm, comm_init(device), n_ranks);
  }
  ddh_comm_plan ask(const Instance& comm, const ddh_comm_init& init, size_t n_ranks) {
    const auto& table = comm.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
    ddh_comm_plan out{};
    out.struct_size = sizeof out;
    if (!DDH_CAN(&table, ddh_comm_backend_api, plan)) return unknown_group();
    try {
      comm.call(PluginCall::kPlan, table.plan, &init, static_cast<uint32_t>(n_ranks), &out);
    } catch (const ddh::Error& error) {
      if (error.code() != DDH_UNIMPLEMENTED) throw;
      return unknown_group();
    }
    return out;
  }

  // Of two transports: a group inside a host belongs to one, all others to the other. For all ranks both are used.
  ddh_comm_plan ask_layers(const std::vector<int32_t>& ranks) {
    const Nodes& nodes = *seat_.nodes;
    const ddh_device_info device = services_.device->info();
    const InitInside inside(comm_init(device), nodes);
    if (LayeredComm::is_inside(nodes, ranks.data(), static_cast<uint32_t>(ranks.size())))
      return ask(inside_comm_, inside.get(), ranks.size());
    ddh_comm_plan group = ask(comm_, ranks.size());
    group.caps &= ~DDH_COMM_SHARED_VIEW;
    if (world_ != nullptr) return group;  // not the first, of all ranks, which uses both
    group.bytes += ask(inside_comm_, inside.get(), static_cast<size_t>(inside.get().world_size)).bytes;
    if (nodes.ranks_per_node() > 0) group.bytes += ask(comm_, static_cast<size_t>(nodes.count())).bytes;
    group.bytes += LayeredComm::bytes(nodes, seat_.rank);
    return group;
  }

  // Strategies refuse a transport with less, and shared pages would take less memory.
  ddh_comm_plan unknown_group() {
    knows_comm_ = false;
    return {sizeof(ddh_comm_plan), DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL, 0};
  }

  // From now on the services are those of this rank.
  void take_place(int rank) {
    strategy_ = Instance();
    services_.codec.reset();
    codec_ = Instance();
    optimizers_.clear();
    optimizer_seats_.clear();
    services_.step.reset();
    services_.model_group = nullptr;
    services_.windows.reset();
    services_.comm.reset();
    device_comm_ = 0;
    seat_.rank = rank;
    const bool two = plan_.has_host_comm();
    const Instance& main = plan_.has_inside_comm() ? inside_comm_ : two ? host_comm_ : comm_;
    world_.reset();
    world_ = std::make_unique<PlannedWorld>(rank, seat_.world_size(), [this, two, &main](const auto& ranks) {
      if (plan_.has_inside_comm()) return ask_layers(ranks);
      ddh_comm_plan group = ask(main, ranks.size());
      if (!two) return group;
      const ddh_comm_plan of_device = ask(comm_, ranks.size());
      group.caps &= of_device.caps;
      group.bytes += of_device.bytes;
      device_comm_ += of_device.bytes;
      return group;
    });
    const bool shares = main.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE) != nullptr;
    services_.comm =
        std::make_unique<Comm>(world_->inst(), &PlannedWorld::table(), shares ? &PlannedWorld::shared_table() : nullptr,
                               services_.clock, main.caller(), seat_.nodes);
    make_windows();
  }

  std::vector<int> ranks_to_plan() const {
    if (seat_.world_size() > kMostPlannedRanks) return {0, seat_.world_size() - 1};
    std::vector<int> all;
    for (int rank = 0; rank < seat_.world_size(); ++rank) all.push_back(rank);
    return all;
  }

  RankMemory plan_rank(uint64_t activations) {
    make_codec();
    make_strategy(DDH_ATTACH_DRY);
    return rank_memory(memory_plan_, seat_.rank, world_->bytes() - device_comm_ + buffer_bytes() + codec_bytes_,
                       device_comm_, activations);
  }

  void end() { end_setup(); }

  RankSeat& seat_;
  std::unique_ptr<PlannedWorld> world_;
  uint64_t device_comm_ = 0;  // of world_->bytes(): of the device's transport
  bool knows_comm_ = true;
};

// Ranks that take the same memory together.
struct Sharing {
  PlannedBytes needed{};
  uint32_t n_ranks = 0;
  std::string first;  // "rank 0"
  void add(const PlannedBytes& bytes, int rank) {
    for (size_t tag = 0; tag < needed.size(); ++tag) needed[tag] += bytes[tag];
    if (n_ranks++ == 0) first = ddh::str("rank ", rank);
  }
  [[nodiscard]] std::string who() const { return n_ranks == 1 ? first : counted(n_ranks, "rank"); }

  // nullopt: `left` suffices.
  [[nodiscard]] std::optional<DoesNotFit> compared(MemoryKind kind, const ddh::FreeMemory& left) const {
    const uint64_t reserve = n_ranks * reserve_of_rank(kind);
    const char* tag = first_that_does_not_fit(needed, left.bytes);
    if (tag == nullptr && sum(needed) + reserve <= left.bytes) return std::nullopt;
    if (tag == nullptr) tag = "this reserve";
    std::string parts;
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i] > 0) parts += ddh::str(parts.empty() ? "" : ", ", kPlannedTags[i], " ", bytes_text(needed[i]));
    return DoesNotFit{
        {kind, left.bytes, n_ranks},
        ddh::str(
            "the run does not fit: ", who(), " will take ", bytes_text(sum(needed)), " more (", parts, ")",
            reserve > 0 ? ddh::str(" and needs a reserve of ", bytes_text(reserve), " for heaps and libraries") : "",
            ", and ", left.of, " has ", bytes_text(left.bytes), " of memory left, which does not suffice for ", tag,
            "; run.allow_overcommit=true starts it anyway")};
  }
};

// Of a rank's process, or of the process of all ranks.
std::optional<DoesNotFit> shortage_of_addresses(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  const std::string limit = ddh::free_addresses().of;  // the same for every rank
  Sharing process;
  for (const SeenMemory& rank : ranks) {
    if (!question.ranks_are_threads) process = {};
    process.add(rank.planned.in(MemoryKind::kAddresses, question.device_has_memory), rank.planned.rank);
    if (question.ranks_are_threads && &rank != &ranks.back()) continue;
    if (auto found = process.compared(MemoryKind::kAddresses, {rank.addresses_left, limit})) return found;
  }
  return std::nullopt;
}

// Ranks may share a device, which its UUID tells.
std::optional<DoesNotFit> shortage_of_devices(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  std::map<std::string, std::pair<Sharing, const ddh_device_info*>> devices;
  for (const SeenMemory& rank : ranks) {
    const std::string uuid(reinterpret_cast<const char*>(rank.device.uuid), sizeof rank.device.uuid);
    const bool is_known = uuid.find_first_not_of('\0') != std::string::npos;
    auto& [sharing, info] = devices[is_known ? uuid : ddh::str("rank ", rank.planned.rank)];
    sharing.add(rank.planned.in(MemoryKind::kDevice, true), rank.planned.rank);
    info = &rank.device;
  }
  for (const auto& [key, device] : devices)
    if (auto found = device.first.compared(
            MemoryKind::kDevice,
            {device.second->free_bytes, ddh::str("device '", question.device, "' (", device.second->name, ")")}))
      return found;
  return std::nullopt;
}

std::optional<DoesNotFit> shortage_of_hosts(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  std::map<int32_t, std::pair<Sharing, ddh::FreeMemory>> hosts;
  for (const SeenMemory& rank : ranks) {
    const auto [at, is_new] = hosts.try_emplace(rank.host);
    auto& [sharing, left] = at->second;
    if (is_new) left = {rank.host_left, rank.host_left_of.data()};
    sharing.add(rank.planned.in(MemoryKind::kHost, question.device_has_memory), rank.planned.rank);
  }
  for (auto& [number, host] : hosts) {
    auto& [sharing, left] = host;
    if (question.memory_checkpoints > 0 && left.bytes != UINT64_MAX) {
      left.bytes -= std::min(left.bytes, question.memory_checkpoints);
      left.of += ddh::str(", without ", bytes_text(question.memory_checkpoints), " for checkpoint.memory_every,");
    }
    if (auto found = sharing.compared(MemoryKind::kHost, left)) return found;
  }
  return std::nullopt;
}

}  // namespace

void see_host(SeenMemory& seen, const RankSeat& seat) {
  const std::vector<std::string>& addresses = seat.nodes->addresses();
  const bool has_hosts = !addresses.empty();  // simulated nodes share one
  const ddh::FreeMemory left = ddh::free_memory();
  seen.host = has_hosts ? seat.node() : 0;
  seen.host_left = left.bytes;
  const std::string of =
      has_hosts ? ddh::str(left.of, " (host ", addresses[static_cast<size_t>(seat.node())], ")") : left.of;
  seen.host_left_of = {};
  of.copy(seen.host_left_of.data(), seen.host_left_of.size() - 1);
}

std::optional<DoesNotFit> first_shortage(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  if (auto found = shortage_of_addresses(ranks, question)) return found;
  if (question.device_has_memory)
    if (auto found = shortage_of_devices(ranks, question)) return found;
  return shortage_of_hosts(ranks, question);
}

uint64_t reserve_of_rank(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      return uint64_t{96} << 20;
    case MemoryKind::kAddresses:
      return uint64_t{448} << 20;
    case MemoryKind::kDevice:
      return 0;
  }
  return 0;
}

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

MemoryPlan plan_memory(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat) {
  RankSeat own = seat;
  return Planner(plan, std::move(config), own).run();
}

}  // namespace ddhost
