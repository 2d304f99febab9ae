// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/grads/ring_choice.hpp"

#include <map>

#include "ddh/sdk/grads/block_batches.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace {

// The backward ops of a program during which a space is written: from that of its first unit to that of its last.
struct Written {
  size_t first = 0, end = 0;
};

// Per program and candidate.
std::vector<std::vector<Written>> written_in(const ModelLayout& layout, const std::vector<size_t>& candidates) {
  std::vector<std::vector<Written>> out;
  for (const RunProgram& program : layout.programs) {
    std::vector<Written>& written = out.emplace_back(candidates.size());
    std::vector<size_t> candidate_of(layout.spaces.size(), SIZE_MAX);
    for (size_t i = 0; i < candidates.size(); ++i)
      if (layout.spaces[candidates[i]].trained_in(program.program)) candidate_of[candidates[i]] = i;
    for (size_t o = 0; o < program.ops.size(); ++o) {
      const ddh_op& op = program.ops[o];
      if (!gives_gradients(op.phase, op.flags)) continue;
      for (const size_t space : layout.unit_uses[static_cast<size_t>(op.unit)]) {
        if (candidate_of[space] == SIZE_MAX) continue;
        Written& its = written[candidate_of[space]];
        if (its.end == 0) its.first = o;
        its.end = o + 1;
      }
    }
  }
  return out;
}

// The same, with what is written after a backward.
std::vector<std::vector<Written>> written_in(const ModelLayout& layout, const std::vector<size_t>& candidates,
                                             const RingBlocks& blocks) {
  std::vector<std::vector<Written>> out = written_in(layout, candidates);
  for (const size_t space : blocks.spaces) {
    const std::vector<std::vector<Written>> written = written_in(layout, {space});
    for (size_t program = 0; program < out.size(); ++program) out[program].push_back(written[program].front());
  }
  return out;
}

// The largest number of candidates from `first_in_ring` on, and of blocks, that are written at the same time.
size_t most_at_once(const std::vector<std::vector<Written>>& written, size_t first_in_ring) {
  size_t most = 0;
  for (const std::vector<Written>& program : written) {
    std::map<size_t, int64_t> changes;  // op: spaces that begin there less those that end
    for (size_t i = first_in_ring; i < program.size(); ++i) {
      ++changes[program[i].first];
      --changes[program[i].end];
    }
    int64_t now = 0;
    for (const auto& [op, change] : changes) most = std::max(most, static_cast<size_t>(now += change));
  }
  return most;
}

}  // namespace

RingChoice choose_ring(const ModelLayout& layout, const std::vector<size_t>& candidates, const RingBlocks& blocks,
                       const ddh_attach_args& args, bool in_place, const GradRingOptions& options) {
  const auto bytes_of = [&](size_t i) { return i < candidates.size() ? layout.spaces[candidates[i]].grad_bytes() : 0; };
  const auto buffer_bytes = [&](size_t n_own) { return std::max(bytes_of(n_own), blocks.numel * sizeof(float)); };
  const auto world = static_cast<uint64_t>(args.world_size);
  uint64_t all = 0;
  for (size_t i = 0; i < candidates.size(); ++i) all += bytes_of(i);
  for (const FlatSpace& space : layout.spaces)
    if (space.blocks_numel > 0) all += space.grad_bytes();
  const uint64_t full_bytes = full_grad_bytes(all, args);
  const uint64_t most_bytes = grad_buffer_limit(all, args, options.buffer_bytes);
  const auto written = written_in(layout, candidates, blocks);

  RingChoice best;
  uint64_t bytes_for_overlap = 0;
  uint64_t least = UINT64_MAX, own = 0;  // bytes of all ranks; of the own buffers of a rank
  for (size_t n_own = 0; n_own <= candidates.size(); own += bytes_of(n_own++)) {
    if (n_own > 0 && bytes_of(n_own) == bytes_of(n_own - 1)) continue;  // equal spaces go together
    const size_t at_once = most_at_once(written, n_own);
    // A space with blocks has several batches.
    const size_t users = candidates.size() - n_own + 2 * blocks.spaces.size();
    const size_t overlapped = std::min(users, at_once + (options.overlap ? 1 : 0));
    const auto bytes_with = [&](size_t ring_size) {
      return world * (own + ring_size * buffer_bytes(n_own)) + all - (in_place ? own : 0);
    };
    if (bytes_with(at_once) >= least) continue;
    least = bytes_with(at_once);
    const bool fits = overlapped * buffer_bytes(n_own) <= most_bytes;
    if (n_own == 0 && fits) return {0, overlapped, buffer_bytes(0) / sizeof(float), 0};
    if (n_own == 0) bytes_for_overlap = overlapped * buffer_bytes(0);
    const bool overlaps = overlapped == at_once || (fits && bytes_with(overlapped) <= full_bytes);
    best = {n_own, overlaps ? overlapped : at_once, buffer_bytes(n_own) / sizeof(float),
            overlaps ? 0 : bytes_for_overlap};
  }
  return best;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
