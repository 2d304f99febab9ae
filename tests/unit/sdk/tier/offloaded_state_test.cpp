// SPDX-License-Identifier: Apache-2.0
//
// Masters and slots in files: entries and fetches return the optimizer's results. A load into an entry is kept and
// changes no other data.
#include "ddh/sdk/tier/offloaded_state.hpp"

#include <catch2/catch.hpp>

#include "ddh/sdk/kernels/lowp.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/sdk/tier/tier_fixture.hpp"

using namespace ddhost::test;

namespace {

// An optimizer with two slots that adds the gradient to the master, 1 to the first slot and 2 to the second.
struct CountingHost {
  CountingHost() {
    host = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, [](void*, const char* id) noexcept -> const void* {
              const std::string_view name = id;
              if (name == DDH_ALLOC_IFACE) return &alloc();
              if (name == DDH_OPTIM_IFACE) return &optim();
              if (name == DDH_FLATOPS_IFACE) return &flatops();
              return name == DDH_PARAMS_IFACE ? &params() : nullptr;
            }};
  }
  static const ddh_alloc_api& alloc() {
    static const ddh_alloc_api table = {sizeof(ddh_alloc_api), 0,
                                        [](void*, const ddh_alloc_args* args, void** out, ddh_err*) noexcept -> ddh_rc {
                                          *out = std::calloc(args->bytes + 1, 1);
                                          return DDH_OK;
                                        },
                                        [](void*, void* p) noexcept { std::free(p); }, nullptr};
    return table;
  }
  static const ddh_params_api& params() {
    static const ddh_params_api table = {
        sizeof(ddh_params_api), 0,
        [](void*, int32_t, uint64_t offset, uint64_t numel, float* dst, ddh_err*) noexcept -> ddh_rc {
          for (uint64_t i = 0; i < numel; ++i) dst[i] = static_cast<float>(offset + i);
          return DDH_OK;
        }};
    return table;
  }
  // fp32 to bf16, and zeros of bf16: what tiles of a low precision ask for.
  static const ddh_flatops_api& flatops() {
    static const ddh_flatops_api table = [] {
      ddh_flatops_api t{};
      t.struct_size = sizeof t;
      t.fill = [](void*, void* dst, int32_t, uint64_t numel, double, ddh_stream*, ddh_err*) noexcept -> ddh_rc {
        std::fill_n(static_cast<uint16_t*>(dst), numel, uint16_t{0});
        return DDH_OK;
      };
      t.cast = [](void*, void* dst, int32_t, const void* src, int32_t, uint64_t numel, ddh_stream*,
                  ddh_err*) noexcept -> ddh_rc {
        for (uint64_t i = 0; i < numel; ++i)
          static_cast<uint16_t*>(dst)[i] = ddh::Bf16::from_f32(static_cast<const float*>(src)[i]);
        return DDH_OK;
      };
      return t;
    }();
    return table;
  }
  static ddh_rc update(void*, const ddh_optim_shard* shard, ddh_stream*, ddh_err*) noexcept {
    for (uint32_t r = 0; r < shard->n_ranges; ++r) {
      const ddh_range& range = shard->ranges[r];
      for (uint64_t i = range.flat_offset; i < range.flat_offset + range.numel; ++i) {
        shard->master[i] += shard->grads[0][i];
        if (shard->lowp != nullptr) static_cast<uint16_t*>(shard->lowp)[i] = ddh::Bf16::from_f32(shard->master[i]);
        for (uint32_t s = 0; s < 2; ++s) static_cast<float*>(shard->slots[s])[i] += static_cast<float>(s + 1);
      }
    }
    return DDH_OK;
  }
  static const ddh_optim_api& optim() {
    static const ddh_optim_api table = [] {
      ddh_optim_api t{};
      t.struct_size = sizeof t;
      t.slot_count = [](void*) noexcept -> uint32_t { return 2; };
      t.slot = [](void*, uint32_t, ddh_slot_desc* out, ddh_err*) noexcept -> ddh_rc {
        *out = {sizeof(ddh_slot_desc), DDH_F32, "slot", DDH_SLOT_PER_ELEMENT, 0};
        return DDH_OK;
      };
      t.update = update;
      t.slot_used = [](void*, uint32_t, int32_t) noexcept -> int32_t { return 1; };
      return t;
    }();
    return table;
  }
  ddh_host host{};
};

