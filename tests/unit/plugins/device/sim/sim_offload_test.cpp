// SPDX-License-Identifier: Apache-2.0
//
// Offloading on the device sim: the tier in pinned memory and the pipeline over its tiles order all that they do. Beside
// the right way stands each mistake that such code could make; sim must find it by name, however long the delays are.
#include <catch2/catch.hpp>

#include "ddh/sdk/tier/memory_tier.hpp"
#include "ddh/sdk/tier/tile_pipeline.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/plugins/device/sim/sim_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr uint64_t kTileBytes = 4096, kTileNumel = kTileBytes / 4, kTiles = 5;

// The tables of a sim device as a plugin's host shows them.
class SimHost {
 public:
  explicit SimHost(SimDevice& device) : device_(device) {
    raw_ = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, device.context,
            [](void* h, const char* id) noexcept -> const void* { return table_of(h, id); }};
    tables() = {device.table, {sizeof(ddh_alloc_api), 0, allocate, release, nullptr}};
    host = std::make_unique<ddh::Host>(&raw_);
  }
  SimHost(const SimHost&) = delete;
  SimHost& operator=(const SimHost&) = delete;
  SimDevice& device() { return device_; }
  std::unique_ptr<ddh::Host> host;

 private:
  struct Tables {
    const ddh_device_api* device;
    ddh_alloc_api alloc;
  };
  static Tables& tables() {
    static Tables current{};
    return current;
  }
  static const void* table_of(void*, std::string_view id) noexcept {
    if (id == DDH_ALLOC_IFACE) return &tables().alloc;
    if (id == DDH_STREAM_IFACE) return tables().device->stream;
    if (id == DDH_COPY_IFACE) return tables().device->copy;
    return id == DDH_FLATOPS_IFACE ? tables().device->flatops : nullptr;
  }
  static ddh_rc allocate(void* h, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
    return tables().device->allocate(h, args, out, err);
  }
  static void release(void* h, void* p) noexcept { tables().device->release(h, p, DDH_MEM_DEVICE); }

  SimDevice& device_;
  ddh_host raw_{};
};

// A memory tier that makes one mistake.
enum class Mistake { none, no_wait_after_read, no_wait_after_write };
class CarelessTier final : public ddh::Tier {
 public:
  CarelessTier(const ddh::Host& host, Mistake mistake) : Tier(kTileBytes), tier_(host, kTileBytes), mistake_(mistake) {}
  size_t add_cut(const std::string& name, int32_t tag, uint64_t bytes, uint64_t tile_bytes) override {
    return tier_.add_cut(name, tag, bytes, tile_bytes);
  }
  void reserve() override { tier_.reserve(); }
  Handle begin_read(size_t tensor, uint64_t tile, void* buffer) override {
    const Handle handle = tier_.begin_read(tensor, tile, buffer);
    return mistake_ == Mistake::no_wait_after_read ? kDone : handle;
  }
  Handle begin_write(size_t tensor, uint64_t tile, const void* buffer) override {
    const Handle handle = tier_.begin_write(tensor, tile, buffer);
    return mistake_ == Mistake::no_wait_after_write ? kDone : handle;
  }
  void wait(Handle handle) override { tier_.wait(handle); }
  [[nodiscard]] Traffic traffic() const override { return tier_.traffic(); }
  float* memory(size_t tensor) override { return tier_.memory(tensor); }

 private:
  ddh::MemoryTier tier_;
  const Mistake mistake_;
};

// Adds 1 to every element of a tensor on the tier, twice, with this many frames.
void add_twice(SimHost& sim, ddh::Tier& tier, uint32_t n_frames) {
  const ddh::Host& host = *sim.host;
  const ddh::Buffer ones(host, DDH_TAG_OPTIM, kTileBytes, "ones");
  sim.device().fill(ones.f32(), kTileNumel, 1, nullptr);
  ddh::TileFrames frames(n_frames, 1, kTileBytes);
  frames.materialize(host, DDH_TAG_OPTIM, DDH_MEM_DEVICE);
  // What a mistake has left under way ends before the frames go.
  struct AtEnd {
    ~AtEnd() {
      tier.memory(0);
      ddh::ErrorBuffer ignored;
      host.stream->synchronize(host.h, nullptr, ignored.get());
    }
    ddh::Tier& tier;
    const ddh::Host& host;
  };
  const AtEnd end{tier, host};
  for (int round = 0; round < 2; ++round) {
    ddh::run_tiles(
        frames, kTiles,
        [&](size_t i) {
          return std::vector<ddh::TilePart>{{&tier, 0, i, nullptr}};
        },
        [&](size_t, const std::vector<float*>& memory) {
          sim.device().add(memory[0], ones.f32(), kTileNumel, nullptr);
        });
  }
}

