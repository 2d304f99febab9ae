// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/replicas.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "base/step_extras.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/state/state_pieces.hpp"

namespace ddhost {
namespace {

constexpr const char* kOption = "run.check_replicas";

// What one rank holds of a replica of a tensor.
struct Held {
  uint64_t tensor = 0;  // of CheckpointLayout
  int32_t replica = 0, replicas = 0;
  uint64_t numel = 0;
  uint64_t hash = 0;  // of places and values
};

// The factors of the replicas 0 to n - 1 add up to 0.
uint64_t factor(const Held& held) {
  const auto of = [](int32_t replica) { return ddh::mix64(static_cast<uint64_t>(replica)) | 1U; };
  if (held.replica != 0) return of(held.replica);
  uint64_t sum = 0;
  for (int32_t r = 1; r < held.replicas; ++r) sum -= of(r);
  return sum;
}

// What a rank adds to the sum over all ranks.
uint64_t share(const Held& held) {
  const uint64_t set = ddh::mix64(held.tensor * ddh::kMixStep + static_cast<uint64_t>(held.replicas)) | 1U;
  return set * factor(held) * held.hash;
}

class ReplicaSums {
 public:
  ReplicaSums(const StateSource& source, const CheckpointLayout& layout, const Comm& comm, Staging& staging)
      : source_(source), layout_(layout), comm_(comm), staging_(staging) {}

  // Throws, on every rank, if replicas differ after step `step`: names the first tensor that differs, and the ranks.
  // Buffers with DDH_SYNC_STEP are left out, because they may differ until the next step begins. [collective]
  void require_equal(int64_t step) {
    add_state();
    add_buffers();
    uint64_t mine = 0;
    for (const Held& held : held_) mine += share(held);
    std::vector<uint64_t> all(world_size());
    comm_.all_gather_bytes(&mine, all.data(), sizeof mine, "replicas");
    uint64_t sum = 0;
    for (const uint64_t one : all) sum += one;
    if (sum != 0) fail(first_differing(), step);
  }

 private:
  [[nodiscard]] size_t world_size() const { return static_cast<size_t>(comm_.world_size()); }

  void add_state() {
    PieceAccess access(source_, layout_, staging_);
    for (const StatePiece& piece : state_pieces(source_, layout_)) {
      if (piece.replica_count < 2) continue;
      Held& held = part(piece.tensor, piece.replica_index, piece.replica_count);
      const StoredTensor& stored = layout_.tensors()[piece.tensor];
      const uint64_t width = ddh_dtype_bytes(stored.dtype);
      held.numel += piece.numel;
      for_each_part(piece, [&](uint64_t begin, uint64_t n) {
        held.hash += place_hash(access.read(piece, begin, n), piece.offset + begin, n, width, stored.grid);
      });
    }
  }

  // Every rank has all of them.
  void add_buffers() {
    for (uint32_t b = 0; b < source_.model.n_buffers; ++b) {
      const ddh_buffer_desc& buffer = *source_.model.buffers[b];
      if (buffer.sync == DDH_SYNC_STEP || buffer.numel == 0) continue;
      Held& held = part(layout_.buffer(b), comm_.rank(), comm_.world_size());
      held.numel = buffer.numel;
      held.hash = place_hash(static_cast<const char*>(buffer_values(buffer, staging_)), 0, buffer.numel,
                             ddh_dtype_bytes(buffer.dtype));
    }
  }

  // The pieces of a tensor follow one another.
  Held& part(size_t tensor, int32_t replica, int32_t replicas) {
    const auto is_same = [&](const Held& h) {
      return h.tensor == tensor && h.replica == replica && h.replicas == replicas;
    };
    if (held_.empty() || !is_same(held_.back())) held_.push_back({tensor, replica, replicas});
    return held_.back();
  }

  size_t first_differing() const {
    const size_t tensors = layout_.tensors().size();
    std::vector<uint64_t> mine(tensors), all(tensors * world_size()), sums(tensors);
    for (const Held& held : held_) mine[held.tensor] += share(held);
    comm_.all_gather_bytes(mine.data(), all.data(), tensors * sizeof(uint64_t), "replicas of each tensor");
    for (size_t i = 0; i < all.size(); ++i) sums[i % tensors] += all[i];
    const auto at = std::find_if(sums.begin(), sums.end(), [](uint64_t sum) { return sum != 0; });
    return static_cast<size_t>(at - sums.begin());
  }

