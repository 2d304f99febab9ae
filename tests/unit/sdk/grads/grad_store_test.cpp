// SPDX-License-Identifier: Apache-2.0
//
// How gradients are stored and summed: in full on every rank (FullGrads), or in a ring of a few buffers (GradRing), whole or
// in blocks.
#include <functional>

#include "ddh/sdk/grads/full_grads.hpp"
#include "ddh/sdk/grads/grad_ring.hpp"
#include "unit/sdk/store_fixture.hpp"

using namespace ddhost::test;

namespace {

using Maker = std::function<std::unique_ptr<ddh::GradStore>(const StoreRank&)>;

std::unique_ptr<ddh::GradStore> full(const StoreRank& rank) {
  return std::make_unique<ddh::FullGrads>(rank.layout, rank.args, 0U);
}
constexpr uint64_t kEnough = 1 << 20;  // bytes of a ring for this model
std::unique_ptr<ddh::GradStore> ring(const StoreRank& rank) {
  return std::make_unique<ddh::GradRing>(rank.layout, rank.args, ddh::GradRingOptions{.buffer_bytes = kEnough});
}
std::unique_ptr<ddh::GradStore> ring_without_overlap(const StoreRank& rank) {
  return std::make_unique<ddh::GradRing>(rank.layout, rank.args,
                                         ddh::GradRingOptions{.overlap = false, .buffer_bytes = kEnough});
}
// With one rank each space has its own buffer, as a ring would save nothing.
std::unique_ptr<ddh::GradStore> least_ring(const StoreRank& rank) {
  return std::make_unique<ddh::GradRing>(rank.layout, rank.args);
}
const std::map<std::string, Maker> kStores = {
    {"full", full}, {"ring", ring}, {"ring, one by one", ring_without_overlap}, {"least ring", least_ring}};

// Differs by rank, micro-batch, space and element; sums are exact.
float grad_of(int32_t rank, uint32_t micro_batch, size_t space, uint64_t element) {
  return static_cast<float>((static_cast<uint64_t>(rank) + 1) * (micro_batch + 1) * (1 + space * 7 + element % 13));
}
float sum_of(int32_t world, uint32_t micro_batches, size_t space, uint64_t element) {
  float sum = 0;
  for (int32_t r = 0; r < world; ++r)
    for (uint32_t m = 0; m < micro_batches; ++m) sum += grad_of(r, m, space, element);
  return sum;
}

// Each block of the space once.
void write_blocks(const StoreRank& rank, ddh::GradStore& store, size_t space, uint32_t micro_batch, bool last) {
  uint64_t written = 0;
  ddh_grad_block block{};
  while (rank.layout.spaces[space].blocks_numel > 0 && store.next_block(space, last, block)) {
    expect(block.grad_mode == DDH_GRAD_WRITE && block.offset % DDH_GRID == 0, "block at ", block.offset, " of mode ",
           block.grad_mode);
    const uint64_t first = rank.layout.place[static_cast<size_t>(block.param)].offset + block.offset;
    for (uint64_t i = 0; i < block.numel; ++i) block.grad[i] = grad_of(rank.rank, micro_batch, space, first + i);
    written += block.numel;
  }
  uint64_t wanted = 0;
  for (const ddh::PlacedParam& p : rank.layout.spaces[space].params) wanted += p.in_blocks ? p.numel : 0;
  expect(written == wanted, "blocks of ", written, " elements, of ", wanted);
}

// The backward of one micro-batch: the units in reverse. A unit writes its parameters, and padding stays as it is.
void backward(StoreRank& rank, ddh::GradStore& store, uint32_t micro_batch, bool last) {
  for (int32_t unit = 2; unit >= 0; --unit) {
    for (const size_t s : rank.layout.unit_uses[static_cast<size_t>(unit)]) {
      const ddh::FlatSpace& space = rank.layout.spaces[s];
      if (!space.trained()) continue;
      if (space.numel == space.blocks_numel) continue;
      float* const to = store.writable(s);
      for (const ddh::PlacedParam& p : space.params)
        for (uint64_t i = p.offset; !p.in_blocks && i < p.offset + p.numel; ++i)
          to[i - space.blocks_numel] = grad_of(rank.rank, micro_batch, s, i);
    }
    for (const size_t s : rank.layout.trained_spaces(unit, 0)) {
      write_blocks(rank, store, s, micro_batch, last);
      store.ready(s, last);
    }
  }
}

void expect_sums(const StoreRank& rank, ddh::GradStore& store, uint32_t micro_batches) {
  for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
    const ddh::FlatSpace& space = rank.layout.spaces[s];
    if (!space.trained()) continue;
    const float* const sum = store.sum(s);
    expect(sum != nullptr, "space ", s, " has no sum");
    for (const ddh_range& r : space.segment_ranges(rank.rank)) {
      for (uint64_t i = 0; i < r.numel; ++i) {
        const uint64_t element = space.cut.segment_offset[static_cast<size_t>(rank.rank)] + r.flat_offset + i;
        const float expected = sum_of(rank.args.world_size, micro_batches, s, element);
        expect(sum[r.flat_offset + i] == expected, "space ", s, ", element ", element, ": ", sum[r.flat_offset + i],
               " instead of ", expected);
      }
    }
  }
}

}  // namespace

