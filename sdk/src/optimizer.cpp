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

const void* Optimizer::interface(std::string_view id) const {
  static const ddh_optimizer_api table = {
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
          if (mine.block.skip == 0) self_as<Optimizer>(i).update(mine.args);
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
      nullptr,
      nullptr,
      nullptr,
      nullptr,
  };
  return id == DDH_OPTIMIZER_IFACE ? &table : nullptr;
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
