// SPDX-License-Identifier: Apache-2.0
//
// How parameters are stored: on every rank by itself, published to all, or gathered while a unit uses them.
#include "ddh/sdk/params/param_store.hpp"

#include "unit/sdk/store_fixture.hpp"

using namespace ddhost::test;

namespace {

// The value of an element after each rank has written its part of a space.
float value_of(size_t space, uint64_t element) { return static_cast<float>(1000 * (space + 1) + element); }

// Each rank writes the part that it updates.
void write_all(StoreRank& rank, ddh::ParamStore& store) {
  for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
    const ddh::FlatSpace& space = rank.layout.spaces[s];
    const uint64_t first = space.cut.segment_offset[static_cast<size_t>(rank.rank)];
    store.write(s, [&](void* values) {
      for (uint64_t i = 0; i < space.segment_numel(rank.rank); ++i)
        static_cast<float*>(values)[i] = value_of(s, first + i);
    });
  }
}

void expect_whole(const StoreRank& rank, const ddh::ParamStore& store, const ddh_unit_use& use) {
  for (const size_t s : rank.layout.unit_uses[static_cast<size_t>(use.unit)]) {
    const auto* const view = static_cast<const float*>(store.view(s));
    expect(view != nullptr, "no view of space ", s);
    for (uint64_t i = 0; i < rank.layout.spaces[s].numel; ++i)
      expect(view[i] == value_of(s, i), "space ", s, ", element ", i, " is ", view[i]);
  }
}

// Opens and closes what the units of a step use, in the order of the host.
void run_step(const StoreRank& rank, ddh::ParamStore& store) {
  ddh::run_uses(rank.layout.programs.front(), 1, [&](const ddh_unit_use& use) {
    store.open(use);
    expect_whole(rank, store, use);
    store.close(use);
  });
}

// No limits: null in the options of a user.
FakeOptions prefetch_options(int64_t units) {
  return {{"strategy.prefetch_units", units},
          {"strategy.prefetch_bytes", std::string("null")},
          {"strategy.max_live_bytes", std::string("null")},
          {"strategy.reuse_bytes", int64_t{0}},
          {"strategy.persistence_bytes", int64_t{0}}};
}

}  // namespace

TEST_CASE("published parameters: each rank's view has the segments of all ranks", "[params]") {
  const int world = GENERATE(1, 3);
  const bool copies = GENERATE(false, true), waits_at_step = GENERATE(false, true);
  in_stores(world, [&](CommRank& transport) {
    StoreRank rank(transport, copies);
    ddh::PublishedParams store(*rank.host, rank.layout, rank.args, waits_at_step);
    const uint64_t planned = store.bytes();
    store.materialize();
    write_all(rank, store);
    store.step_done();
    run_step(rank, store);
    expect(rank.peak_bytes(DDH_TAG_PARAM) == planned, "planned ", planned, ", took ", rank.peak_bytes(DDH_TAG_PARAM));
  });
}

TEST_CASE("a second publish replaces the first on all ranks", "[params]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    ddh::PublishedParams store(*rank.host, rank.layout, rank.args, false);
    store.materialize();
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) store.write(s, [](void*) {});  // zeros
    ddh::run_uses(rank.layout.programs.front(), 1, [&](const ddh_unit_use& use) {
      store.open(use);
      const size_t s = rank.layout.unit_uses[static_cast<size_t>(use.unit)].front();
      expect(static_cast<const float*>(store.view(s))[0] == 0, "values that nobody wrote");
      store.close(use);
    });
    write_all(rank, store);
    run_step(rank, store);
  });
}

TEST_CASE("replicated parameters: a rank writes everything, and no other rank sees it", "[params]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    ddh::ReplicatedParams store(*rank.host, rank.layout, rank.args);
    const uint64_t planned = store.bytes();
    store.materialize();
    expect(store.publish_calls() == 0, "replicas are not published");
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      expect(store.window(s) == nullptr, "replicas have no window");
      store.write(s, [&](void* values) {
        std::fill_n(static_cast<float*>(values), rank.layout.spaces[s].numel, static_cast<float>(rank.rank + 1));
      });
    }
    transport.barrier();
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      const auto* const view = static_cast<const float*>(store.view(s));
      for (uint64_t i = 0; i < rank.layout.spaces[s].numel; ++i)
        expect(view[i] == static_cast<float>(rank.rank + 1), "another rank wrote here");
    }
    expect(rank.bytes(DDH_TAG_PARAM) == planned, "planned ", planned, ", took ", rank.bytes(DDH_TAG_PARAM));
  });
}

TEST_CASE("gathered parameters are whole while a unit uses them, and the planned bytes are the peak", "[params]") {
  const int world = GENERATE(1, 2, 3);
  const bool copies = GENERATE(false, true);
  const int64_t prefetched = GENERATE(0, 1);
  in_stores(world, [&](CommRank& transport) {
    StoreRank rank(transport, copies);
    FakeHost options(prefetch_options(prefetched));
    const ddh::Host option_host(options.get());
    const ddh::PrefetchPolicy policy(ddh::SectionOptions(option_host, "strategy"));
    ddh::PrefetchedParams store(*rank.host, rank.layout, rank.args, policy);
    const uint64_t planned = store.bytes();
    store.materialize();
    write_all(rank, store);
    for (int step = 0; step < 2; ++step) run_step(rank, store);
    expect(rank.peak_bytes(DDH_TAG_PARAM) == planned, "planned ", planned, ", took ", rank.peak_bytes(DDH_TAG_PARAM));
  });
}

TEST_CASE("what is published in a step is each space that the program trains", "[params]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    uint64_t trained = 0;
    for (const ddh::FlatSpace& space : rank.layout.spaces) trained += space.trained() ? 1 : 0;
    expect(trained + 1 == rank.layout.spaces.size(), "the frozen parameter has a space of its own");
    ddh::PublishedParams store(*rank.host, rank.layout, rank.args, false);
    expect(store.publish_calls() == trained, "publish calls: ", store.publish_calls());
  });
}