constexpr uint64_t kNumel = 5000;  // five tiles of 1024 elements, and padding at the end

ddh::ModelLayout one_space(int32_t dtype) {
  ddh::FlatSpace space;
  space.dtype = dtype;
  space.trained_by = 1;
  space.name = "h.0";
  space.params = {{0, 0, kNumel}};
  space.numel = ddh::round_up_to_grid(kNumel);
  space.cut = ddh::Cut(space.numel, 1);
  ddh::ModelLayout layout;
  layout.spaces = {space};
  return layout;
}

struct Fixture {
  explicit Fixture(double ratio, int32_t dtype = DDH_F32)
      : layout(one_space(dtype)), state(h, layout, 0, settings(ratio)) {
    state.materialize();
    state.init([](size_t) { return nullptr; });
    const std::vector<float> grads(layout.spaces[0].numel, 0.5F);
    for (int step = 0; step < 2; ++step)
      state.update([](size_t) { return nullptr; }, [&](size_t) { return grads.data(); });
    state.append_state_entries(entries, 0, nullptr);
  }
  [[nodiscard]] ddh::OffloadSettings settings(double ratio) const {
    ddh::OffloadSettings out;
    out.values = out.state = ddh::Place::nvme;
    out.ratio = ratio;
    out.tile_bytes = 4096;
    out.frames = 2;
    out.memory_bytes = 1 << 20;
    out.folder = folder.path().string();
    out.folder_option = "strategy.nvme_path";
    out.io = "pread";
    return out;
  }
  std::vector<float> values(uint32_t entry, uint64_t offset, uint64_t numel) {
    std::vector<float> out(numel);
    const ddh_state_entry& e = entries[entry];
    if (e.data != nullptr)
      std::copy_n(static_cast<const float*>(e.data) + offset, numel, out.begin());
    else
      state.copy_entry(entry, offset, numel, out.data(), nullptr);
    return out;
  }
  CountingHost counting;
  TempFolder folder;
  const ddh::Host h{&counting.host};
  const ddh::ModelLayout layout;
  ddh::OffloadedState state;
  std::vector<ddh_state_entry> entries;
};

}  // namespace

TEST_CASE("state entries in files cover every element once and have the optimizer's values") {
  for (const double ratio : {1.0, 0.5, 0.0}) {
    Fixture f(ratio);
    uint64_t on_files = 0, covered = 0;
    for (uint32_t i = 0; i < f.entries.size(); ++i) {
      const ddh_state_entry& e = f.entries[i];
      covered += e.numel;
      if (e.memory == DDH_MEM_FILE) on_files += e.numel;
      const std::vector<float> got = f.values(i, 0, e.numel);
      uint64_t right = 0;
      for (uint64_t k = 0; k < e.numel; ++k) {
        const double want = e.kind == DDH_STATE_PARAM ? static_cast<double>(e.offset + k) + 1.0
                                                      : 2.0 * (static_cast<double>(e.slot) + 1);
        right += got[k] == static_cast<float>(want) ? 1 : 0;
      }
      CHECK(right == e.numel);
    }
    CHECK(covered == 3 * kNumel);
    const uint64_t away = ratio == 1.0 ? kNumel : ratio == 0.5 ? 3 * 1024 : 0;  // whole tiles
    CHECK(on_files == kNumel + 2 * away);
  }
}

