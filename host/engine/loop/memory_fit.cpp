// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/memory_fit.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Ranks that take the same memory together.
struct Sharing {
  PlannedBytes needed{};
  uint64_t reserve = 0;
  uint64_t checkpoints = 0;  // beside
  uint32_t n_ranks = 0;
  std::string first;  // "rank 0"
  void add(const RankMemory& rank, MemoryKind kind, bool device_has_memory) {
    const PlannedBytes bytes = rank.in(kind, device_has_memory);
    for (size_t tag = 0; tag < needed.size(); ++tag) needed[tag] += bytes[tag];
    reserve += reserve_of_rank(rank, kind, device_has_memory);
    if (n_ranks++ == 0) first = ddh::str("rank ", rank.rank);
  }
  [[nodiscard]] std::string who() const { return n_ranks == 1 ? first : counted(n_ranks, "rank"); }

  // nullopt: `left` suffices.
  [[nodiscard]] std::optional<DoesNotFit> compared(MemoryKind kind, ddh::FreeMemory left) const {
    if (checkpoints > 0 && left.bytes != UINT64_MAX) {
      left.bytes -= std::min(left.bytes, checkpoints);
      left.of += ddh::str(", without ", bytes_text(checkpoints), " for checkpoints,");
    }
    const char* tag = first_that_does_not_fit(needed, left.bytes);
    if (tag == nullptr && sum(needed) + reserve <= left.bytes) return std::nullopt;
    if (tag == nullptr) tag = "this reserve";
    std::string parts;
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i] > 0) parts += ddh::str(parts.empty() ? "" : ", ", kPlannedTags[i], " ", bytes_text(needed[i]));
    return DoesNotFit{
        {kind, left.bytes, n_ranks},
        ddh::str("the run does not fit: ", who(), " will take ", bytes_text(sum(needed)), " more (", parts, ")",
                 reserve > 0 ? ddh::str(" and a reserve of ", bytes_text(reserve), " for heaps and libraries") : "",
                 ", and ", left.of, " has ", bytes_text(left.bytes), " of memory left, which does not suffice for ",
                 tag, "; run.allow_overcommit=true starts it anyway")};
  }
};

// Of a rank's process, or of the process of all ranks.
std::optional<DoesNotFit> shortage_of_addresses(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  const std::string limit = ddh::free_addresses().of;  // the same for every rank
  Sharing process;
  for (const SeenMemory& rank : ranks) {
    if (!question.ranks_are_threads) process = {};
    process.add(rank.planned, MemoryKind::kAddresses, question.device_has_memory);
    process.checkpoints = question.ranks_are_threads ? question.checkpoints.copies_of(process.n_ranks)
                                                     : question.checkpoints.most_of_rank(rank.planned);
    if (question.ranks_are_threads && &rank != &ranks.back()) continue;
    if (auto found = process.compared(MemoryKind::kAddresses, {rank.addresses_left, limit})) return found;
  }
  return std::nullopt;
}

// Ranks may share a device, which its UUID tells.
std::optional<DoesNotFit> shortage_of_devices(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  std::map<std::string, std::pair<Sharing, const ddh_device_info*>> devices;
  for (const SeenMemory& rank : ranks) {
    const std::string uuid(reinterpret_cast<const char*>(rank.device.uuid), sizeof rank.device.uuid);
    const bool is_known = uuid.find_first_not_of('\0') != std::string::npos;
    auto& [sharing, info] = devices[is_known ? uuid : ddh::str("rank ", rank.planned.rank)];
    sharing.add(rank.planned, MemoryKind::kDevice, true);
    info = &rank.device;
  }
  for (const auto& [key, device] : devices)
    if (auto found = device.first.compared(
            MemoryKind::kDevice,
            {device.second->free_bytes, ddh::str("device '", question.device, "' (", device.second->name, ")")}))
      return found;
  return std::nullopt;
}

std::optional<DoesNotFit> shortage_of_hosts(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  std::map<int32_t, std::pair<Sharing, ddh::FreeMemory>> hosts;
  for (const SeenMemory& rank : ranks) {
    const auto [at, is_new] = hosts.try_emplace(rank.host);
    auto& [sharing, left] = at->second;
    if (is_new) left = {rank.host_left, rank.host_left_of.data()};
    sharing.add(rank.planned, MemoryKind::kHost, question.device_has_memory);
  }
  for (auto& [number, host] : hosts) {
    auto& [sharing, left] = host;
    sharing.checkpoints = question.checkpoints.bytes(sharing.n_ranks);
    if (auto found = sharing.compared(MemoryKind::kHost, left)) return found;
  }
  return std::nullopt;
}

}  // namespace

void see_host(SeenMemory& seen, const RankSeat& seat) {
  const std::vector<std::string>& addresses = seat.nodes->addresses();
  const bool has_hosts = !addresses.empty();  // simulated nodes share one
  const ddh::FreeMemory left = ddh::free_memory();
  seen.host = has_hosts ? seat.node() : 0;
  seen.host_left = left.bytes;
  const std::string of =
      has_hosts ? ddh::str(left.of, " (host ", addresses[static_cast<size_t>(seat.node())], ")") : left.of;
  seen.host_left_of = {};
  of.copy(seen.host_left_of.data(), seen.host_left_of.size() - 1);
}

std::optional<DoesNotFit> first_shortage(const std::vector<SeenMemory>& ranks, const FitQuestion& question) {
  if (auto found = shortage_of_addresses(ranks, question)) return found;
  if (question.device_has_memory)
    if (auto found = shortage_of_devices(ranks, question)) return found;
  return shortage_of_hosts(ranks, question);
}

bool can_plan_in_child(const FitQuestion& question, MemoryKind lacking) {
  return lacking == MemoryKind::kHost && !question.device_has_memory && !question.ranks_are_threads;
}

uint64_t reserve_of_rank(const RankMemory& rank, MemoryKind kind, bool device_has_memory) {
  if (kind == MemoryKind::kDevice) return 0;
  const uint64_t base = (kind == MemoryKind::kHost ? uint64_t{48} : uint64_t{448}) << 20;
  return base + (device_has_memory ? 0 : rank.act / 5 * 3);
}

}  // namespace ddhost