TEST_CASE("the sums over ranks and micro-batches are on the rank of the segment, step after step", "[grads]") {
  const int world = GENERATE(1, 2, 3);
  const auto micro_batches = GENERATE(1U, 2U, 3U);
  const bool copies = GENERATE(false, true);
  for (const auto& [name, make] : kStores) {
    INFO(name);
    in_stores(world, [&, &make = make](CommRank& transport) {
      StoreRank rank(transport, copies, DDH_F32, micro_batches);
      const auto store = make(rank);
      store->materialize(*rank.host);
      expect(rank.bytes(DDH_TAG_GRAD) == store->bytes(), "planned ", store->bytes(), ", took ",
             rank.bytes(DDH_TAG_GRAD));
      for (int step = 0; step < 2; ++step) {
        for (uint32_t m = 0; m < micro_batches; ++m) backward(rank, *store, m, m + 1 == micro_batches);
        store->reduce_all();
        expect_sums(rank, *store, micro_batches);
        store->step_done();
      }
    });
  }
}

// One and two blocks in the buffers, and as many as fit by default.
TEST_CASE("gradients in blocks have the sums of whole ones, and the planned memory and calls", "[grads]") {
  const int world = GENERATE(2, 3, 4, 5, 8);
  const auto micro_batches = GENERATE(1U, 2U, 3U);
  const auto buffer_bytes = GENERATE(DDH_GRID * 4U, DDH_GRID * 8U, 0U);
  const bool overlaps = GENERATE(true, false), copies = GENERATE(false, true);
  INFO(world << " ranks, " << micro_batches << " micro-batches, " << buffer_bytes << " bytes, overlap " << overlaps);
  in_stores(world, [&](CommRank& transport) {
    ddh::Grouping grouping;
    grouping.whole_grad_bytes = 1;
    StoreRank rank(transport, copies, DDH_F32, micro_batches, grouping);
    ddh::GradRing store(rank.layout, rank.args, {.overlap = overlaps, .buffer_bytes = buffer_bytes});
    expect(rank.layout.spaces[rank.space_of(1)].blocks_numel == 192, "no blocks beside a tied parameter");
    expect(rank.layout.spaces[rank.space_of(2)].blocks_numel == 256, "no blocks alone in a space");
    store.materialize(*rank.host);
    expect(rank.bytes(DDH_TAG_GRAD) == store.bytes(), "planned ", store.bytes(), ", took ", rank.bytes(DDH_TAG_GRAD));
    for (int step = 0; step < 2; ++step) {
      for (uint32_t m = 0; m < micro_batches; ++m) backward(rank, store, m, m + 1 == micro_batches);
      store.reduce_all();
      expect_sums(rank, store, micro_batches);
      store.step_done();
    }
    for (const auto& [param, numel] : rank.norm.numel) expect(numel <= 2 * 200, "a gradient counted too often");
  });
}

TEST_CASE("each trained element counts once in the norm, after the last micro-batch", "[grads]") {
  for (const auto& [name, make] : kStores) {
    INFO(name);
    std::mutex mutex;
    std::map<int32_t, uint64_t> counted;
    double sum = 0;
    in_stores(3, [&, &make = make](CommRank& transport) {
      StoreRank rank(transport, false, DDH_F32, 2);
      const auto store = make(rank);
      store->materialize(*rank.host);
      backward(rank, *store, 0, false);
      expect(rank.norm.numel.empty(), "a gradient counted before it was complete");
      backward(rank, *store, 1, true);
      store->reduce_all();
      const std::lock_guard lock(mutex);
      for (const auto& [param, numel] : rank.norm.numel) counted[param] += numel;
      sum += rank.norm.sum;
    });
    CHECK(counted == std::map<int32_t, uint64_t>{{0, 35}, {1, 130}, {2, 200}, {4, 50}});
    double expected = 0;
    const StoreModel model;
    const ddh::ModelLayout layout(AttachArgs(model.desc, 3).get());
    for (size_t s = 0; s < layout.spaces.size(); ++s) {
      if (!layout.spaces[s].trained()) continue;
      for (const ddh::PlacedParam& p : layout.spaces[s].params)
        for (uint64_t i = p.offset; i < p.offset + p.numel; ++i) expected += static_cast<double>(sum_of(3, 2, s, i));
    }
    CHECK(sum == expected);
  }
}

