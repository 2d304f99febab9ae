// SPDX-License-Identifier: Apache-2.0
//
// Batches of blocks of gradients: which blocks are in which batch.
#include "ddh/sdk/grads/block_batches.hpp"

#include <algorithm>
#include <optional>

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

constexpr uint64_t kMostBufferBytes = uint64_t{64} << 20;
constexpr uint64_t kWholePart = 4;  // by default a unit is whole up to a quarter of the buffers, as blocks cost little

// A block in the order of the flat space.
struct Placed {
  BlockBatch::Block block;  // `at` is not known yet
  uint64_t flat;            // begin in the space
  int32_t first, last;      // ranks in whose segments it lies
  [[nodiscard]] uint64_t end() const { return flat + block.padded; }
  [[nodiscard]] bool is_shared() const { return first != last; }
};

uint64_t end_of(const Cut& cut, int32_t rank) {
  return cut.segment_offset[static_cast<size_t>(rank)] + cut.segment_numel[static_cast<size_t>(rank)];
}

std::vector<Placed> place_blocks(const ddh_model_desc& model, const FlatSpace& space) {
  std::vector<Placed> out;
  int32_t rank = 0;
  for (const PlacedParam& p : space.params) {
    if (!p.in_blocks) continue;
    const uint64_t grid = model.params[p.param]->grad_block;
    for (uint64_t offset = 0; offset < p.numel; offset += grid) {
      const uint64_t numel = std::min(grid, p.numel - offset);
      const uint64_t flat = p.offset + offset, padded = round_up_to_grid(numel);
      while (end_of(space.cut, rank) <= flat) ++rank;
      int32_t last = rank;
      while (end_of(space.cut, last) < flat + padded) ++last;
      out.push_back({{p.param, offset, numel, 0, padded}, flat, rank, last});
    }
  }
  return out;
}

// The batch of each block, for `n` batches.
std::vector<size_t> spread(const std::vector<Placed>& blocks, size_t n) {
  std::vector<size_t> batch_of(blocks.size(), 0);
  bool next_is_last = true;  // where the next block goes that several ranks share
  bool ascends = true;       // the rank of the blocks that follow begins in the first batch
  for (size_t b = 0; b < blocks.size();) {
    if (blocks[b].is_shared()) {
      batch_of[b] = next_is_last ? n - 1 : 0;
      ascends = !next_is_last;
      next_is_last = !next_is_last;
      ++b;
      continue;
    }
    size_t end = b;  // of this rank's own blocks
    while (end < blocks.size() && !blocks[end].is_shared() && blocks[end].first == blocks[b].first) ++end;
    // Without a shared block before them, they go towards the shared block after them.
    const bool is_first = b == 0 || blocks[b - 1].last != blocks[b].first;
    if (is_first) ascends = next_is_last;
    const size_t count = end - b;
    for (size_t i = 0; i < count; ++i) {
      const size_t in_order = ascends ? i : count - 1 - i;
      batch_of[b + i] = in_order * n / count;
    }
    b = end;
  }
  return batch_of;
}

uint64_t largest_batch(const std::vector<Placed>& blocks, const std::vector<size_t>& batch_of, size_t n) {
  std::vector<uint64_t> numel(n, 0);
  for (size_t b = 0; b < blocks.size(); ++b) numel[batch_of[b]] += blocks[b].block.padded;
  return *std::max_element(numel.begin(), numel.end());
}

std::vector<size_t> in_order_of_space(const std::vector<Placed>& blocks, uint64_t most_numel) {
  std::vector<size_t> batch_of;
  uint64_t numel = 0;
  size_t batch = 0;
  for (const Placed& placed : blocks) {
    if (numel > 0 && numel + placed.block.padded > most_numel) {
      ++batch;
      numel = 0;
    }
    numel += placed.block.padded;
    batch_of.push_back(batch);
  }
  return batch_of;
}

// The batch of each block.
std::vector<size_t> choose_batches(const std::vector<Placed>& blocks, const FlatSpace& space, uint64_t most_numel) {
  std::vector<size_t> own(space.cut.segment_numel.size(), 0);  // blocks of one rank alone
  for (const Placed& placed : blocks)
    if (!placed.is_shared()) ++own[static_cast<size_t>(placed.first)];
  const size_t most = std::max<size_t>(2, *std::max_element(own.begin(), own.end()));
  for (size_t n = std::max<uint64_t>(1, (space.blocks_numel + most_numel - 1) / most_numel); n <= most; ++n) {
    std::vector<size_t> batch_of = spread(blocks, n);
    if (largest_batch(blocks, batch_of, n) <= most_numel) return batch_of;
  }
  return in_order_of_space(blocks, most_numel);
}

