// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "engine/services/comm/gather.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/state/part_moves.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kHostsLabel = "checkpoint: memory of the hosts";

// Exchanged as bytes.
struct HeldPart {
  uint64_t run_id;
  int64_t step;
  int32_t world_size, part;
  int32_t holder;  // the rank that has checked it
  int32_t is_whole;
};

// The parts of one folder.
class PartsCheck {
 public:
  explicit PartsCheck(const CheckpointPlace& place) : place_(place) {
    try {
      const std::string text = read_whole(place.folder / kPartsManifest);
      sum_ = sum_of(text.data(), text.size());
      files_.emplace(place.folder, parse_manifest(text, (place.folder / kPartsManifest).string()));
    } catch (const ddh::Error& error) {
      if (!is_damage(error)) throw;
    }
  }

  [[nodiscard]] bool is_whole(const std::optional<Part>& part) {
    if (!part || !files_ || part->head.step != place_.step || part->head.manifest_sum != sum_) return false;
    try {
      return files_->hold(*part);
    } catch (const ddh::Error& error) {  // a file is missing
      if (!is_damage(error)) throw;
      return false;
    }
  }

 private:
  const CheckpointPlace& place_;
  uint64_t sum_ = 0;
  std::optional<PartFiles> files_;
};

// The ranks of a host share the work.
std::vector<HeldPart> checked_here(const Nodes& nodes, int32_t rank, const fs::path& run_dir, uint64_t first_run) {
  std::vector<HeldPart> out;
  if (!has_memory_folder(run_dir)) return out;
  int32_t index = 0;
  for (const CheckpointPlace& place : list_checkpoints(parts_root(run_dir))) {
    std::optional<PartsCheck> check;
    for (const auto& [number, part] : list_parts(place.folder)) {
      if (part && part->head.first_run != first_run) continue;
      if (index++ % nodes.sizes()[static_cast<size_t>(nodes.node(rank))] != nodes.local_rank(rank)) continue;
      if (!check) check.emplace(place);
      const bool is_whole = check->is_whole(part);
      const Part::Head head = part ? part->head : Part::Head{};
      out.push_back({head.run_id, place.step, head.world_size, number, rank, is_whole ? 1 : 0});
    }
  }
  return out;
}

bool is_complete(const FoundParts& found) {
  return std::none_of(found.holders.begin(), found.holders.end(), [](const auto& ranks) { return ranks.empty(); });
}

// The checksums of all chunks, of which each rank computes some.
void add_sums(const Comm& comm, const fs::path& folder, Manifest& manifest) {
  uint64_t n_chunks = 0;
  for (const Manifest::Tensor& tensor : manifest.tensors) n_chunks += tensor.sums.size();
  std::vector<uint64_t> mine(n_chunks);
  together(comm, kHostsLabel, [&] {
    PartFiles files(folder, manifest);
    std::vector<char> bytes(kChunkBytes);
    uint64_t index = 0;
    for (const Manifest::Tensor& tensor : manifest.tensors)
      for (uint64_t chunk = 0; chunk < tensor.sums.size(); ++chunk, ++index) {
        if (index % static_cast<uint64_t>(comm.world_size()) != static_cast<uint64_t>(comm.rank())) continue;
        const StoredTensor& t = tensor.stored;
        const uint64_t n = t.chunk_bytes(chunk);
        files.read({static_cast<uint32_t>(t.file), 0, t.offset + chunk * kChunkBytes, n, 0}, bytes.data());
        mine[index] = sum_of(bytes.data(), n);
      }
  });
  const std::vector<uint64_t> all = sums_over_ranks(comm, mine, kHostsLabel);
  auto next = all.begin();
  for (Manifest::Tensor& tensor : manifest.tensors)
    for (uint64_t& sum : tensor.sums) sum = *next++;
}

}  // namespace

