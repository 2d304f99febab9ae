// SPDX-License-Identifier: Apache-2.0
//
// Batches of blocks of gradients: each block is in one batch, each rank has one range of its segment in a batch, and all ranks
// sum at once where the buffer has room for it.
#include "ddh/sdk/grads/block_batches.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/model.hpp"
#include "fixtures/harness/attach_args.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost::test;

namespace {

constexpr uint64_t kGrid = DDH_GRID;

// A unit of two matrices with rows of 64 elements, in blocks of `rows` rows, and a bias.
struct Matrices {
  Matrices(int64_t first, int64_t second, int64_t bias, uint64_t rows) {
    const ddh::ParamOptions in_blocks = {.grad_block = rows * 64};
    const std::vector<int32_t> params = {desc.add_param(0, "bias", {bias}, {}),
                                         desc.add_param(0, "first", {first, 64}, {}, 0, {}, in_blocks),
                                         desc.add_param(0, "second", {second, 64}, {}, 0, {}, in_blocks)};
    desc.add_unit("unit", params);
    desc.add_program({DDH_PROGRAM_TRAIN, "train", {0}, {"loss"}, 8, "samples"});
  }
  [[nodiscard]] ddh::FlatSpace space(int32_t world) {
    const AttachArgs args(desc.get(), world);
    ddh::Grouping grouping;
    grouping.whole_grad_bytes = 1;
    return ddh::ModelLayout(args.get(), {}, grouping).spaces.at(0);
  }
  ddh::ModelDesc desc{"matrices"};
};

struct OfRanks {
  std::vector<std::vector<ddh::BlockBatch>> batches;  // per rank
  [[nodiscard]] size_t count() const { return batches.front().size(); }
  [[nodiscard]] const ddh::BlockBatch& at(size_t rank, size_t batch) const { return batches[rank][batch]; }
};

OfRanks batches_of(Matrices& model, const ddh::FlatSpace& space, int32_t world, uint64_t most) {
  OfRanks out;
  for (int32_t r = 0; r < world; ++r) out.batches.push_back(ddh::block_batches(model.desc.get(), space, r, most));
  return out;
}

// Every element of the blocks is summed once, by the rank in whose segment it is, and lies there in the buffer.
void check_cover(Matrices& model, const ddh::FlatSpace& space, int32_t world, uint64_t most) {
  const OfRanks all = batches_of(model, space, world, most);
  std::vector<int> summed(space.blocks_numel, 0), written(space.blocks_numel, 0);
  for (size_t i = 0; i < all.count(); ++i) {
    const ddh::BlockBatch& first = all.at(0, i);
    CHECK(first.numel <= std::max(most, ddh::largest_block(model.desc.get(), space)));
    CHECK(std::accumulate(first.segment_numel.begin(), first.segment_numel.end(), uint64_t{0}) == first.numel);
    std::vector<uint64_t> element_at(first.numel);  // of the space
    for (const ddh::BlockBatch::Block& block : first.blocks) {
      uint64_t begin = block.offset;
      for (const ddh::PlacedParam& p : space.params) begin += p.param == block.param ? p.offset : 0;
      for (uint64_t e = 0; e < block.padded; ++e) {
        element_at[block.at + e] = begin + e;
        ++written[begin + e];
      }
    }
    uint64_t at = 0;  // in the buffer
    for (size_t r = 0; r < static_cast<size_t>(world); ++r) {
      const ddh::BlockBatch& mine = all.at(r, i);
      CHECK(mine.segment_numel == first.segment_numel);
      CHECK(mine.blocks.size() == first.blocks.size());
      const uint64_t begin = space.cut.segment_offset[r] + mine.segment_offset;
      for (uint64_t e = 0; e < mine.segment_numel[r]; ++e, ++at) {
        if (element_at[at] != begin + e) FAIL("rank " << r << " has element " << element_at[at] << " at " << begin + e);
        ++summed[begin + e];
      }
    }
  }
  CHECK(std::all_of(summed.begin(), summed.end(), [](int n) { return n == 1; }));
  CHECK(std::all_of(written.begin(), written.end(), [](int n) { return n == 1; }));
}

}  // namespace

TEST_CASE("each element of each block is in one batch, at the place of its rank", "[blocks]") {
  const auto world = GENERATE(1, 2, 3, 4, 5, 7, 16);
  const auto rows = GENERATE(1U, 3U, 7U, 50U);
  const auto [first, second] = GENERATE(std::pair{50, 50}, std::pair{101, 0}, std::pair{64, 129}, std::pair{400, 7});
  Matrices model(first, std::max(second, 1), 70, second == 0 ? 1 : std::min<uint64_t>(rows, 7));
  const ddh::FlatSpace space = model.space(world);
  CHECK(space.params.front().in_blocks);
  CHECK(space.numel - space.blocks_numel == 2 * kGrid);
  for (const uint64_t most : {kGrid, 4 * kGrid, 20 * kGrid, 77 * kGrid, 10000 * kGrid})
    check_cover(model, space, world, most);
}

