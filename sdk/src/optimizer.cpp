// SPDX-License-Identifier: Apache-2.0
//
// The C table of a C++ optimizer, and functions shared by element-wise optimizers.
#include "ddh/sdk/optimizer.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace {
// The arguments of an update as this build's structs, all of them checked.
struct UpdateCopy {
  explicit UpdateCopy(const ddh_update_args* given)
      : args(copy_of(given)), shard(copy_of(args.shard)), block(copy_of(args.block)) {
    args.shard = &shard;
    args.block = &block;
  }
  UpdateCopy(const UpdateCopy&) = delete;
  UpdateCopy& operator=(const UpdateCopy&) = delete;
  ddh_update_args args;
  ddh_optim_shard shard;
  ddh_step_block block;
};
}  // namespace

namespace {
ddh_optimizer_api table_of(bool shows) {
  ddh_optimizer_api table = {
      sizeof(ddh_optimizer_api),
      0,
      [](ddh_inst* i, const ddh_model_desc* model, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Optimizer>(i).attach(*model); });
      },
      [](ddh_inst* i) noexcept { return static_cast<uint32_t>(self_as<Optimizer>(i).slots().size()); },
      [](ddh_inst* i, uint32_t index, ddh_slot_desc* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const auto slots = self_as<Optimizer>(i).slots();
          if (index >= slots.size())
            fail(DDH_OUT_OF_RANGE, "optimizer slot ", index, " does not exist; there are ", slots.size());
          copy_out(slots[index], *out);
        });
      },
      [](ddh_inst* i, int32_t param) noexcept { return self_as<Optimizer>(i).needs(param); },
      [](ddh_inst* i, const ddh_update_args* args, ddh_err* err) noexcept {
        return guard(err, [&] {
          const UpdateCopy mine(args);
          if (mine.block.skip != 0) return;
          if (mine.shard.n_ranges == 0) return self_as<Optimizer>(i).advance(mine.block);
          self_as<Optimizer>(i).update(mine.args);
        });
      },
      [](ddh_inst* i) noexcept { return self_as<Optimizer>(i).sum_count(); },
      [](ddh_inst* i, const ddh_prepare_args* args, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_prepare_args mine = copy_of(args);
          const UpdateCopy update(mine.update);
          mine.update = &update.args;
          self_as<Optimizer>(i).prepare(mine);
        });
      },
      [](ddh_inst* i, uint32_t index, int32_t param) noexcept -> int32_t {
        return self_as<Optimizer>(i).slot_used(index, param) ? 1 : 0;
      },
      [](ddh_inst* i, uint32_t index, int32_t param) noexcept -> uint64_t {
        return self_as<Optimizer>(i).slot_numel(index, param);
      },
      [](ddh_inst* i, const ddh_optim_shard* shard, float* dst, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Optimizer>(i).show(copy_of(shard), dst); });
      },
      [](ddh_inst* i) noexcept {
        uint32_t n = 1;  // after an exception the host asks for number 0, whose function can report it
        guard(nullptr, [&] { n = static_cast<uint32_t>(self_as<Optimizer>(i).numbers().size()); });
        return n;
      },
      [](ddh_inst* i, uint32_t index, ddh_optimizer_number* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const std::vector<Optimizer::Number> all = self_as<Optimizer>(i).numbers();
          if (index >= all.size()) fail(DDH_OUT_OF_RANGE, "number ", index, " does not exist; there are ", all.size());
          copy_out(ddh_optimizer_number{sizeof(ddh_optimizer_number), 0, all[index].name, all[index].value}, *out);
        });
      },
  };
  if (!shows) table.show = nullptr;
  return table;
}
}  // namespace

const void* Optimizer::interface(std::string_view id) const {
  static const ddh_optimizer_api table = table_of(false), showing_table = table_of(true);
  if (id != DDH_OPTIMIZER_IFACE) return nullptr;
  return shows() ? &showing_table : &table;
}

void* Optimizer::sized_slot(const ddh_optim_shard& shard, uint32_t slot, uint32_t index) const {
  const uint64_t width = ddh_dtype_bytes(slots()[slot].dtype);
  uint64_t before = 0;
  for (uint32_t r = 0; r < index; ++r) {
    const int32_t param = shard.ranges[r].param;
    const uint64_t numel = slot_used(slot, param) ? slot_numel(slot, param) : 0;
    before += (numel + DDH_GRID - 1) / DDH_GRID * DDH_GRID;
  }
  return static_cast<char*>(shard.slots[slot]) + before * width;
}

float clip_value(const ddh_step_block& block) {
  return DDH_HAS(&block, ddh_step_block, clip_value) ? static_cast<float>(block.clip_value) : 0.0F;
}

float unbounded_scale(const ddh_step_block& block) { return static_cast<float>(block.inv_scale * block.clip_factor); }

float gradient_scale(const ddh_step_block& block) { return clip_value(block) > 0 ? 1.0f : unbounded_scale(block); }

std::vector<uint8_t> decaying_params(const ddh_model_desc& model, bool groups) {
  std::vector<uint8_t> decays(model.n_params, 1);
  for (uint32_t i = 0; groups && i < model.n_params; ++i)
    decays[i] = (model.params[i]->attributes & DDH_PARAM_NO_DECAY) == 0;
  return decays;
}

Betas betas(const SectionOptions& options, std::string_view name) {
  const auto values = options.f64s<2>(name);
  for (const double beta : values)
    if (!(beta >= 0 && beta < 1))
      fail(DDH_INVALID_ARGUMENT, options.key(name), " holds ", beta, "; both lie in [0, 1)");
  return {values[0], values[1]};
}

void check_shard(const ddh_optim_shard& shard, uint32_t n_slots) {
  if (shard.n_grads == 0) fail(DDH_INVALID_ARGUMENT, "a shard has no gradient; pass at least one");
  if (shard.n_slots != n_slots)
    fail(DDH_INVALID_ARGUMENT, "a shard has ", shard.n_slots, " optimizer slots, but the optimizer has ", n_slots,
         "; allocate the slots that slot_count and slot describe");
  if (shard.lowp != nullptr && shard.lowp_dtype != DDH_BF16 && shard.lowp_dtype != DDH_F16)
    fail(DDH_UNIMPLEMENTED, "no low-precision copy in dtype ", shard.lowp_dtype, "; use bf16 or fp16");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
