// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/optimizers.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "ddh/sdk/params/layout.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kMaxSlots = 64;
constexpr uint64_t kMaxSlotNumel = uint64_t{1} << 40;
constexpr const char* kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

bool is_extent(int32_t extent) {
  return extent == DDH_SLOT_PER_ELEMENT || extent == DDH_SLOT_PER_BLOCK || extent == DDH_SLOT_SIZED;
}

constexpr ddh_slot_desc kMasterSlotDesc = {sizeof(ddh_slot_desc), DDH_F32, kMasterSlot, DDH_SLOT_PER_ELEMENT, 0};

// Checks the pointers of a shard that is not empty. `slot_count`: over all instances.
void check_shard_pointers(const ddh_optim_shard& shard, uint32_t slot_count) {
  const auto refuse = [](const auto&... what) {
    ddh::fail(DDH_INVALID_ARGUMENT, "a shard for the optimizer has ", what..., "; fix the strategy");
  };
  if (shard.master == nullptr) refuse("no master (NULL)");
  if (shard.n_grads == 0 || shard.grads == nullptr) refuse("no gradient");
  for (uint32_t g = 0; g < shard.n_grads; ++g)
    if (shard.grads[g] == nullptr) refuse("a gradient at NULL");
  if (shard.n_slots != slot_count || (slot_count > 0 && shard.slots == nullptr))
    refuse(shard.slots == nullptr ? 0 : shard.n_slots, " slots, but the optimizer has ", slot_count);
  if (shard.lowp != nullptr && shard.lowp_dtype != DDH_BF16 && shard.lowp_dtype != DDH_F16)
    refuse("a low-precision copy of dtype ", shard.lowp_dtype, ", which is neither DDH_BF16 nor DDH_F16");
}

}  // namespace

std::string slot_prefix(const std::string& section) {
  if (section.starts_with(kFollower)) return section + ".";
  return section.starts_with(kFurtherOptimizer) ? section.substr(kFurtherOptimizer.size()) + "." : "";
}

void check_slots(ddh_inst* optimizer, const ddh_optimizer_api& table, const PluginCaller& caller) {
  const uint32_t count = table.slot_count(optimizer);
  if (count > kMaxSlots)
    caller.blame(PluginCall::kSlot, {}, "says that it has ", count, " slots, at most ", kMaxSlots, " are supported");
  std::set<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    ddh_slot_desc desc{};
    desc.struct_size = sizeof desc;
    caller(PluginCall::kSlot, table.slot, optimizer, i, &desc);
    if (desc.name == nullptr || desc.name[0] == '\0') caller.blame(PluginCall::kSlot, {}, "gives slot ", i, " no name");
    if (std::string(desc.name).find_first_not_of(kNameCharacters) != std::string::npos)
      caller.blame(PluginCall::kSlot, {}, "names slot ", i, " with characters other than letters, digits and '_'; ",
                   "names of tensors in checkpoints contain it");
    if (std::string_view(desc.name) == kMasterSlot)
      caller.blame(PluginCall::kSlot, {}, "gives a slot the name '", kMasterSlot,
                   "', which checkpoints use for the master weights; choose another name");
    if (!names.insert(desc.name).second)
      caller.blame(PluginCall::kSlot, {}, "gives two slots the name '", desc.name, "'");
    if (ddh_dtype_bytes(desc.dtype) == 0)
      caller.blame(PluginCall::kSlot, {}, "gives slot '", desc.name, "' the dtype ", desc.dtype,
                   ", which this host does not know; use DDH_F32 or another dtype of the ABI");
    if (!is_extent(desc.extent))
      caller.blame(PluginCall::kSlot, {}, "gives slot '", desc.name, "' the extent ", desc.extent,
                   ", which this host does not know; use one of DDH_SLOT_*");
  }
}

struct ParamSums::OnDevice {
  OnDevice(Device& device, Memory& owner) : memory(owner), squares(device, owner), used(device) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    for (float* values : blocks) memory.release(values);
  }
  Memory& memory;
  DeviceNorm squares;
  StreamMark used;  // the last use of the values
  std::vector<float*> blocks;
};

