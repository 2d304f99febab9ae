// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/optimizers.hpp: the run's optimizer instances. Strategies see one list of the slots of all instances.
// A step uses the instance that its program names.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/optim/param_sums.hpp"

namespace ddhost {

// An instance that is attached to the model, and its section: "optimizer", "optimizer_kg". The objects that it points
// to outlive the steps.
struct OptimizerRef {
  ddh_inst* inst;
  const ddh_optimizer_api* table;
  std::string section;
  PluginCaller call = PluginCaller("the optimizer");
};

class Optimizers {
 public:
  struct Instance {
    ddh_inst* inst;
    const ddh_optimizer_api* table;
    std::string section;
    PluginCaller call;
    std::vector<uint8_t> updates;  // per parameter: a program with later steps trains it with this instance
    std::vector<int32_t> needs;    // per parameter, DDH_NEEDS_*; NOTHING if it does not update it
    bool needs_something = false;
    uint32_t first_slot = 0;  // in the list of all instances
    std::vector<ddh_slot_desc> slots;
    ParamSums sums;
    std::vector<int64_t> param_steps;  // per parameter: updates by this instance so far
  };

  // In the order of train.optimizers. `programs`: the run's programs; they outlive this object.
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
  // The strongest need of the instances that update the parameter.
  [[nodiscard]] int32_t needs(int32_t param) const;

  [[nodiscard]] Instance& of_program(int32_t program);
  // Places, in the list over all instances, of the slots that a program's steps may use.
  struct SlotRange {
    uint32_t first, end;
  };
  [[nodiscard]] SlotRange slots_of(int32_t program) const;
  // Resets the step counts of the program's parameters: their next update counts as the first.
  void forget_updates(int32_t program);
  // In the order of train.optimizers.
  [[nodiscard]] const std::vector<Instance>& instances() const { return instances_; }
  // Of one instance, from a checkpoint; one number per parameter.
  void set_param_steps(size_t instance, const std::vector<int64_t>& steps) {
    instances_.at(instance).param_steps = steps;
  }
  // One per parameter: 1 where a step of the program updates it.
  [[nodiscard]] std::span<const uint8_t> trained_by(int32_t program) const;

  // A strategy's shard with the slots of one instance. Error: the number of slots is wrong, a required slot has no
  // memory, or the program does not train a parameter of the shard.
  [[nodiscard]] ddh_optim_shard shard_for(const Instance& instance, int32_t program,
                                          const ddh_optim_shard& shard) const;

 private:
  void add(const OptimizerRef& ref, int32_t index, std::span<const ddh_run_program> programs);
  [[nodiscard]] const Instance& of_slot(uint32_t index) const;
  [[nodiscard]] static bool uses(const Instance& instance, uint32_t slot, int32_t param);

  const ddh_model_desc& model_;
  std::vector<Instance> instances_;
  std::vector<const uint8_t*> trains_;  // per program of the model; nullptr: trains nothing in this run
  std::deque<std::string> slot_names_;  // elements stay in place
};

}  // namespace ddhost
