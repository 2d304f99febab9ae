// SPDX-License-Identifier: Apache-2.0
#include "engine/state/part_moves.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "engine/services/comm/gather.hpp"
#include "engine/services/comm/together.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr uint64_t kMostSentBytes = uint64_t{32} << 20;  // that a rank sends or gets at once
constexpr const char* kPartsLabel = "checkpoint: parts of other hosts";

// Parts on their way between this rank and another one, in the order of the moves.
struct Lane {
  std::vector<Part> parts;
  size_t part = 0, range = 0;  // the next one

  // The ranges that go at once, at most `most` bytes, but at least one.
  std::vector<PartRange> next(uint64_t most) {
    std::vector<PartRange> out;
    uint64_t bytes = 0;
    for (; part < parts.size(); ++part, range = 0)
      for (; range < parts[part].ranges.size(); ++range) {
        const PartRange& one = parts[part].ranges[range];
        if (bytes > 0 && bytes + one.bytes > most) return out;
        bytes += one.bytes;
        out.push_back(one);
      }
    return out;
  }
  [[nodiscard]] bool is_done() const { return part == parts.size(); }
};

// Of the rank that has most: to how many it sends, or from how many it gets something.
uint64_t most_partners(const std::vector<PartMove>& moves) {
  std::map<int32_t, std::set<int32_t>> to, from;
  for (const PartMove& move : moves) to[move.from].insert(move.to), from[move.to].insert(move.from);
  size_t most = 1;
  for (const auto& partners : {to, from})
    for (const auto& [rank, others] : partners) most = std::max(most, others.size());
  return most;
}

class Mover {
 public:
  Mover(const Comm& comm, const std::vector<PartMove>& moves, const fs::path& folder, const Manifest& manifest)
      : comm_(comm),
        moves_(moves),
        folder_(folder),
        files_(folder, manifest),
        out_(static_cast<size_t>(comm.world_size())),
        in_(out_.size()),
        most_(std::max(kChunkBytes, kMostSentBytes / most_partners(moves))) {}

  std::string run() {
    if (std::string gone = first_damage(comm_, kPartsLabel, [&] { read_notes(); }); !gone.empty()) return gone;
    if (std::string damage = exchange_notes(); !damage.empty()) return damage;
    while (comm_.any(!all_done(out_) || !all_done(in_), kPartsLabel)) exchange_ranges();
    // A rank that can't read sends bytes of no meaning, so its failure is told before the doubts of others.
    together(comm_, kPartsLabel, [&] {
      if (failure_[0] != '\0') ddh::fail(DDH_RESOURCE_EXHAUSTED, failure_.data());
    });
    return first_damage(comm_, kPartsLabel, [&] {
      if (doubt_[0] != '\0') ddh::fail(DDH_DATA_LOSS, doubt_.data());
      for (const Lane& lane : in_)
        for (const Part& part : lane.parts) write_part(folder_, part);
    });
  }