ParamSums::ParamSums(const ddh_model_desc& model, ddh_inst* optimizer, const ddh_optimizer_api& table,
                     const std::vector<int32_t>& needs, const PluginCaller& caller)
    : model_(&model), optimizer_(optimizer), table_(&table), call_(caller), place_(needs.size(), -1) {
  if (DDH_CAN(table_, ddh_optimizer_api, sum_count)) sum_count_ = table.sum_count(optimizer);
  for (size_t p = 0; p < needs.size(); ++p) {
    if (needs[p] != DDH_NEEDS_PARAM_NORM) continue;
    if (sum_count_ == 0 || !DDH_CAN(table_, ddh_optimizer_api, prepare))
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer says that it needs the norm of parameter '",
                model.params[p]->name, "', but offers no sum_count and prepare; fix the plugin");
    place_[p] = static_cast<int32_t>(params_.size());
    params_.push_back({static_cast<int32_t>(p), 0, std::vector<ExactSum>(sum_count_)});
  }
  if (params_.empty()) return;
  totals_.assign(needs.size() * sum_count_, 0.0);
  values_.assign(sum_count_, std::vector<float>(kPiece));
  for (std::vector<float>& values : values_) value_pointers_.push_back(values.data());
}

void ParamSums::use_device(Device& device, Memory& memory) {
  if (params_.empty()) return;
  if (!DeviceNorm::is_possible(device))
    ddh::fail(DDH_UNIMPLEMENTED, "the optimizer needs norms of parameters, but device '", device.name(),
              "' has no exact_squares to sum squares in its memory; choose another optimizer, or another --device");
  uint64_t largest = 0;
  for (const Param& param : params_)
    largest = std::max<uint64_t>(largest, model_->params[static_cast<size_t>(param.index)]->numel);
  piece_ = std::min(kDevicePiece, (largest + kNormBlock - 1) / kNormBlock * kNormBlock);
  on_device_ = std::make_shared<OnDevice>(device, memory);
  values_.clear();
  for (float*& values : value_pointers_) {
    values = static_cast<float*>(
        memory.allocate(DDH_TAG_COMM, piece_ * sizeof(float), "values of norms of parameters", DDH_MEM_DEVICE));
    on_device_->blocks.push_back(values);
  }
}

void ParamSums::clear() {
  agreed_ = false;
  if (on_device_ != nullptr) on_device_->squares.clear();
  for (Param& param : params_) {
    param.numel = 0;
    for (ExactSum& sum : param.sums) sum.clear();
  }
}

