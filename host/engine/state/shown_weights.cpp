// SPDX-License-Identifier: Apache-2.0
#include "engine/state/shown_weights.hpp"

#include <algorithm>
#include <cstring>

#include "ddh/sdk/params/layout.hpp"

namespace ddhost {

// Zero-filled memory of the alignment that shards have.
class ShardBytes {
 public:
  explicit ShardBytes(uint64_t bytes) : memory_(bytes + kAlignment) {}
  [[nodiscard]] char* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kAlignment - at % kAlignment) % kAlignment;
  }
  [[nodiscard]] float* floats() { return reinterpret_cast<float*>(data()); }

 private:
  static constexpr uint64_t kAlignment = 256;
  std::vector<char> memory_;
};

// The state entries of this rank that count here.
struct ShownWeights::Entries {
  std::vector<StatePiece> masters;
  std::map<std::pair<uint32_t, int32_t>, std::vector<StatePiece>> slots;  // by slot and parameter

  // Calls body(piece, begin, numel, done) for the pieces of a slot that hold elements of a range; `begin`: of the piece's
  // elements, `done`: of those of the range. Returns how many elements there are.
  template <class Body>
  uint64_t for_each(uint32_t slot, const ddh_range& range, Body&& body) const {
    const auto at = slots.find({slot, range.param});
    uint64_t found = 0;
    if (at == slots.end()) return found;
    for (const StatePiece& piece : at->second) {
      const uint64_t begin = std::max(range.param_offset, piece.offset);
      const uint64_t end = std::min(range.param_offset + range.numel, piece.offset + piece.numel);
      if (begin >= end) continue;
      body(piece, begin - piece.offset, end - begin, begin - range.param_offset);
      found += end - begin;
    }
    return found;
  }
};

ShownWeights::Entries ShownWeights::entries() const {
  const std::vector<uint8_t> shown = optimizers_.shown_params();
  const std::vector<ddh_state_entry> all = state_entries(source_);
  Entries out;
  for (size_t i = 0; i < all.size(); ++i) {
    const ddh_state_entry& e = all[i];
    if (e.kind != DDH_STATE_PARAM && e.kind != DDH_STATE_SLOT) continue;
    if (shown[static_cast<size_t>(e.param)] == 0 || e.numel == 0) continue;
    const auto tensor = static_cast<size_t>(e.param);  // of fp32, as the masters and the host's slot
    const StatePiece piece{tensor,          e.offset,       e.numel, e.dtype, e.data, static_cast<uint32_t>(i),
                           e.replica_index, e.replica_count};
    if (e.kind == DDH_STATE_PARAM)
      out.masters.push_back(piece);
    else
      out.slots[{static_cast<uint32_t>(e.slot), e.param}].push_back(piece);
  }
  return out;
}

void ShownWeights::show() { write_shown(Target::masters); }
void ShownWeights::write_to_slot() { write_shown(Target::slot); }

void ShownWeights::write_shown(Target target) {
  if (!exist()) return;
  staging_.device().synchronize(nullptr);  // the last updates
  const CheckpointLayout layout(source_.model, optimizers_, {});
  PieceAccess access(source_, layout, staging_);
  const Entries here = entries();
  for (const StatePiece& master : here.masters) write_shown(here, master, target, access);
  if (target == Target::masters) commit();
}

// One part of a parameter in memory of the host, as show gets it.
struct ShownWeights::Part {
  Part(int32_t param, uint64_t offset, uint64_t n)
      : range{param, 0, offset, 0, n},
        master(ddh::round_up_to_grid(n) * sizeof(float)),
        shown(ddh::round_up_to_grid(n) * sizeof(float)) {}
  ddh_range range;
  ShardBytes master, shown;
  std::vector<ShardBytes> slots;  // of the optimizer that shows
};

