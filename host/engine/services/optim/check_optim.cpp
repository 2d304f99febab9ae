// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/check_optim.hpp"

#include <set>
#include <string>

namespace ddhost {
namespace {

constexpr uint32_t kMaxSlots = 64;
constexpr const char* kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

}  // namespace

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
    if (!names.insert(desc.name).second)
      caller.blame(PluginCall::kSlot, {}, "gives two slots the name '", desc.name, "'");
    if (ddh_dtype_bytes(desc.dtype) == 0)
      caller.blame(PluginCall::kSlot, {}, "gives slot '", desc.name, "' the dtype ", desc.dtype,
                   ", which this host does not know; use DDH_F32 or another dtype of the ABI");
    if (desc.extent != DDH_SLOT_PER_ELEMENT)
      caller.blame(PluginCall::kSlot, {}, "gives slot '", desc.name, "' the extent ", desc.extent,
                   ", which this host does not know; use DDH_SLOT_PER_ELEMENT");
  }
}

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

}  // namespace ddhost