void ParamSums::prepare(const ddh_update_args& args, Replica replica) {
  if (agreed_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called prepare after sum_norms in step ", args.block->step);
  ddh_optim_shard shard = *args.shard;
  ddh_range piece{};
  shard.ranges = &piece;
  shard.n_ranges = 1;
  ddh_update_args piece_args = args;
  piece_args.shard = &shard;
  const ddh_prepare_args call{sizeof(ddh_prepare_args), sum_count_, &piece_args, value_pointers_.data()};
  int64_t turn = 0;  // replicas take pieces in turn
  for (uint32_t r = 0; r < args.shard->n_ranges; ++r) {
    const ddh_range& range = args.shard->ranges[r];
    const int32_t place = place_.at(static_cast<size_t>(range.param));
    if (place < 0) continue;
    Param& param = params_[static_cast<size_t>(place)];
    for (uint64_t done = 0; done < range.numel; done += piece_, ++turn) {
      const uint64_t numel = std::min(piece_, range.numel - done);
      piece = {range.param, 0, range.param_offset + done, range.flat_offset + done, numel};
      if (on_device_ != nullptr) on_device_->used.order(args.stream);
      if (checked_prepare_)
        checked_prepare_(call);
      else
        call_(PluginCall::kPrepare, table_->prepare, optimizer_, &call);
      if (turn % replica.count == replica.index) {
        param.numel += static_cast<int64_t>(numel);
        count_squares(place, numel, args.stream);
      }
      if (on_device_ != nullptr) on_device_->used.set(args.stream);
    }
  }
}

void ParamSums::count_squares(int32_t place, uint64_t numel, ddh_stream* stream) {
  for (uint32_t k = 0; k < sum_count_; ++k) {
    if (on_device_ == nullptr) {
      params_[static_cast<size_t>(place)].sums[k].add_range(values_[k].data(), numel);
    } else {  // `param` numbers the pair of a parameter and a sum
      const ddh_range all{place * static_cast<int32_t>(sum_count_) + static_cast<int32_t>(k), 0, 0, 0, numel};
      on_device_->squares.add(value_pointers_[k], 0, numel, {&all, 1}, stream);
    }
  }
}

void ParamSums::agree(const Comm& comm) {
  if (on_device_ != nullptr)
    on_device_->squares.finish([&](const uint64_t* words, int32_t place, uint64_t) {
      const std::vector<int64_t> sum(words, words + ExactSum::kWords);
      params_[static_cast<size_t>(place) / sum_count_].sums[static_cast<size_t>(place) % sum_count_].merge(sum.data());
    });
  const size_t stride = 1 + sum_count_ * size_t{ExactSum::kWords};
  std::vector<int64_t> words;
  words.reserve(params_.size() * stride);
  for (Param& param : params_) {
    words.push_back(param.numel);
    for (ExactSum& sum : param.sums) {
      const ExactSum::Words mine = sum.words();
      words.insert(words.end(), mine.begin(), mine.end());
    }
  }
  comm.all_reduce_i64(words.data(), words.size(), "parameter norms");
  const int64_t* at = words.data();
  for (Param& param : params_) {
    param.numel = *at++;
    const auto p = static_cast<size_t>(param.index);
    const auto whole = static_cast<int64_t>(model_->params[p]->numel);
    if (param.numel != 0 && param.numel != whole)
      ddh::fail(DDH_FAILED_PRECONDITION, "the strategy prepared ", param.numel, " of ", whole,
                " elements of parameter '", model_->params[p]->name,
                "' over all ranks; each must be counted once, for its norm");
    for (uint32_t k = 0; k < sum_count_; ++k, at += ExactSum::kWords) {
      param.sums[k].clear();
      param.sums[k].merge(at);
      totals_[p * sum_count_ + k] = param.sums[k].total();
    }
  }
  agreed_ = true;
}

bool ParamSums::ready(int32_t param) const {
  const int32_t place = place_.at(static_cast<size_t>(param));
  return agreed_ && place >= 0 && params_[static_cast<size_t>(place)].numel > 0;
}

Optimizers::Optimizers(const ddh_model_desc& model, const std::vector<OptimizerRef>& refs,
                       std::span<const ddh_run_program> programs)
    : model_(model), trains_(model.n_programs, nullptr) {
  for (const ddh_run_program& program : programs) trains_[static_cast<size_t>(program.program)] = program.trains;
  for (size_t i = 0; i < refs.size(); ++i) {
    add(refs[i], static_cast<int32_t>(i), programs);
    if (!refs[i].follows) n_optimizers_ = i + 1;
  }
}

void Optimizers::add(const OptimizerRef& ref, int32_t index, std::span<const ddh_run_program> programs) {
  Instance o;
  o.inst = ref.inst;
  o.table = ref.table;
  o.section = ref.section;
  o.call = ref.call;
  o.desc = ref.desc;
  o.migrate = ref.migrate;
  o.follows = ref.follows;
  o.is_shown = ref.is_shown;
  o.updates.assign(model_.n_params, 0);
  o.needs.assign(model_.n_params, DDH_NEEDS_NOTHING);
  o.param_steps.assign(model_.n_params, 0);
  for (const ddh_run_program& program : programs) {
    const bool is_its = ref.follows || model_.programs[program.program]->optimizer == index;
    if (program.trains == nullptr || !is_its) continue;
    for (uint32_t p = 0; p < model_.n_params; ++p) o.updates[p] |= program.trains[p];
  }
  o.keeps = o.updates;
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
  o.first_slot = own_slot_count();
  for (uint32_t i = 0; i < ref.table->slot_count(ref.inst); ++i) {
    ddh_slot_desc desc{};
    desc.struct_size = sizeof desc;
    ref.call(PluginCall::kSlot, ref.table->slot, ref.inst, i, &desc);
    if (!is_extent(desc.extent) || ddh_dtype_bytes(desc.dtype) == 0)
      ddh::fail(DDH_UNIMPLEMENTED, "slot '", desc.name, "' of the optimizer of section '", ref.section, "' has extent ",
                desc.extent, " and dtype ", desc.dtype,
                ", which this host does not know; update ddhost, or choose another optimizer");
    slot_names_.push_back(slot_prefix(ref.section) + desc.name);
    desc.struct_size = sizeof desc;
    desc.name = slot_names_.back().c_str();
    o.slots.push_back(desc);
    o.sized.push_back(desc.extent == DDH_SLOT_SIZED ? sized_numels(o, i) : std::vector<uint64_t>());
  }
  o.first_numbers = o.numbers().values();
  if (o.follows) check_follower(o);
  if (o.is_shown) check_shown(o);
  instances_.push_back(std::move(o));
}

std::vector<uint64_t> Optimizers::sized_numels(const Instance& o, uint32_t slot) const {
  std::vector<uint64_t> numels(model_.n_params, 0);
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    if (!uses(o, slot, static_cast<int32_t>(p))) continue;
    const auto refuse = [&](const auto&... what) {
      o.call.blame(PluginCall::kSlot, {}, "gives slot '", o.slots[slot].name, "' a size of its own (DDH_SLOT_SIZED)",
                   what..., " parameter '", model_.params[p]->name, "'");
    };
    if (o.needs[p] != DDH_NEEDS_WHOLE_PARAM) refuse(", but has no DDH_NEEDS_WHOLE_PARAM for");
    if (!DDH_CAN(o.table, ddh_optimizer_api, slot_numel)) refuse(", but no slot_numel, which tells it for");
    numels[p] = o.table->slot_numel(o.inst, slot, static_cast<int32_t>(p));
    if (numels[p] == 0 || numels[p] > kMaxSlotNumel)
      refuse(" of ", numels[p], " elements, but it must have 1 to 2^40, for");
  }
  return numels;
}

