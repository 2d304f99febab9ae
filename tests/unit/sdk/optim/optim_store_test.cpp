// SPDX-License-Identifier: Apache-2.0
//
// Optimizer state in memory (ResidentOptim): its bytes, initial values, updates, and the entries of a checkpoint.
#include "ddh/sdk/optim/optim_store.hpp"

#include "ddh/sdk/grads/full_grads.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/sdk/store_fixture.hpp"

using namespace ddhost::test;

namespace {

// A rank with published parameters, full gradients, and the state of its segments.
struct Stores {
  Stores(const CommRank& transport, int32_t dtype)
      : rank(transport, false, dtype),
        params(*rank.host, rank.layout, rank.args, false),
        grads(rank.layout, rank.args, 0),
        optim(ddh::segment_optim(*rank.host, rank.layout, rank.args)) {
    params.materialize();
    grads.materialize(*rank.host);
    optim->materialize();
    optim->init(params);
  }
  // A step whose gradients have this value on each rank, in one unit; the others have none.
  void step(int32_t unit, float grad) {
    for (const size_t s : rank.layout.trained_spaces(unit, 0)) {
      std::fill_n(grads.writable(s), rank.layout.spaces[s].numel, grad);
      grads.ready(s, true);
    }
    grads.reduce_all();
    optim->prepare({}, params, grads);
    optim->update({}, params, grads);
    grads.step_done();
  }
  [[nodiscard]] std::vector<ddh_state_entry> entries() {
    std::vector<ddh_state_entry> out;
    optim->append_state(out, params);
    return out;
  }
  // Element i of the whole parameter in the view of its space.
  float value(size_t param, uint64_t i) {
    const auto [s, offset] = rank.layout.place[param];
    const auto* const base = static_cast<const char*>(params.values(s));
    const uint64_t first = rank.layout.spaces[s].cut.segment_offset[static_cast<size_t>(rank.rank)];
    if (rank.layout.spaces[s].dtype == DDH_F32) return reinterpret_cast<const float*>(base)[offset + i - first];
    float out = 0;  // bf16: the upper half of the float
    std::memcpy(reinterpret_cast<char*>(&out) + 2, base + 2 * (offset + i - first), 2);
    return out;
  }

  StoreRank rank;
  ddh::PublishedParams params;
  ddh::FullGrads grads;
  std::unique_ptr<ddh::OptimStore> optim;
};

}  // namespace

TEST_CASE("the planned bytes of optimizer state are those that are allocated", "[optim]") {
  const int world = GENERATE(1, 3);
  const int32_t dtype = GENERATE(DDH_F32, DDH_BF16);
  in_stores(world, [&](CommRank& transport) {
    const Stores stores(transport, dtype);
    const StoreRank& rank = stores.rank;
    expect(rank.bytes(DDH_TAG_OPTIM) == stores.optim->bytes(), "planned ", stores.optim->bytes(), ", took ",
           rank.bytes(DDH_TAG_OPTIM));
    // Slot 0 of all that is trained, slot 1 where a parameter of the space uses it, and masters of low precision.
    uint64_t expected = 0;
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      const ddh::FlatSpace& space = rank.layout.spaces[s];
      if (!space.trained()) continue;
      const uint64_t arrays = 1 + (s == rank.space_of(1) ? 1 : 0) + (dtype == DDH_F32 ? 0 : 1);
      expected += arrays * 4 * space.segment_numel(rank.rank);
    }
    expect(stores.optim->bytes() == expected, stores.optim->bytes(), " bytes instead of ", expected);
    expect(stores.optim->file_bytes() == 0, "state in memory has no files");
  });
}

TEST_CASE("a whole part has the state of all elements on every rank, and says that it is a replica", "[optim]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, false);
    const auto whole = ddh::whole_optim(*rank.host, rank.layout, rank.args);
    const auto segment = ddh::segment_optim(*rank.host, rank.layout, rank.args);
    expect(whole->bytes() > segment->bytes(), "a whole part has ", whole->bytes(), " bytes, a segment ",
           segment->bytes());
    ddh::ReplicatedParams params(*rank.host, rank.layout, rank.args);
    params.materialize();
    whole->materialize();
    std::vector<ddh_state_entry> entries;
    whole->append_state(entries, params);
    for (const ddh_state_entry& entry : entries)
      expect(entry.replica_index == rank.rank && entry.replica_count == 2, "replica ", entry.replica_index, " of ",
             entry.replica_count);
  });
}

TEST_CASE("an update changes what has a gradient, and nothing else", "[optim]") {
  const int32_t dtype = GENERATE(DDH_F32, DDH_BF16);
  in_stores(1, [&](CommRank& transport) {
    Stores stores(transport, dtype);
    for (const uint64_t i : {0, 64, 129})
      expect(stores.value(1, i) == initial_value(1, i), "initial value ", stores.value(1, i));
    expect(stores.value(3, 2) == initial_value(3, 2), "initial value of a frozen parameter");
    stores.step(1, 2);  // the second unit
    expect(stores.value(2, 199) == initial_value(2, 199) - 2, "value ", stores.value(2, 199), " after an update");
    expect(stores.value(3, 2) == initial_value(3, 2), "a frozen parameter was updated");
    expect(stores.value(1, 64) == initial_value(1, 64), "a parameter without gradient was updated");
    expect(stores.rank.replica_counts == std::vector<int32_t>{1}, "prepare is called once, for what has a gradient");
  });
}