TEST_CASE("a space has no sum before its gradients are reduced, and none in a step without them", "[grads]") {
  for (const auto& [name, make] : kStores) {
    INFO(name);
    in_stores(2, [&, &make = make](CommRank& transport) {
      StoreRank rank(transport, false);
      const auto store = make(rank);
      store->materialize(*rank.host);
      const size_t vector = rank.space_of(1);
      expect(store->sum(vector) == nullptr, "a sum before the first backward");
      backward(rank, *store, 0, true);
      store->reduce_all();
      expect(store->sum(vector) != nullptr, "no sum after the reduction");
      store->step_done();
      store->reduce_all();
      expect(store->sum(vector) == nullptr, "the sum of an earlier step");
    });
  }
}

TEST_CASE("with DDH_REDUCE_TO_ALL every rank has the whole sum", "[grads]") {
  const auto micro_batches = GENERATE(1U, 2U);
  in_stores(3, [&](CommRank& transport) {
    StoreRank rank(transport, false, DDH_F32, micro_batches);
    ddh::FullGrads store(rank.layout, rank.args, DDH_REDUCE_TO_ALL);
    store.materialize(*rank.host);
    for (uint32_t m = 0; m < micro_batches; ++m) backward(rank, store, m, m + 1 == micro_batches);
    store.reduce_all();
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      if (!rank.layout.spaces[s].trained()) continue;
      const float* const sum = store.sum(s);
      for (const ddh::PlacedParam& p : rank.layout.spaces[s].params)
        for (uint64_t i = p.offset; i < p.offset + p.numel; ++i)
          expect(sum[i] == sum_of(3, micro_batches, s, i), "space ", s, ", element ", i, " is ", sum[i]);
    }
  });
}

TEST_CASE("without overlap the ring has one buffer less", "[grads]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    const uint64_t with = ring(rank)->bytes(), without = ring_without_overlap(rank)->bytes();
    const uint64_t largest = rank.layout.spaces[rank.space_of(2)].grad_bytes();
    expect(with - without == largest, "the difference is ", with - without, ", the largest buffer ", largest);
  });
}

// A ring once had two buffers of the largest unit, which took more than full gradients in models with one large unit.
TEST_CASE("a ring takes at most what full gradients take, and a space too large for it has its own buffer", "[grads]") {
  const int world = GENERATE(1, 2, 4, 8);
  const auto micro_batches = GENERATE(1U, 3U);
  const int64_t wide = GENERATE(1, 200, 20'000);  // elements; the tied space has 256, another one 64
  StoreModel model;
  model.shapes[2] = wide;
  model.params[2].numel = static_cast<uint64_t>(wide);
  const AttachArgs made(model.desc, world);
  ddh_attach_args args = made.get();
  args.grad_accum_steps = micro_batches;
  INFO(world << " ranks, " << micro_batches << " micro-batches, " << wide << " elements");
  uint64_t ring_bytes = 0, full_bytes = 0;
  const ddh::ModelLayout layout(args);
  for (args.rank = 0; args.rank < world; ++args.rank) {
    ring_bytes += ddh::GradRing(layout, args).bytes();
    full_bytes += ddh::FullGrads(layout, args, 0).bytes();
  }
  CHECK(ring_bytes <= full_bytes);
  if (world == 8 && micro_batches == 1 && wide == 20'000) {
    args.rank = 0;
    // The wide space, the tied one, and the last one, for which alone a ring would save nothing.
    CHECK(ddh::GradRing(layout, args).bytes() == (20'032 + 256 + 64) * sizeof(float));
  }
}

TEST_CASE("a buffer of the ring has zeros in the padding of the space that gets it", "[grads]") {
  in_stores(1, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    const auto store = ring_without_overlap(rank);
    store->materialize(*rank.host);
    const size_t wide = rank.space_of(2), last = rank.space_of(4);
    float* const first = store->writable(wide);
    std::fill_n(first, rank.layout.spaces[wide].numel, 1.0F);
    store->ready(wide, true);
    float* const second = store->writable(last);
    expect(first == second, "two spaces of the ring took two buffers");
    for (uint64_t i = 50; i < rank.layout.spaces[last].numel; ++i)
      expect(second[i] == 0, "padding at ", i, " is ", second[i]);
  });
}

TEST_CASE("what no later step trains is freed", "[grads]") {
  for (const auto& [name, make] : kStores) {
    INFO(name);
    in_stores(2, [&, &make = make](CommRank& transport) {
      StoreRank rank(transport, false);
      const auto store = make(rank);
      store->materialize(*rank.host);
      const uint64_t before = rank.bytes(DDH_TAG_GRAD);
      store->free(rank.space_of(0));  // tied: a buffer of its own in the ring too
      const uint64_t freed = before - rank.bytes(DDH_TAG_GRAD);
      expect(freed >= rank.layout.spaces[rank.space_of(0)].grad_bytes(), "freed ", freed, " bytes");
    });
  }
}