void Optimizers::check_follower(const Instance& o) const {
  for (uint32_t p = 0; p < model_.n_params; ++p)
    if (o.needs[p] == DDH_NEEDS_PARAM_NORM)
      ddh::fail(DDH_UNIMPLEMENTED, "the optimizer of section '", o.section, "' needs the norm of parameter '",
                model_.params[p]->name, "', which a follower can't get; leave it out of train.followers");
}

void Optimizers::check_shown(const Instance& o) const {
  for (const ddh_slot_desc& slot : o.slots)
    if (slot.extent != DDH_SLOT_PER_ELEMENT)
      ddh::fail(DDH_UNIMPLEMENTED, "the optimizer of section '", o.section, "' shows weights and has the slot '",
                slot.name, "', which is not one value per element; set train.eval_weights=trained");
}

// What is shown of a parameter rests on the slots, also when no later step trains it.
void Optimizers::set_later(std::span<const int32_t> programs) {
  for (Instance& o : instances_) o.updates.assign(model_.n_params, 0);
  for (const int32_t program : programs) {
    const std::span<const uint8_t> trained = trained_by(program);
    for (size_t p = 0; p < trained.size(); ++p) {
      of_program(program).updates[p] |= trained[p];
      for (Instance& o : followers()) o.updates[p] |= trained[p];
    }
  }
  for (Instance& o : instances_)
    if (!o.follows && !o.is_shown) o.keeps = o.updates;
}