 private:
  static bool all_done(const std::vector<Lane>& lanes) {
    return std::all_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.is_done(); });
  }

  void read_notes() {
    const std::map<int32_t, std::optional<Part>> here = list_parts(folder_);
    for (const PartMove& move : moves_) {
      if (move.from != comm_.rank()) continue;
      const auto at = here.find(move.part);
      if (at == here.end() || !at->second)
        ddh::fail(DDH_DATA_LOSS, "the part of rank ", move.part, " in '", folder_.string(), "' is gone");
      out_[static_cast<size_t>(move.to)].parts.push_back(*at->second);
    }
  }

  // The receivers learn which ranges come.
  std::string exchange_notes() {
    std::string sent, received;
    std::vector<uint64_t> of_each(out_.size(), sizeof(uint64_t)), counts, in_counts(out_.size());
    for (const Lane& lane : out_) {
      const size_t before = sent.size();
      for (const Part& part : lane.parts) {
        const std::string text = part_text(part);
        const uint64_t bytes = text.size();
        sent.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
        sent += text;
      }
      counts.push_back(sent.size() - before);
    }
    comm_.all_to_all_bytes(counts.data(), of_each, in_counts.data(), of_each, kPartsLabel);
    received.resize(std::accumulate(in_counts.begin(), in_counts.end(), uint64_t{0}));
    comm_.all_to_all_bytes(sent.data(), counts, received.data(), in_counts, kPartsLabel);
    note([&] {
      size_t at = 0;
      for (size_t rank = 0; rank < in_.size(); ++rank)
        for (const size_t end = at + in_counts[rank]; at < end;) {
          uint64_t bytes = 0;
          std::memcpy(&bytes, received.data() + at, sizeof bytes);
          std::optional<Part> part = parse_part(received.substr(at + sizeof bytes, bytes));
          if (!part) ddh::fail(DDH_DATA_LOSS, "a note of rank ", rank, " about a part of a checkpoint came damaged");
          in_[rank].parts.push_back(*std::move(part));
          at += sizeof bytes + bytes;
        }
    });
    return first_damage(comm_, kPartsLabel, [&] {
      if (failure_[0] != '\0') ddh::fail(DDH_DATA_LOSS, failure_.data());
    });
  }

  // After a failure the rank goes on with bytes of no meaning, because the others wait for them.
  void exchange_ranges() {
    std::vector<std::vector<PartRange>> going, coming;
    std::vector<uint64_t> counts, in_counts;
    const auto take = [&](std::vector<Lane>& lanes, std::vector<std::vector<PartRange>>& ranges,
                          std::vector<uint64_t>& sizes) {
      for (Lane& lane : lanes) {
        ranges.push_back(lane.next(most_));
        sizes.push_back(Part{{}, ranges.back()}.bytes());
      }
      return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    };
    sent_.resize(take(out_, going, counts));
    received_.resize(take(in_, coming, in_counts));
    note([&] {
      char* to = sent_.data();
      for (const std::vector<PartRange>& ranges : going)
        for (const PartRange& range : ranges) {
          files_.read(range, to);
          to += range.bytes;
        }
    });
    comm_.all_to_all_bytes(sent_.data(), counts, received_.data(), in_counts, kPartsLabel);
    note([&] {
      const char* from = received_.data();
      for (size_t rank = 0; rank < coming.size(); ++rank)
        for (const PartRange& range : coming[rank]) {
          if (sum_of(from, range.bytes) != range.sum) {
            doubt_ = failure_of(
                [&] { ddh::fail(DDH_DATA_LOSS, "rank ", rank, " sent a damaged part of a checkpoint in memory"); });
            return;
          }
          files_.write(range, from);
          from += range.bytes;
        }
    });
  }

  template <class Body>
  void note(Body&& body) {
    if (failure_[0] == '\0') failure_ = failure_of(std::forward<Body>(body));
  }

  const Comm& comm_;
  const std::vector<PartMove>& moves_;
  const fs::path& folder_;
  PartFiles files_;
  std::vector<Lane> out_, in_;  // to and from each rank
  const uint64_t most_;         // bytes to one rank at once
  std::vector<char> sent_, received_;
  FailureText failure_{}, doubt_{};  // of this rank; of what others have sent
};

}  // namespace

std::vector<PartMove> moves_to_next_host(const Nodes& nodes) {
  const std::vector<int32_t> sizes = nodes.sizes();
  std::vector<int32_t> first(sizes.size(), 0);
  for (size_t node = 1; node < sizes.size(); ++node) first[node] = first[node - 1] + sizes[node - 1];
  std::vector<PartMove> out;
  for (int32_t rank = 0; sizes.size() > 1 && rank < nodes.world_size(); ++rank) {
    const size_t next = (static_cast<size_t>(nodes.node(rank)) + 1) % sizes.size();
    out.push_back({rank, first[next] + nodes.local_rank(rank) % sizes[next], rank});
  }
  return out;
}

std::string move_parts(const Comm& comm, const std::vector<PartMove>& moves, const fs::path& folder,
                       const Manifest& manifest) {
  return moves.empty() ? "" : Mover(comm, moves, folder, manifest).run();
}

}  // namespace ddhost