TEST_CASE("in a batch all ranks have about the same to sum", "[blocks]") {
  const auto world = GENERATE(2, 3, 4, 8);
  Matrices model(1000, 600, 10, 4);
  const ddh::FlatSpace space = model.space(world);
  const uint64_t block = 4 * kGrid, most = 8 * static_cast<uint64_t>(world) * block;
  for (const ddh::BlockBatch& batch : ddh::block_batches(model.desc.get(), space, 0, most)) {
    const auto [least, largest] = std::minmax_element(batch.segment_numel.begin(), batch.segment_numel.end());
    CHECK(*largest - *least <= 3 * block);
    CHECK(*least > 0);
  }
}

TEST_CASE("the rest of a space is what has no blocks", "[blocks]") {
  Matrices model(10, 10, 200, 2);
  const ddh::FlatSpace space = model.space(3);
  uint64_t numel = 0, named = 0;
  for (int32_t r = 0; r < 3; ++r) {
    const ddh::BlockBatch rest = ddh::rest_of(space, r);
    CHECK(rest.numel == 4 * kGrid);
    numel += rest.segment_numel[static_cast<size_t>(r)];
    for (const ddh_range& range : rest.ranges) named += range.param == 0 ? range.numel : 0;
  }
  CHECK(numel == 4 * kGrid);
  CHECK(named == 200);
}

TEST_CASE("by default the buffers take 64 MiB, or what full gradients take less a segment", "[blocks]") {
  ddh_attach_args args{};
  args.world_size = 4;
  args.grad_accum_steps = 1;
  args.reduce_order = DDH_RANK_FIRST;
  CHECK(ddh::grad_buffer_limit(4000, args, 0) == 3000);
  CHECK(ddh::grad_buffer_limit(uint64_t{1} << 40, args, 0) == uint64_t{64} << 20);
  CHECK(ddh::grad_buffer_limit(4000, args, 777) == 777);
  args.grad_accum_steps = 2;  // FullGrads has sums beside
  CHECK(ddh::grad_buffer_limit(4000, args, 0) == 4000);
}

TEST_CASE("blocks need several ranks, larger units and gradients that are not kept whole", "[blocks]") {
  Matrices model(50, 50, 70, 2);
  const AttachArgs made(model.desc.get(), 2);
  ddh_attach_args args = made.get();
  const auto limit = [&](uint64_t option) { return ddh::with_blocks({}, args, option).whole_grad_bytes; };
  CHECK(limit(1000) == 1000);
  CHECK(limit(0) == (2 * 50 * 64 + 128) * sizeof(float) / 2 / 4);
  args.grad_accum_steps = 2;
  CHECK(limit(1000) == 1000);
  args.reduce_order = DDH_MICRO_FIRST;
  CHECK(limit(1000) == 0);
  args.grad_accum_steps = 1;
  CHECK(limit(1000) == 1000);
  args.world_size = 1;
  CHECK(limit(1000) == 0);
  args.world_size = 2;
  CHECK(ddh::ModelLayout(args, {}, ddh::with_blocks({}, args, 1 << 20)).spaces.at(0).blocks_numel == 0);
  // An optimizer of whole parameters.
  const std::vector<bool> whole(3, true);
  CHECK(ddh::ModelLayout(args, whole, ddh::with_blocks({}, args, 1000)).spaces.at(0).blocks_numel == 0);
}

TEST_CASE("a block has whole rows on the grid, and small matrices have none", "[blocks]") {
  const auto block = [](std::vector<int64_t> shape) { return ddh::grad_block_of(shape); };
  CHECK(block({4096, 25088}) == 16 * 25088);
  CHECK(block({4096, 4096}) == 16 * 4096);
  CHECK(block({50304, 64}) == 25152 / 64 / 16 * 16 * 64);
  CHECK(block({100'000, 5}) == 4096 / 5 / 64 * 64 * 5);  // 64 rows are the least on the grid
  CHECK(block({100'000}) == 4096);
  CHECK(block({255, 256}) == 0);
  CHECK(block({20, 100'000}) == 0);  // not two blocks
  CHECK(block({125, 64, 64}) == 64 * 64);
  CHECK(block({}) == 0);
  for (int64_t row = 1; row < 300; ++row) {
    const uint64_t numel = block({70'000, row});
    CHECK((numel % kGrid == 0 && numel % static_cast<uint64_t>(row) == 0 && numel > 0));
  }
}