std::vector<uint8_t> Optimizers::trained_later() const {
  std::vector<uint8_t> trained(model_.n_params, 0);
  for (const Instance& o : instances_)
    for (size_t p = 0; p < trained.size(); ++p) trained[p] |= o.updates[p];
  return trained;
}

uint32_t Optimizers::own_slot_count() const {
  return instances_.empty() ? 0 : instances_.back().first_slot + static_cast<uint32_t>(instances_.back().slots.size());
}

uint32_t Optimizers::slot_count() const { return own_slot_count() + (shown() == nullptr ? 0 : 1); }

const Optimizers::Instance* Optimizers::shown() const {
  const auto at = std::find_if(instances_.begin(), instances_.end(), [](const Instance& o) { return o.is_shown; });
  return at == instances_.end() ? nullptr : &*at;
}

std::vector<uint8_t> Optimizers::shown_params() const {
  return shown() == nullptr ? std::vector<uint8_t>() : shown()->keeps;
}

const Optimizers::Instance& Optimizers::of_slot(uint32_t index) const {
  for (const Instance& o : instances_)
    if (index < o.first_slot + o.slots.size()) return o;
  ddh::fail(DDH_OUT_OF_RANGE, "optimizer slot ", index, " does not exist; there are ", slot_count());
}

const ddh_slot_desc& Optimizers::slot(uint32_t index) const {
  if (is_master_slot(index)) return kMasterSlotDesc;
  const Instance& o = of_slot(index);
  return o.slots[index - o.first_slot];
}

bool Optimizers::uses(const Instance& o, uint32_t slot, int32_t param) {
  if (o.keeps.at(static_cast<size_t>(param)) == 0) return false;
  return !DDH_CAN(o.table, ddh_optimizer_api, slot_used) || o.table->slot_used(o.inst, slot, param) != 0;
}

bool Optimizers::slot_used(uint32_t index, int32_t param) const {
  if (is_master_slot(index)) return shown()->keeps.at(static_cast<size_t>(param)) != 0;
  const Instance& o = of_slot(index);
  return uses(o, index - o.first_slot, param);
}

uint64_t Optimizers::slot_numel(uint32_t index, int32_t param) const {
  if (is_master_slot(index)) return model_.params[param]->numel;
  const Instance& o = of_slot(index);
  const auto p = static_cast<size_t>(param);
  const std::vector<uint64_t>& sized = o.sized[index - o.first_slot];
  if (!sized.empty()) return sized.at(p);
  const uint64_t numel = model_.params[p]->numel;
  const bool is_per_block = o.slots[index - o.first_slot].extent == DDH_SLOT_PER_BLOCK;
  return is_per_block ? (numel + DDH_GRID - 1) / DDH_GRID : numel;
}

SlotPart Optimizers::Instance::part(uint32_t slot, std::span<const ddh_range> ranges, size_t index) const {
  const uint64_t width = ddh_dtype_bytes(slots[slot].dtype);
  const ddh_range& range = ranges[index];
  if (!sized[slot].empty()) {
    const auto numel = [&](const ddh_range& r) { return sized[slot].at(static_cast<size_t>(r.param)); };
    uint64_t before = 0;
    for (const ddh_range& r : ranges.first(index)) before += ddh::round_up_to_grid(numel(r));
    return {before * width, numel(range) * width};
  }
  if (slots[slot].extent == DDH_SLOT_PER_BLOCK)
    return {range.flat_offset / DDH_GRID * width, (range.numel + DDH_GRID - 1) / DDH_GRID * width};
  return {range.flat_offset * width, range.numel * width};
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
  for (const auto& [name, address] : o.numbers().addresses()) *address = o.first_numbers.at(name);
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
  if (!o.follows) return out;
  out.grads = nullptr;
  out.n_grads = 0;
  out.lowp = nullptr;
  out.lowp_dtype = 0;
  return out;
}

}  // namespace ddhost