  [[noreturn]] void fail(size_t tensor, int64_t step) const {
    Held mine;
    for (const Held& held : held_)
      if (held.tensor == tensor) mine = held;
    std::vector<Held> all(world_size());
    comm_.all_gather_bytes(&mine, all.data(), sizeof mine, "ranks of a replica");
    std::map<int32_t, Held> replicas;  // the sum of each
    for (const Held& held : all) {
      if (held.replicas == 0) continue;  // the rank holds nothing of it
      Held& sum = replicas[held.replica];
      sum.replicas = held.replicas;
      sum.numel += held.numel;
      sum.hash += held.hash;
    }
    require_whole(replicas, tensor);
    const auto is_equal = [&](int32_t a, int32_t b) { return replicas.at(a).hash == replicas.at(b).hash; };
    const auto votes = [&](int32_t replica) {
      return std::count_if(replicas.begin(), replicas.end(), [&](const auto& r) { return is_equal(r.first, replica); });
    };
    int32_t most = replicas.begin()->first;  // of the largest set of equal replicas
    for (const auto& [replica, sum] : replicas)
      if (votes(replica) > votes(most)) most = replica;
    std::vector<size_t> others, equal;
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank].replicas != 0) (is_equal(all[rank].replica, most) ? equal : others).push_back(rank);
    ddh::fail(DDH_DATA_LOSS, "after step ", step, ", ", ranks_text(others), " and ", ranks_text(equal),
              " hold different values of ", text_of(tensor), ", which must be equal: gradients were not summed over ",
              "these ranks, or one of them was changed alone; fix the strategy or the model that holds the values ",
              "(run.check_replicas=off trains on)");
  }

  // The strategy lists each replica with the same elements.
  void require_whole(const std::map<int32_t, Held>& replicas, size_t tensor) const {
    const Held& first = replicas.begin()->second;
    const auto is_other = [&](const auto& r) { return r.second.numel != first.numel; };
    const auto other = std::find_if(replicas.begin(), replicas.end(), is_other);
    if (other == replicas.end() && replicas.size() == static_cast<size_t>(first.replicas)) return;
    const uint64_t numel = other == replicas.end() ? 0 : other->second.numel;
    source_.strategy.caller().blame(PluginCall::kState, {}, "the entries of all ranks give ", text_of(tensor), " ",
                                    first.replicas, " replicas, but one of them has ", first.numel,
                                    " elements and another ", numel, "; list the same elements for each replica");
  }

  static std::string ranks_text(const std::vector<size_t>& ranks) {
    constexpr size_t kShown = 8;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += ddh::str(i == 0 ? "" : ", ", ranks[i]);
    return ranks.size() > kShown ? ddh::str(text, " and ", ranks.size() - kShown, " more") : text;
  }

  std::string text_of(size_t tensor) const {
    const StoredTensor& stored = layout_.tensors()[tensor];
    return ddh::str(kind_text(stored.kind), " '", stored.name, "'");
  }

  const StateSource& source_;
  const CheckpointLayout& layout_;
  const Comm& comm_;
  Staging& staging_;
  std::vector<Held> held_;  // by this rank
};

}  // namespace

ReplicaChecks::ReplicaChecks(const RankServices& services, const StateSource& source)
    : services_(services),
      source_(source),
      is_on_(services.seat.world_size() > 1 &&
             (!services.config.is_given(kOption) || services.config.get<int64_t>(kOption) > 0)),
      every_(services.config.is_given(kOption) ? services.config.get<int64_t>(kOption) : 0) {}

void ReplicaChecks::step_done(int64_t step, bool ends) {
  if (!is_comparable(step)) return;
  ++times_;
  if ((ends || is_due(step)) && step_includes(StepExtra::checks)) require_equal(step);
}

// Of the steps that are compared, the first one after each multiple of run.check_replicas.
bool ReplicaChecks::is_due(int64_t step) const {
  const int64_t before = step - services_.step->world_every();
  return every_ > 0 ? step / every_ != before / every_ : std::has_single_bit(static_cast<uint64_t>(times_));
}

bool ReplicaChecks::is_comparable(int64_t step) const {
  return step == settled_ || step % services_.step->world_every() == 0;
}

void ReplicaChecks::require_equal(int64_t step) {
  if (!is_on_ || step == checked_ || !is_comparable(step)) return;
  checked_ = step;
  services_.device->synchronize(nullptr);  // the last updates
  const CheckpointLayout layout = layout_of(source_, services_.step->optimizers(), /*shown=*/{});
  ReplicaSums(source_, layout, *services_.comm, *services_.staging).require_equal(step);
}

}  // namespace ddhost