TEST_CASE("the entries of all ranks have each element once: values or masters, and slots in use", "[optim]") {
  const int world = GENERATE(1, 2, 3);
  const int32_t dtype = GENERATE(DDH_F32, DDH_BF16);
  using Key = std::tuple<int32_t, int32_t, int32_t>;  // parameter, kind, slot
  std::mutex mutex;
  std::map<Key, uint64_t> numel;
  in_stores(world, [&](CommRank& transport) {
    Stores stores(transport, dtype);
    stores.step(1, 2);
    for (const ddh_state_entry& entry : stores.entries()) {
      const bool is_trained = entry.param != 3;
      expect(entry.replica_count == 1, "segments have no replicas");
      expect(entry.dtype == (is_trained ? DDH_F32 : dtype), "dtype ", entry.dtype, " of parameter ", entry.param);
      if (is_trained) {
        const float change = entry.param == 2 ? static_cast<float>(2 * world) : 0;
        const float expected = entry.kind == DDH_STATE_PARAM ? initial_value(entry.param, entry.offset) - change
                               : entry.slot == 0             ? change
                                                             : 0;
        const float got = static_cast<const float*>(entry.data)[0];
        expect(got == expected, "parameter ", entry.param, ", kind ", entry.kind, ": ", got, " instead of ", expected);
      }
      const std::lock_guard lock(mutex);
      numel[{entry.param, entry.kind, entry.slot}] += entry.numel;
    }
  });
  const std::map<Key, uint64_t> expected = {
      {{0, DDH_STATE_PARAM, 0}, 35}, {{1, DDH_STATE_PARAM, 0}, 130}, {{2, DDH_STATE_PARAM, 0}, 200},
      {{3, DDH_STATE_PARAM, 0}, 3},  {{4, DDH_STATE_PARAM, 0}, 50},  {{0, DDH_STATE_SLOT, 0}, 35},
      {{1, DDH_STATE_SLOT, 0}, 130}, {{2, DDH_STATE_SLOT, 0}, 200},  {{4, DDH_STATE_SLOT, 0}, 50},
      {{0, DDH_STATE_SLOT, 1}, 35},  {{1, DDH_STATE_SLOT, 1}, 130}};  // the parameters of the space share its slots
  CHECK(numel == expected);
}

TEST_CASE("after a load of masters, refresh gives the values of views", "[optim]") {
  in_stores(2, [&](CommRank& transport) {
    Stores stores(transport, DDH_BF16);
    for (const ddh_state_entry& entry : stores.entries())
      if (entry.param == 2 && entry.kind == DDH_STATE_PARAM)
        std::fill_n(static_cast<float*>(entry.data), entry.numel, 48.0F);
    stores.optim->refresh(stores.params);
    const size_t wide = stores.rank.space_of(2);
    ddh_unit_use use{};
    use.unit = 1;
    stores.params.open(use);
    const auto* const view = static_cast<const uint16_t*>(stores.params.view(wide));
    for (uint64_t i = 0; i < 200; ++i) expect(view[i] == 0x4240, "element ", i, " is not 48 in bf16: ", view[i]);
    stores.params.close(use);
  });
}

TEST_CASE("a slot that no parameter of the space uses any more is freed, and is no entry", "[optim]") {
  in_stores(2, [&](CommRank& transport) {
    Stores stores(transport, DDH_F32);
    const uint64_t before = stores.rank.bytes(DDH_TAG_OPTIM);
    stores.optim->free_unused();
    expect(stores.rank.bytes(DDH_TAG_OPTIM) == before, "a slot in use was freed");
    stores.rank.second_slot.clear();
    stores.optim->free_unused();
    const ddh::FlatSpace& space = stores.rank.layout.spaces[stores.rank.space_of(1)];
    expect(before - stores.rank.bytes(DDH_TAG_OPTIM) == 4 * space.segment_numel(stores.rank.rank), "freed ",
           before - stores.rank.bytes(DDH_TAG_OPTIM));
    for (const ddh_state_entry& entry : stores.entries())
      expect(entry.kind == DDH_STATE_PARAM || entry.slot == 0, "an entry of a freed slot");
  });
}

TEST_CASE("state in memory is not read by the calls for files", "[optim]") {
  in_stores(1, [&](CommRank& transport) {
    Stores stores(transport, DDH_F32);
    float value = 0;
    for (const Failure& failure : {failure_of([&] { stores.optim->state_read(0, 0, 1, &value); }),
                                   failure_of([&] { stores.optim->state_write(0, 0, 1, &value); })})
      expect(failure.code == DDH_INVALID_ARGUMENT && failure.names("has a pointer"), "it said: ", failure.sentence);
  });
}