void add_block(BlockBatch& batch, const Placed& placed, const FlatSpace& space) {
  batch.blocks.push_back(placed.block);
  batch.blocks.back().at = batch.numel;
  batch.numel += placed.block.padded;
  for (int32_t r = placed.first; r <= placed.last; ++r) {
    const uint64_t from = std::max(placed.flat, space.cut.segment_offset[static_cast<size_t>(r)]);
    batch.segment_numel[static_cast<size_t>(r)] += std::min(placed.end(), end_of(space.cut, r)) - from;
  }
}

}  // namespace

BlockBatch rest_of(const FlatSpace& space, int32_t rank) {
  BlockBatch rest;
  rest.numel = space.numel - space.blocks_numel;
  rest.segment_numel.assign(space.cut.segment_numel.size(), 0);
  const auto begin_in = [&](size_t r) { return std::max(space.blocks_numel, space.cut.segment_offset[r]); };
  for (size_t r = 0; r < rest.segment_numel.size(); ++r) {
    const uint64_t end = end_of(space.cut, static_cast<int32_t>(r));
    if (end > begin_in(r)) rest.segment_numel[r] = end - begin_in(r);
  }
  const auto me = static_cast<size_t>(rank);
  if (rest.segment_numel[me] == 0) return rest;
  rest.segment_offset = begin_in(me) - space.cut.segment_offset[me];
  rest.ranges = space.ranges(begin_in(me), rest.segment_numel[me]);
  return rest;
}

uint64_t largest_block(const ddh_model_desc& model, const FlatSpace& space) {
  uint64_t most = 0;
  for (const PlacedParam& p : space.params)
    if (p.in_blocks) most = std::max(most, std::min(model.params[p.param]->grad_block, round_up_to_grid(p.numel)));
  return most;
}

std::vector<BlockBatch> block_batches(const ddh_model_desc& model, const FlatSpace& space, int32_t rank,
                                      uint64_t most_numel) {
  const std::vector<Placed> blocks = place_blocks(model, space);
  const std::vector<size_t> batch_of = choose_batches(blocks, space, std::max(most_numel, largest_block(model, space)));
  const size_t n = *std::max_element(batch_of.begin(), batch_of.end()) + 1;
  std::vector<BlockBatch> out(n);
  std::vector<std::optional<uint64_t>> begin(n);  // of this rank's range in the space
  const uint64_t my_begin = space.cut.segment_offset[static_cast<size_t>(rank)];
  for (BlockBatch& batch : out) batch.segment_numel.assign(space.cut.segment_numel.size(), 0);
  for (size_t b = 0; b < blocks.size(); ++b) {
    add_block(out[batch_of[b]], blocks[b], space);
    const bool is_mine = blocks[b].first <= rank && rank <= blocks[b].last;
    if (is_mine && !begin[batch_of[b]]) begin[batch_of[b]] = std::max(blocks[b].flat, my_begin);
  }
  for (size_t i = 0; i < n; ++i) {
    if (!begin[i]) continue;
    out[i].segment_offset = *begin[i] - my_begin;
    out[i].ranges = space.ranges(*begin[i], out[i].segment_numel[static_cast<size_t>(rank)]);
  }
  std::erase_if(out, [](const BlockBatch& batch) { return batch.blocks.empty(); });
  return out;
}

uint64_t grad_buffer_limit(uint64_t all, const ddh_attach_args& args, uint64_t option) {
  if (option > 0) return option;
  return std::min(kMostBufferBytes, (full_grad_bytes(all, args) - all) / static_cast<uint64_t>(args.world_size));
}

uint64_t full_grad_bytes(uint64_t all, const ddh_attach_args& args) {
  return static_cast<uint64_t>(args.world_size) * all + (reductions_per_step(args) > 1 ? all : 0);
}

Grouping with_blocks(Grouping grouping, const ddh_attach_args& args, uint64_t option) {
  const bool keeps_micro_sums = args.grad_accum_steps > 1 && args.reduce_order == DDH_MICRO_FIRST;
  if (args.world_size == 1 || keeps_micro_sums) return grouping;
  const std::vector<RunProgram> programs = run_programs(args);
  uint64_t all = 0;
  for (uint32_t p = 0; p < args.model->n_params; ++p) {
    const auto trains = [p](const RunProgram& program) { return program.trains(static_cast<int32_t>(p)); };
    if (std::any_of(programs.begin(), programs.end(), trains))
      all += round_up_to_grid(args.model->params[p]->numel) * sizeof(float);
  }
  grouping.whole_grad_bytes = option > 0 ? option : grad_buffer_limit(all, args, 0) / kWholePart;
  return grouping;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