std::vector<PartMove> moves_to_all_hosts(const FoundParts& found, const Nodes& nodes) {
  std::vector<PartMove> out;
  const std::vector<int32_t> sizes = nodes.sizes();
  for (int32_t part = 0; part < found.world_size; ++part) {
    const std::vector<int32_t>& holders = found.holders[static_cast<size_t>(part)];
    int32_t first = 0;  // of the host
    for (size_t host = 0; host < sizes.size(); first += sizes[host++]) {
      const auto is_here = [&](int32_t rank) { return nodes.node(rank) == static_cast<int32_t>(host); };
      if (std::none_of(holders.begin(), holders.end(), is_here))
        out.push_back({holders[host % holders.size()], first + part % sizes[host], part});
    }
  }
  return out;
}

void keep_found_parts(const fs::path& run_dir, const std::vector<FoundParts>& whole) {
  const fs::path root = parts_root(run_dir);
  remove_leftovers(root);
  for (const CheckpointPlace& place : list_checkpoints(root))
    if (std::none_of(whole.begin(), whole.end(), [&](const FoundParts& one) { return one.step == place.step; }))
      remove_folder(place.folder);
}

FoundInMemory find_in_memory(const Comm& comm, const RankSeat& seat, const fs::path& run_dir, uint64_t first_run) {
  std::vector<HeldPart> mine;
  together(comm, kHostsLabel, [&] {
    if (seat.local_rank() == 0) claim_memory_folder(run_dir, seat.run_id);
  });
  together(comm, kHostsLabel, [&] { mine = checked_here(*seat.nodes, comm.rank(), run_dir, first_run); });
  FoundInMemory out;
  std::map<std::pair<int64_t, uint64_t>, FoundParts> found;
  for (const HeldPart& held : gather_lists(comm, mine, kHostsLabel)) {
    if (held.is_whole == 0 || held.part >= held.world_size) {
      out.damages.push_back(ddh::str("the part of rank ", held.part, " of the checkpoint in memory of step ", held.step,
                                     " is damaged on the host of rank ", held.holder));
      continue;
    }
    FoundParts& one = found[{held.step, held.run_id}];
    one.run_id = held.run_id;
    one.step = held.step;
    one.world_size = held.world_size;
    one.holders.resize(static_cast<size_t>(held.world_size));
    one.holders[static_cast<size_t>(held.part)].push_back(held.holder);
  }
  for (auto at = found.rbegin(); at != found.rend(); ++at)
    if (is_complete(at->second)) out.whole.push_back(std::move(at->second));
  return out;
}

std::string bring_together(const Comm& comm, const RankSeat& seat, const fs::path& run_dir, const FoundParts& found) {
  const Nodes& nodes = *seat.nodes;
  const fs::path root = parts_root(run_dir), whole = checkpoint_folder(root, found.step);
  std::set<int32_t> hosts;  // that have parts of it
  for (const std::vector<int32_t>& ranks : found.holders)
    for (const int32_t rank : ranks) hosts.insert(nodes.node(rank));
  const bool is_new = !hosts.contains(seat.node()), makes_files = seat.local_rank() == 0;
  const fs::path folder = is_new ? partial_folder(root, found.step) : whole;
  const int32_t giver = found.holders.front().front();
  std::string text;
  Manifest manifest;
  std::string damage = first_damage(comm, kHostsLabel, [&] {
    if (comm.rank() == giver) text = read_whole(whole / kPartsManifest);
  });
  if (!damage.empty()) return damage;
  broadcast_text(comm, text, giver, kHostsLabel);
  damage = first_damage(comm, kHostsLabel, [&] { manifest = parse_manifest(text, (whole / kPartsManifest).string()); });
  if (!damage.empty()) return damage;
  together(comm, kHostsLabel, [&] {
    if (!makes_files) return;
    if (is_new) {
      take_memory_folder(run_dir, seat.run_id);
      begin_checkpoint(root, found.step);
      write_durably(folder / kPartsManifest, text);
    }
    PartFiles(folder, manifest).make();
  });
  damage = move_parts(comm, moves_to_all_hosts(found, nodes), folder, manifest);
  if (!damage.empty()) return damage;
  together(comm, kHostsLabel, [&] {
    if (makes_files && is_new) publish_folder(folder, whole);
  });
  add_sums(comm, whole, manifest);
  together(comm, kHostsLabel, [&] {
    if (makes_files) complete_checkpoint(whole, manifest);
  });
  return "";
}

}  // namespace ddhost
