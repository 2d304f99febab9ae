// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/optimizers.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"
#include "engine/services/optim/check_optim.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {
namespace {

// The prefix of an instance's slot names, which makes them unique: "kg.".
std::string prefix_of(const std::string& section) {
  return section.starts_with(kFurtherOptimizer) ? section.substr(kFurtherOptimizer.size()) + "." : "";
}

}  // namespace

Optimizers::Optimizers(const ddh_model_desc& model, const std::vector<OptimizerRef>& refs,
                       std::span<const ddh_run_program> programs)
    : model_(model), trains_(model.n_programs, nullptr) {
  for (const ddh_run_program& program : programs) trains_[static_cast<size_t>(program.program)] = program.trains;
  for (size_t i = 0; i < refs.size(); ++i) add(refs[i], static_cast<int32_t>(i), programs);
}

void Optimizers::add(const OptimizerRef& ref, int32_t index, std::span<const ddh_run_program> programs) {
  Instance o;
  o.inst = ref.inst;
  o.table = ref.table;
  o.section = ref.section;
  o.call = ref.call;
  o.updates.assign(model_.n_params, 0);
  o.needs.assign(model_.n_params, DDH_NEEDS_NOTHING);
  o.param_steps.assign(model_.n_params, 0);
  for (const ddh_run_program& program : programs) {
    if (program.trains == nullptr || model_.programs[program.program]->optimizer != index) continue;
    for (uint32_t p = 0; p < model_.n_params; ++p) o.updates[p] |= program.trains[p];
  }
  const PluginCaller::Entered entered = ref.call.enter(PluginCall::kNeeds);
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    if (o.updates[p] == 0) continue;
    o.needs[p] = ref.table->needs(ref.inst, static_cast<int32_t>(p));
    if (o.needs[p] < DDH_NEEDS_NOTHING || o.needs[p] > DDH_NEEDS_WHOLE_PARAM)
      ddh::fail(DDH_UNIMPLEMENTED, "the optimizer of section '", ref.section, "' has the need ", o.needs[p],
                " for parameter '", model_.params[p]->name,
                "', which this host does not know; update ddhost, or choose another optimizer");
    o.needs_something = o.needs_something || o.needs[p] != DDH_NEEDS_NOTHING;
  }
  o.sums = ParamSums(model_, ref.inst, *ref.table, o.needs, ref.call);
  o.first_slot = slot_count();
  for (uint32_t i = 0; i < ref.table->slot_count(ref.inst); ++i) {
    ddh_slot_desc desc{};
    desc.struct_size = sizeof desc;
    ref.call(PluginCall::kSlot, ref.table->slot, ref.inst, i, &desc);
    if (desc.extent != DDH_SLOT_PER_ELEMENT || ddh_dtype_bytes(desc.dtype) == 0)
      ddh::fail(DDH_UNIMPLEMENTED, "slot '", desc.name, "' of the optimizer of section '", ref.section, "' has extent ",
                desc.extent, " and dtype ", desc.dtype,
                ", which this host does not know; update ddhost, or choose another optimizer");
    slot_names_.push_back(prefix_of(ref.section) + desc.name);
    desc.struct_size = sizeof desc;
    desc.name = slot_names_.back().c_str();
    o.slots.push_back(desc);
  }
  instances_.push_back(std::move(o));
}

void Optimizers::set_later(std::span<const int32_t> programs) {
  for (Instance& o : instances_) o.updates.assign(model_.n_params, 0);
  for (const int32_t program : programs) {
    Instance& o = of_program(program);
    const std::span<const uint8_t> trained = trained_by(program);
    for (size_t p = 0; p < trained.size(); ++p) o.updates[p] |= trained[p];
  }
}

std::vector<uint8_t> Optimizers::trained_later() const {
  std::vector<uint8_t> trained(model_.n_params, 0);
  for (const Instance& o : instances_)
    for (size_t p = 0; p < trained.size(); ++p) trained[p] |= o.updates[p];
  return trained;
}

uint32_t Optimizers::slot_count() const {
  return instances_.empty() ? 0 : instances_.back().first_slot + static_cast<uint32_t>(instances_.back().slots.size());
}

const Optimizers::Instance& Optimizers::of_slot(uint32_t index) const {
  for (const Instance& o : instances_)
    if (index < o.first_slot + o.slots.size()) return o;
  ddh::fail(DDH_OUT_OF_RANGE, "optimizer slot ", index, " does not exist; there are ", slot_count());
}

const ddh_slot_desc& Optimizers::slot(uint32_t index) const {
  const Instance& o = of_slot(index);
  return o.slots[index - o.first_slot];
}

bool Optimizers::uses(const Instance& o, uint32_t slot, int32_t param) {
  if (o.updates.at(static_cast<size_t>(param)) == 0) return false;
  return !DDH_CAN(o.table, ddh_optimizer_api, slot_used) || o.table->slot_used(o.inst, slot, param) != 0;
}

bool Optimizers::slot_used(uint32_t index, int32_t param) const {
  const Instance& o = of_slot(index);
  return uses(o, index - o.first_slot, param);
}

int32_t Optimizers::needs(int32_t param) const {
  int32_t strongest = DDH_NEEDS_NOTHING;
  for (const Instance& o : instances_) strongest = std::max(strongest, o.needs.at(static_cast<size_t>(param)));
  return strongest;
}

Optimizers::Instance& Optimizers::of_program(int32_t program) {
  return instances_.at(static_cast<size_t>(model_.programs[program]->optimizer));
}

Optimizers::SlotRange Optimizers::slots_of(int32_t program) const {
  const Instance& o = instances_.at(static_cast<size_t>(model_.programs[program]->optimizer));
  return {o.first_slot, o.first_slot + static_cast<uint32_t>(o.slots.size())};
}

void Optimizers::forget_updates(int32_t program) {
  Instance& o = of_program(program);
  const std::span<const uint8_t> trained = trained_by(program);
  for (size_t p = 0; p < trained.size(); ++p)
    if (trained[p] != 0) o.param_steps[p] = 0;
}

std::span<const uint8_t> Optimizers::trained_by(int32_t program) const {
  return {trains_.at(static_cast<size_t>(program)), model_.n_params};
}

ddh_optim_shard Optimizers::shard_for(const Instance& o, int32_t program, const ddh_optim_shard& shard) const {
  if (shard.n_ranges > 0) check_shard_pointers(shard, slot_count());
  const std::span<const uint8_t> trained = trained_by(program);
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const int32_t param = shard.ranges[r].param;
    if (trained[static_cast<size_t>(param)] == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "the strategy updates parameter '", model_.params[param]->name,
                "', which program '", model_.programs[program]->name, "' does not train; choose another strategy");
  }
  for (uint32_t i = 0; shard.n_ranges > 0 && i < o.slots.size(); ++i) {
    if (shard.slots[o.first_slot + i] != nullptr) continue;
    for (uint32_t r = 0; r < shard.n_ranges; ++r)
      if (shard.ranges[r].numel > 0 && uses(o, i, shard.ranges[r].param))
        ddh::fail(DDH_INVALID_ARGUMENT, "a shard for the optimizer has no memory (NULL) for slot '", o.slots[i].name,
                  "', which parameter '", model_.params[shard.ranges[r].param]->name, "' uses; fix the strategy");
  }
  ddh_optim_shard out = shard;
  out.slots = o.slots.empty() || shard.slots == nullptr ? nullptr : shard.slots + o.first_slot;
  out.n_slots = static_cast<uint32_t>(o.slots.size());
  return out;
}

}  // namespace ddhost
