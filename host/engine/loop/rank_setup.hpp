// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/rank_setup.hpp: what a rank needs before it allocates memory: its device, the model, the optimizers, and a
// strategy that is attached. A rank of a run goes on from there (rank.cpp); `ddhost plan` stops there (memory_plan.cpp).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/calls/instance.hpp"
#include "engine/checks/check_model.hpp"
#include "engine/loop/memory_plan.hpp"
#include "engine/services/comm/layered_comm.hpp"
#include "engine/services/optim/optimizers.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/settings/course.hpp"
#include "engine/settings/run_plan.hpp"
#include "engine/settings/run_programs.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

// Each step creates the members of the same position; `end_setup` destroys them in reverse order, and may be called twice.
class RankSetup {
 public:
  RankSetup(const RankSetup&) = delete;
  RankSetup& operator=(const RankSetup&) = delete;

 protected:
  RankSetup(const RunPlan& plan, std::unique_ptr<RunConfig> config, std::shared_ptr<spdlog::logger> log,
            const RankSeat& seat);
  ~RankSetup() { end_setup(); }

  void open_device();
  // Connects to all ranks over one transport.
  const ddh_comm_backend_api* join_over(const Instance& comm) const;
  // Connects to the ranks of this host by inside_comm_, whose table it returns.
  const ddh_comm_backend_api* join_inside();
  // One Comm of inside_comm_ and comm_, whose tables are given.
  void make_layers(const ddh_comm_backend_api& inside, const ddh_comm_backend_api& between);
  static const ddh_comm_shared_api* shared_of(const Instance& comm) {
    return comm.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE);
  }
  void describe_model();
  // After describe_model: the programs of the run.
  void choose_programs();
  // After these, and a Comm in the services.
  void make_optimizers();
  // Of a training, after make_optimizers.
  [[nodiscard]] CheckpointMemory checkpoint_memory() const;
  // Of a checkpoint, without tensors of the strategy's own.
  [[nodiscard]] uint64_t checkpoint_bytes() const;
  // Throws if the disk has no room for the checkpoints of a run that begins with its first step.
  void require_room_of_new_run(const TrainOrder& order) const;
  // Before make_strategy, which asks it: the run's codec, if it has one. It allocates nothing before attach_codec.
  void make_codec();
  void attach_codec();
  // `flags`: DDH_ATTACH_*. `total_steps`: of the run; 0: not known.
  void make_strategy(uint32_t flags, int64_t total_steps = 0);
  // Logs each plugin that trains on purpose otherwise than ddp, or that can't resume exactly.
  void say_caps() const;
  // The most that a micro-batch of a training program takes at once. nullopt: the model has no estimates.
  [[nodiscard]] std::optional<uint64_t> activation_bytes() const;
  [[nodiscard]] uint64_t buffer_bytes() const;  // that the exchange of the model's buffers takes
  // What the run's transports say of a group of ranks; nullopt: nothing. `host`, `device`: their memory.
  struct GroupPlan {
    uint32_t caps = 0;
    uint64_t host = 0, device = 0;
  };
  [[nodiscard]] std::optional<GroupPlan> transport_plan(const std::vector<int32_t>& ranks, bool is_world) const;
  // memory_plan_ with all of tag comm: the groups of ranks, the model's buffers and the codec, too. DDH_PLAN_UNKNOWN: a
  // transport does not say what it takes.
  [[nodiscard]] ddh_plan whole_plan() const;
  void end_setup();

  [[nodiscard]] const RunConfig& config() const { return services_.config; }
  [[nodiscard]] Instance make(const Plugin& plugin, const PluginSeat& seat, const char* section) const {
    return {plugin, seat.host(), section, &services_.seat.record};
  }
  [[nodiscard]] bool is_first() const { return services_.seat.rank == 0; }
  [[nodiscard]] uint32_t reduce_block() const;
  [[nodiscard]] ddh_comm_init comm_init(const ddh_device_info& device) const;
  // `trains`: gradients are summed, by a thread if comm.overlap says so.
  void make_windows(bool trains = false);

  const RunPlan& plan_;
  RankServices services_;
  std::vector<const char*> addresses_;  // of the nodes; empty if all ranks are on one machine
  PluginSeat device_seat_, comm_seat_, host_comm_seat_, inside_comm_seat_, model_seat_, strategy_seat_, codec_seat_;
  std::deque<PluginSeat> optimizer_seats_;  // elements stay in place
  Instance device_, comm_, host_comm_, inside_comm_, model_, strategy_, codec_;
  const std::string layers_name_ = "comm '" + plan_.transports() + "'";
  std::unique_ptr<LayeredComm> layered_;  // over inside_comm_ and comm_, if the run has both
  std::deque<Instance> optimizers_;       // in the order of train.optimizers, then of train.followers
  const ddh_model_api* model_table_ = nullptr;
  const ddh_strategy_api* strategy_table_ = nullptr;
  ModelCopy model_copy_;
  const ddh_model_desc* model_desc_ = nullptr;
  ddh_plan memory_plan_{};
  std::vector<uint8_t> grad_in_blocks_;  // of each parameter; memory_plan_ has a pointer to it
  uint64_t codec_bytes_ = 0;             // that the codec will allocate
  std::vector<PhaseSpec> phases_;
  std::vector<int32_t> train_programs_;  // in turn, or those of all phases
  std::unique_ptr<RunPrograms> programs_;

 private:
  [[nodiscard]] std::optional<GroupPlan> layers_plan(const ddh_comm_init& init, const std::vector<int32_t>& ranks,
                                                     bool is_world) const;
  [[nodiscard]] ddh_codec_args codec_args() const;
  [[nodiscard]] bool sums_in_bf16() const;
  OptimizerRef make_optimizer(const RunPlan::Optimizer& given);
  void name_units() const;
  void leave_out_programs();
  void check_optimizers() const;
  void make_programs();
};

}  // namespace ddhost