std::string mistake_found(Mistake mistake, uint32_t n_frames) {
  SimDevice device(any_delay(11));
  SimHost sim(device);
  CarelessTier tier(*sim.host, mistake);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTiles * kTileBytes);
  tier.reserve();
  return sentence_of([&] { add_twice(sim, tier, n_frames); });
}

}  // namespace

TEST_CASE("the pipeline over tiles in pinned memory orders reads, work and writes", "[sim]") {
  const uint32_t n_frames = GENERATE(1U, 2U, 3U, 5U);
  SimDevice device(any_delay(11));
  SimHost sim(device);
  CarelessTier tier(*sim.host, Mistake::none);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTiles * kTileBytes);
  tier.reserve();
  add_twice(sim, tier, n_frames);
  const float* const all = tier.memory(0);
  device.touch(all, kTiles * kTileNumel, "the test");
  CHECK(std::all_of(all, all + kTiles * kTileNumel, [](float x) { return x == 2; }));
}

TEST_CASE("mistake: a tile is updated before the event of its read", "[sim]") {
  CHECK_THAT(mistake_found(Mistake::no_wait_after_read, GENERATE(1U, 3U)),
             Contains("'add' on stream 'default'") && Contains("frames of the offload pipeline") &&
                 Contains("of stream 'offload') writes"));
}

TEST_CASE("mistake: a frame is read into, and worked on, without the event of its write", "[sim]") {
  // The tier's own stream orders its transfers; the work on the default stream is what hits the write under way.
  SimDevice device(any_delay(11));
  SimHost sim(device);
  CarelessTier tier(*sim.host, Mistake::no_wait_after_write);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTileBytes);
  tier.reserve();
  ddh::Buffer frame(*sim.host, DDH_TAG_OPTIM, kTileBytes, "a frame");
  tier.wait(tier.begin_write(0, 0, frame.data()));
  CHECK_THAT(sentence_of([&] { device.fill(frame.f32(), kTileNumel, 1, nullptr); }),
             Contains("'fill' on stream 'default' writes 'a frame'") && Contains("of stream 'offload') reads"));
  tier.memory(0);
}

TEST_CASE("mistake: pinned state is read by the host while the tier still writes it", "[sim]") {
  SimDevice device(any_delay(11));
  SimHost sim(device);
  ddh::MemoryTier tier(*sim.host, kTileBytes);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTileBytes);
  tier.reserve();
  ddh::Buffer frame(*sim.host, DDH_TAG_OPTIM, kTileBytes, "a frame");
  const float* const state = tier.memory(0);
  tier.wait(tier.begin_write(0, 0, frame.data()));
  CHECK_THAT(sentence_of([&] { device.touch(state, kTileNumel, "export"); }),
             Contains("'export' of the caller reads 'exp_avg of h.3'") && Contains("synchronize"));
  device.touch(tier.memory(0), kTileNumel, "export");
}

TEST_CASE("mistake: a frame is released while a tile is still on its way into it", "[sim]") {
  SimDevice device(any_delay(11));
  SimHost sim(device);
  ddh::MemoryTier tier(*sim.host, kTileBytes);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTileBytes);
  tier.reserve();
  {
    const ddh::Buffer frame(*sim.host, DDH_TAG_OPTIM, kTileBytes, "a frame");
    tier.begin_read(0, 0, frame.data());
  }
  CHECK_THAT(sentence_of([&] { device.synchronize(nullptr); }),
             Contains("'a frame' is released while 'copy'") && Contains("of stream 'offload') may still use it"));
}

TEST_CASE("mistake: a tile is written out of a frame that was released", "[sim]") {
  SimDevice device(any_delay(11));
  SimHost sim(device);
  ddh::MemoryTier tier(*sim.host, kTileBytes);
  tier.add("exp_avg of h.3", DDH_TAG_OPTIM, kTileBytes);
  tier.reserve();
  const void* gone = nullptr;
  {
    const ddh::Buffer frame(*sim.host, DDH_TAG_OPTIM, kTileBytes, "a frame");
    gone = frame.data();
  }
  CHECK_THAT(sentence_of([&] { tier.begin_write(0, 0, gone); }), Contains("uses 'a frame', which was released"));
}
