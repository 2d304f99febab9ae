// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/optimizers.hpp: the run's optimizer instances, and those that follow them (train.followers).
// Strategies see one list of the slots of all instances. A step uses the instance that its program names, and then the
// followers. The slots, and the shards that a strategy passes, are checked here. It also sums the norms of parameters that
// an optimizer needs.
//
// If an instance shows other weights than the masters (train.eval_weights), the list ends with a slot of the host: a copy
// of the masters, while they hold the weights that are shown (engine/state/shown_weights.hpp).
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/named_numbers.hpp"
#include "engine/calls/plugin_caller.hpp"
#include "engine/numerics/exact_norm.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/optim/device_norm.hpp"
#include "engine/services/optim/step_account.hpp"

namespace ddhost {

// The slot of the host, and the prefix of its tensors in a checkpoint; no plugin may name a slot so.
inline constexpr const char* kMasterSlot = "master";

// Checks that every slot has a name, and a dtype and an extent that this host knows.
void check_slots(ddh_inst* optimizer, const ddh_optimizer_api& table, const PluginCaller& caller);

// The index of this rank among those that hold the same shard.
struct Replica {
  int32_t index = 0, count = 1;
};

// Sums of squares over whole parameters for optimizers that need them (ddh/kind/optimizer.h), exact, so they do not depend
// on sharding or world size.
class ParamSums {
 public:
  ParamSums() = default;
  // `needs`: DDH_NEEDS_* of each parameter. The others outlive this object.
  ParamSums(const ddh_model_desc& model, ddh_inst* optimizer, const ddh_optimizer_api& table,
            const std::vector<int32_t>& needs, const PluginCaller& caller = PluginCaller("the optimizer"));

  // The optimizer's prepare queues kernels: its values stay in memory of the device, which sums their squares. Both
  // outlive this object.
  void use_device(Device& device, Memory& memory);
  [[nodiscard]] bool needed() const { return !params_.empty(); }
  // Makes and checks each call of the optimizer's prepare, instead of the plain call.
  void check_with(std::function<void(const ddh_prepare_args&)> prepare) { checked_prepare_ = std::move(prepare); }
  void clear();
  // Calls the optimizer's prepare on one shard. Each square counts on one of the replicas.
  void prepare(const ddh_update_args& args, Replica replica);
  // Sums over the ranks. Fails if a parameter was not prepared completely.
  void agree(const Comm& comm);
  // Whether this parameter's sums of the step are complete.
  [[nodiscard]] bool ready(int32_t param) const;
  // sum_count for each parameter of the model; nullptr: none are needed.
  [[nodiscard]] const double* totals() const { return totals_.empty() ? nullptr : totals_.data(); }

 private:
  static constexpr uint64_t kPiece = 4096;  // elements per call: the values stay in the second-level cache
  static constexpr uint64_t kDevicePiece = uint64_t{1} << 20;  // at most, of kernels

  // The values of one call in memory of the device, which streams use in turn, and the sums so far.
  struct OnDevice;

  void count_squares(int32_t place, uint64_t numel, ddh_stream* stream);

  // A parameter that needs sums.
  struct Param {
    int32_t index;
    int64_t numel = 0;           // elements counted so far: on this rank; after agree, on all ranks
    std::vector<ExactSum> sums;  // sum_count of them
  };

  const ddh_model_desc* model_ = nullptr;
  ddh_inst* optimizer_ = nullptr;
  const ddh_optimizer_api* table_ = nullptr;
  PluginCaller call_;
  std::function<void(const ddh_prepare_args&)> checked_prepare_;  // empty in a normal run
  uint32_t sum_count_ = 0;
  bool agreed_ = false;
  std::vector<Param> params_;
  std::vector<int32_t> place_;  // per parameter of the model: index in params_, or -1
  std::vector<double> totals_;
  std::vector<std::vector<float>> values_;  // sum_count of them
  std::vector<float*> value_pointers_;
  uint64_t piece_ = kPiece;
  std::shared_ptr<OnDevice> on_device_;  // null: the optimizer computes on the host
};

// Bytes of a slot, counted from its base in a shard.
struct SlotPart {
  uint64_t offset = 0, bytes = 0;
};

// An instance that is attached to the model, and its section: "optimizer", "optimizer_kg", "follower.ema". The objects
// that it points to outlive the steps.
struct OptimizerRef {
  ddh_inst* inst;
  const ddh_optimizer_api* table;
  std::string section;
  PluginCaller call = PluginCaller("the optimizer");
  const ddh_desc* desc = nullptr;
  const ddh_migrate_api* migrate = nullptr;  // nullptr: it reads no older state
  bool follows = false;                      // of train.followers
  bool is_shown = false;                     // evaluations and files of weights have what it shows; at most one
};

// What precedes the names of an instance's slots, which makes them unique: "kg." for the section "optimizer_kg", or
// "follower.ema.".
std::string slot_prefix(const std::string& section);

class Optimizers {
 public:
  struct Instance {
    ddh_inst* inst;
    const ddh_optimizer_api* table;
    std::string section;
    PluginCaller call;
    const ddh_desc* desc = nullptr;
    const ddh_migrate_api* migrate = nullptr;
    bool follows, is_shown;
    std::vector<uint8_t> updates;  // per parameter: a program with later steps trains it with this instance
    std::vector<uint8_t> keeps;    // per parameter: its slots are kept, in a follower also after the last update
    std::vector<int32_t> needs;    // per parameter, DDH_NEEDS_*; NOTHING if it does not update it
    bool needs_something = false;
    uint32_t first_slot = 0;  // in the list of all instances
    std::vector<ddh_slot_desc> slots;
    std::vector<std::vector<uint64_t>> sized;  // per slot: empty, or of DDH_SLOT_SIZED: elements per parameter, or 0
    ParamSums sums;
    std::vector<int64_t> param_steps;  // per parameter: updates by this instance so far
    SavedNumbers first_numbers;        // before the first step
    [[nodiscard]] NamedNumbers<ddh_optimizer_number, ddh_optimizer_api> numbers() const { return {inst, *table, call}; }

