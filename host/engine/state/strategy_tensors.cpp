// SPDX-License-Identifier: Apache-2.0
//
// engine/state/strategy_tensors.cpp: what the entries of all ranks together say of a strategy's own state, and of state that
// differs between ranks.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "engine/state/state_entries.hpp"

namespace ddhost {
namespace {

// One entry, exchanged as bytes.
struct Listed {
  int32_t kind, slot, param, dtype;
  int32_t replica, replicas;  // replicas 0: of shared scope
  uint64_t offset, numel;
  std::array<char, 72> name;  // state_entries has checked that it fits
};

std::vector<Listed> listed_here(const StateSource& source) {
  std::vector<Listed> out;
  for (const ddh_state_entry& e : state_entries(source)) {
    const bool is_own = e.kind == DDH_STATE_OWN, differs = e.scope == DDH_SCOPE_RANK;
    if (!is_own && !differs) continue;
    if (!differs && e.replica_index != 0) continue;  // as the first replica
    Listed& one = out.emplace_back();
    std::memset(static_cast<void*>(&one), 0, sizeof one);  // padding too
    one.kind = e.kind;
    one.slot = e.kind == DDH_STATE_SLOT ? e.slot : 0;
    one.param = e.param;
    one.dtype = e.kind == DDH_STATE_PARAM ? DDH_F32 : e.dtype;
    one.replica = differs ? e.replica_index : 0;
    one.replicas = differs ? e.replica_count : 0;
    one.offset = e.offset;
    one.numel = e.numel;
    if (is_own) std::memcpy(one.name.data(), e.name, std::min(one.name.size() - 1, std::strlen(e.name)));
  }
  return out;
}

std::vector<Listed> listed_everywhere(const std::vector<Listed>& mine, const Comm& comm) {
  const auto world = static_cast<size_t>(comm.world_size());
  const uint64_t count = mine.size();
  std::vector<uint64_t> counts(world);
  comm.all_gather_bytes(&count, counts.data(), sizeof count, "own state: count");
  const uint64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return {};
  std::vector<Listed> sent = mine, all(most * world), out;
  sent.resize(most);
  comm.all_gather_bytes(sent.data(), all.data(), most * sizeof(Listed), "own state");
  for (size_t r = 0; r < world; ++r)
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(r * most),
               all.begin() + static_cast<std::ptrdiff_t>(r * most + counts[r]));
  return out;
}

class Agreement {
 public:
  explicit Agreement(const StateSource& source) : source_(source) {}

  void add(const Listed& one) {
    const StrategyTensor named{one.kind, one.slot, one.param, one.name.data(), one.dtype, 0, one.replicas};
    const auto [at, is_new] = seen_.try_emplace(named.key_of(), Seen{named, {}});
    StrategyTensor& tensor = at->second.tensor;
    if (tensor.dtype != one.dtype || tensor.replicas != one.replicas)
      refuse(tensor, ": one of them has dtype ", tensor.dtype, " and ", tensor.replicas,
             " replicas of their own values, and another dtype ", one.dtype, " and ", one.replicas);
    tensor.numel = std::max(tensor.numel, one.offset + one.numel);
    Held& held = at->second.held[one.replica];
    held.numel += one.numel;
    held.marks += Cover::piece(0, one.offset, one.numel).marks;
  }

  [[nodiscard]] std::vector<StrategyTensor> tensors() const {
    std::vector<StrategyTensor> out;
    for (const auto& [key, seen] : seen_) {
      StrategyTensor tensor = seen.tensor;
      if (tensor.param >= 0) tensor.numel = source_.model.params[tensor.param]->numel;
      const Cover::Param whole = Cover::piece(0, 0, tensor.numel);
      for (int32_t replica = 0; replica < std::max(1, tensor.replicas); ++replica) {
        const auto held = seen.held.find(replica);
        if (held != seen.held.end() && held->second == whole) continue;
        refuse(tensor, " with ", held == seen.held.end() ? 0 : held->second.numel, " elements",
               tensor.replicas > 0 ? ddh::str(" of replica ", replica, " of ", tensor.replicas) : "", "; each of its ",
               tensor.numel, " must occur once");
      }
      out.push_back(tensor);
    }
    return out;
  }

 private:
  using Held = Cover::Param;
  struct Seen {
    StrategyTensor tensor;
    std::map<int32_t, Held> held;  // per replica
  };

  template <class... What>
  [[noreturn]] void refuse(const StrategyTensor& tensor, const What&... what) const {
    const std::string name = tensor.kind == DDH_STATE_OWN    ? "own entry '" + tensor.name + "'"
                             : tensor.kind == DDH_STATE_SLOT ? ddh::str("slot ", tensor.slot)
                                                             : std::string("entry");
    source_.strategy.caller().blame(
        PluginCall::kState, {}, "lists over all ranks the ", name,
        tensor.param < 0 ? std::string() : " of parameter " + param_text(source_.model, tensor.param), what...);
  }

  const StateSource& source_;
  std::map<std::tuple<int32_t, int32_t, int32_t, std::string>, Seen> seen_;
};

}  // namespace

std::vector<StrategyTensor> agree_strategy_tensors(const StateSource& source, const Comm& comm) {
  Agreement agreement(source);
  for (const Listed& one : listed_everywhere(listed_here(source), comm)) agreement.add(one);
  return agreement.tensors();
}

CheckpointLayout layout_of(const StateSource& source, const Optimizers& optimizers, const std::vector<uint8_t>& shown) {
  if (source.own == nullptr) return {source.model, optimizers, shown};
  return {source.model, optimizers, shown, *source.own};
}

}  // namespace ddhost