void ShownWeights::write_shown(const Entries& here, const StatePiece& master, Target target, PieceAccess& access) {
  const auto param = static_cast<int32_t>(master.tensor);
  const auto move = [&](uint64_t begin, uint64_t n) {
    Part part(param, master.offset + begin, n);
    std::memcpy(part.master.data(), access.read(master, begin, n), n * sizeof(float));
    compute(here, part, access);
    ShardBytes& kept = target == Target::masters ? part.master : part.shown;
    const uint64_t found = here.for_each(optimizers_.slot_count() - 1, part.range,
                                         [&](const StatePiece& piece, uint64_t to, uint64_t m, uint64_t done) {
                                           access.write(piece, to, m, kept.data() + done * sizeof(float));
                                         });
    require_all(part.range, found, kMasterSlot);
    if (target == Target::masters) access.write(master, begin, n, part.shown.data());
  };
  if (optimizers_.shown()->needs[master.tensor] == DDH_NEEDS_WHOLE_PARAM) return move(0, master.numel);
  for_each_part(master, move);
}

// What the optimizer shows of a part; of a parameter that it has not updated yet, the master.
void ShownWeights::compute(const Entries& here, Part& part, PieceAccess& access) const {
  const Optimizers::Instance& o = *optimizers_.shown();
  const uint64_t n = part.range.numel;
  if (o.param_steps[static_cast<size_t>(part.range.param)] == 0) {
    std::memcpy(part.shown.data(), part.master.data(), n * sizeof(float));
    return;
  }
  std::vector<void*> slots(o.slots.size(), nullptr);
  for (uint32_t i = 0; i < o.slots.size(); ++i) {
    if (!optimizers_.slot_used(o.first_slot + i, part.range.param)) continue;
    const uint64_t width = ddh_dtype_bytes(o.slots[i].dtype);
    char* const to = part.slots.emplace_back(ddh::round_up_to_grid(n) * width).data();
    const uint64_t found = here.for_each(o.first_slot + i, part.range,
                                         [&](const StatePiece& piece, uint64_t from, uint64_t m, uint64_t done) {
                                           std::memcpy(to + done * width, access.read_kept(piece, from, m), m * width);
                                         });
    require_all(part.range, found, o.slots[i].name);
    slots[i] = to;
  }
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  shard.n_ranges = 1;
  shard.ranges = &part.range;
  shard.master = part.master.floats();
  shard.slots = slots.data();
  shard.n_slots = static_cast<uint32_t>(slots.size());
  o.call(PluginCall::kShow, o.table->show, o.inst, &shard, part.shown.floats());
}

void ShownWeights::require_all(const ddh_range& range, uint64_t found, const char* slot) const {
  if (found == range.numel) return;
  source_.strategy.caller().blame(PluginCall::kState, {}, "lists ", found, " of the ", range.numel,
                                  " elements of slot '", slot, "' beside the values of parameter ",
                                  param_text(source_.model, range.param), " that this rank holds");
}

void ShownWeights::restore() {
  if (!exist()) return;
  staging_.device().synchronize(nullptr);
  const CheckpointLayout layout(source_.model, optimizers_, {});
  PieceAccess access(source_, layout, staging_);
  const Entries here = entries();
  const uint32_t host_slot = optimizers_.slot_count() - 1;
  for (const StatePiece& master : here.masters)
    for_each_part(master, [&](uint64_t begin, uint64_t n) {
      const ddh_range range{static_cast<int32_t>(master.tensor), 0, master.offset + begin, 0, n};
      here.for_each(host_slot, range, [&](const StatePiece& piece, uint64_t from, uint64_t m, uint64_t done) {
        const char* const values = access.read_kept(piece, from, m);
        const std::vector<char> copy(values, values + m * sizeof(float));
        access.write(master, begin + done, m, copy.data());
      });
    });
  commit();
}

// The strategy's views follow the masters.
void ShownWeights::commit() {
  source_.strategy.call(PluginCall::kStateCommit, source_.table.state_commit);
  staging_.device().synchronize(nullptr);
}

}  // namespace ddhost