TEST_CASE("frames take at most the memory that is given, or what they serve: tiles get smaller, then frames fewer") {
  const CountingHost counting;
  const ddh::Host h{&counting.host};
  ddh::ModelLayout layout = one_space(DDH_F32);
  const uint64_t served = 2 * layout.spaces[0].numel * sizeof(float);
  const auto planned = [&](std::optional<int64_t> most, double ratio = 1.0) {
    ddh::OffloadSettings how;
    how.ratio = ratio;
    how.state = ddh::Place::nvme;
    how.tile_bytes = 1 << 20;
    how.frames = 3;
    how.memory_bytes = most;
    how.memory_option = "strategy.offload_memory_bytes";
    return ddh::TilePlan(h, layout, 0, how);
  };
  struct Case {
    std::optional<int64_t> most;
    uint64_t tile_bytes, frames;
  };
  constexpr uint64_t kTile = 4096, kWhole = 5 * kTile;
  for (const auto& [most, tile_bytes, frames] :
       {Case{std::nullopt, kTile, 3}, Case{7 * kTile, kTile, 3}, Case{7 * kTile - 1, kTile, 2},
        Case{3 * kTile, kTile, 1}, Case{13 * kTile, 2 * kTile, 3}, Case{1 << 30, kWhole, 1}}) {
    INFO(most.value_or(-1));
    const ddh::TilePlan plan = planned(most);
    CHECK(plan.tile_bytes == tile_bytes);
    CHECK(plan.frames == frames);
    CHECK(plan.frames * 2 * plan.tile_bytes + kTile <= (most ? static_cast<uint64_t>(*most) : served));
  }
  CHECK(planned(std::nullopt, 0.0).tile_bytes == kWhole);  // nothing is served, and the state that stays has tiles
  CHECK(sentence_of([&] { planned(3 * kTile - 1); }) ==
        "strategy.offload_memory_bytes is 12287, but one tile of 4096 bytes for each of 2 arrays needs 12288; give at "
        "least that, or null");
  // Of whole parameters a tile is a segment, so there may be fewer frames. Three would take what their alignment needs more
  // than they serve.
  layout.spaces = {layout.spaces[0], layout.spaces[0], layout.spaces[0]};
  for (ddh::FlatSpace& space : layout.spaces) space.whole = true;
  CHECK(planned(std::nullopt).frames == 2);
  CHECK(planned(5 * 2 * 2 * kTile + kTile).frames == 2);
}

TEST_CASE("values written to an entry in a file stay, across tiles, and its neighbours don't change") {
  Fixture f(1.0);
  const std::vector<float> before = f.values(0, 0, kNumel);
  const std::vector<float> mine(2100, -7.0F);
  f.state.copy_entry(0, 1000, mine.size(), nullptr, mine.data());
  std::vector<float> expected = before;
  std::copy(mine.begin(), mine.end(), expected.begin() + 1000);
  CHECK((f.values(0, 0, kNumel) == expected));
  CHECK((f.values(0, 999, 3) == std::vector<float>{before[999], -7, -7}));

  const TileBuffer segment(f.layout.spaces[0].numel * 4 + 4096);
  f.state.begin_fetch(0, segment.data());
  f.state.finish_fetch(0);
  CHECK(std::memcmp(segment.data(), expected.data(), kNumel * 4) == 0);
  CHECK(sentence_of([&] { f.state.copy_entry(99, 0, 1, segment.data(), nullptr); }) ==
        "state entry 99 has a pointer; use it");
}

TEST_CASE("in a low precision the entries are fp32 masters, and values follow a load of them, padding stays zero") {
  for (const double ratio : {1.0, 0.5, 0.0}) {
    INFO("ratio " << ratio);
    Fixture f(ratio, DDH_BF16);
    TileBuffer segment(f.layout.spaces[0].numel * 2 + 4096);
    const auto wrong_values = [&](const auto& expected) {
      segment.fill(0x5A);
      f.state.begin_fetch(0, segment.data());
      f.state.finish_fetch(0);
      const auto* const got = reinterpret_cast<const uint16_t*>(segment.data());
      uint64_t wrong = 0;
      for (uint64_t i = 0; i < kNumel; ++i) wrong += got[i] == ddh::Bf16::from_f32(expected(i)) ? 0 : 1;
      for (uint64_t i = kNumel; i < f.layout.spaces[0].numel; ++i) wrong += got[i] == 0 ? 0 : 1;
      return wrong;
    };
    CHECK(wrong_values([](uint64_t i) { return static_cast<float>(i) + 1.0F; }) == 0);

    uint64_t masters = 0;
    for (uint32_t i = 0; i < f.entries.size(); ++i) {
      const ddh_state_entry& e = f.entries[i];
      if (e.kind != DDH_STATE_PARAM) continue;
      CHECK(e.dtype == DDH_F32);
      CHECK(f.values(i, 3, 1)[0] == static_cast<float>(e.offset + 3) + 1.0F);
      masters += e.numel;
      const std::vector<float> loaded(e.numel, -7.125F);
      if (e.data != nullptr)
        std::copy(loaded.begin(), loaded.end(), static_cast<float*>(e.data));
      else
        f.state.copy_entry(i, 0, e.numel, nullptr, loaded.data());
    }
    CHECK(masters == kNumel);
    f.state.refresh([](size_t) { return nullptr; });
    CHECK(wrong_values([](uint64_t) { return -7.125F; }) == 0);
  }
}