    // The part of a slot that belongs to range `index` of a shard.
    [[nodiscard]] SlotPart part(uint32_t slot, std::span<const ddh_range> ranges, size_t index) const;
    [[nodiscard]] bool has_sized() const {
      return std::any_of(sized.begin(), sized.end(), [](const auto& numels) { return !numels.empty(); });
    }
  };

  // In the order of train.optimizers, then of train.followers. `programs`: the run's programs; they outlive this object.
  Optimizers(const ddh_model_desc& model, const std::vector<OptimizerRef>& refs,
             std::span<const ddh_run_program> programs);
  Optimizers(const Optimizers&) = delete;
  Optimizers& operator=(const Optimizers&) = delete;

  // The optimizers queue kernels on this device (DDH_CAP_KERNELS).
  void use_device(Device& device, Memory& memory) {
    for (Instance& instance : instances_) instance.sums.use_device(device, memory);
  }
  // Each call of prepare is made by `prepare` instead, which checks it.
  template <class Prepare>
  void check_prepare(const Prepare& prepare) {
    for (Instance& instance : instances_)
      instance.sums.check_with([&instance, prepare](const ddh_prepare_args& args) { prepare(instance, args); });
  }
  [[nodiscard]] uint32_t slot_count() const;
  // Error: OUT_OF_RANGE.
  [[nodiscard]] const ddh_slot_desc& slot(uint32_t index) const;
  // From now on only these programs of the run have steps.
  void set_later(std::span<const int32_t> programs);
  // One per parameter: 1 where a later step updates it.
  [[nodiscard]] std::vector<uint8_t> trained_later() const;
  // Whether an instance that trains the parameter in a later step uses the slot.
  [[nodiscard]] bool slot_used(uint32_t index, int32_t param) const;
  // Elements of the slot for a whole parameter, by its extent, whether the parameter uses the slot or not. With
  // DDH_SLOT_SIZED 0 where no instance used it when the run began.
  [[nodiscard]] uint64_t slot_numel(uint32_t index, int32_t param) const;
  // The strongest need of the instances that update the parameter.
  [[nodiscard]] int32_t needs(int32_t param) const;

  [[nodiscard]] Instance& of_program(int32_t program);
  [[nodiscard]] std::span<Instance> followers() { return std::span(instances_).subspan(n_optimizers_); }
  // The instance whose weights evaluations and files have; nullptr: the masters.
  [[nodiscard]] const Instance* shown() const;
  // One per parameter: 1 where it shows another value than the master; empty: nowhere.
  [[nodiscard]] std::vector<uint8_t> shown_params() const;
  // Whether it is the slot of the host.
  [[nodiscard]] bool is_master_slot(uint32_t index) const { return shown() != nullptr && index + 1 == slot_count(); }
  // Places, in the list over all instances, of the slots that a program's steps may use.
  struct SlotRange {
    uint32_t first, end;
  };
  [[nodiscard]] SlotRange slots_of(int32_t program) const;
  // Resets the step counts of the program's parameters, and the numbers of its optimizer: their next update counts as the
  // first.
  void forget_updates(int32_t program);
  // In the order of train.optimizers, then of train.followers.
  [[nodiscard]] const std::vector<Instance>& instances() const { return instances_; }
  // Of one instance, from a checkpoint; one number per parameter.
  void set_param_steps(size_t instance, const std::vector<int64_t>& steps) {
    instances_.at(instance).param_steps = steps;
  }
  // One per parameter: 1 where a step of the program updates it.
  [[nodiscard]] std::span<const uint8_t> trained_by(int32_t program) const;

  // A strategy's shard with the slots of one instance; a follower gets neither gradients nor the low-precision copy. Error:
  // the number of slots is wrong, a required slot has no memory, or the program does not train a parameter of the shard.
  [[nodiscard]] ddh_optim_shard shard_for(const Instance& instance, int32_t program,
                                          const ddh_optim_shard& shard) const;

 private:
  void add(const OptimizerRef& ref, int32_t index, std::span<const ddh_run_program> programs);
  [[nodiscard]] std::vector<uint64_t> sized_numels(const Instance& instance, uint32_t slot) const;
  [[nodiscard]] uint32_t own_slot_count() const;  // without the slot of the host
  void check_follower(const Instance& instance) const;
  void check_shown(const Instance& instance) const;
  [[nodiscard]] const Instance& of_slot(uint32_t index) const;
  [[nodiscard]] static bool uses(const Instance& instance, uint32_t slot, int32_t param);

  const ddh_model_desc& model_;
  std::vector<Instance> instances_;
  size_t n_optimizers_ = 0;             // of the instances; followers come after them
  std::vector<const uint8_t*> trains_;  // per program of the model; nullptr: trains nothing in this run
  std::deque<std::string> slot_names_;  // elements stay in place
};

}  // namespace ddhost
