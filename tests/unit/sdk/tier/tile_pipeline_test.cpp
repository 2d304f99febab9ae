// SPDX-License-Identifier: Apache-2.0
//
// The pipeline over tiles: reads, work and writes overlap, and every tile is worked on with what it held.
#include "ddh/sdk/tier/tile_pipeline.hpp"

#include <catch2/catch.hpp>
#include <deque>

#include "ddh/sdk/tier/memory_tier.hpp"
#include "unit/sdk/tier/tier_fixture.hpp"

using namespace ddhost::test;
using ddh::Tier;
using ddh::TileFrames;
using ddh::TilePart;

namespace {

// A host with memory, and with streams whose work is done as late as their events allow: a missing wait reads old data.
struct LazyHost {
  struct Copy {
    void* dst;
    const void* src;
    uint64_t bytes;
  };
  LazyHost();
  LazyHost(const LazyHost&) = delete;
  LazyHost& operator=(const LazyHost&) = delete;
  static LazyHost& self(void* h) { return *static_cast<LazyHost*>(h); }

  void do_until(uint64_t number) {
    while (done < number) {
      std::memcpy(queue.front().dst, queue.front().src, queue.front().bytes);
      queue.pop_front();
      ++done;
    }
  }

  ddh_host host{};
  std::deque<Copy> queue;
  uint64_t done = 0;
};

constexpr ddh_alloc_api kAlloc = {sizeof(ddh_alloc_api), 0,
                                  [](void*, const ddh_alloc_args* args, void** out, ddh_err*) noexcept -> ddh_rc {
                                    *out = std::calloc(args->bytes + 1, 1);
                                    return DDH_OK;
                                  },
                                  [](void*, void* p) noexcept { std::free(p); }, nullptr};
constexpr ddh_copy_api kCopy = {sizeof(ddh_copy_api), 0,
                                [](void* h, void* dst, int32_t, const void* src, int32_t, uint64_t bytes,
                                   ddh_stream* stream, ddh_err*) noexcept -> ddh_rc {
                                  if (stream == nullptr)
                                    return DDH_INVALID_ARGUMENT;  // the tier has a stream of its own
                                  LazyHost::self(h).queue.push_back({dst, src, bytes});
                                  return DDH_OK;
                                }};
// Only the tier's stream has work; an event is the number of copies before it.
constexpr ddh_stream_api kStream = {
    sizeof(ddh_stream_api),
    0,
    [](void* h, const char*, ddh_stream** out, ddh_err*) noexcept -> ddh_rc {
      *out = static_cast<ddh_stream*>(h);
      return DDH_OK;
    },
    [](void*, ddh_stream*) noexcept {},
    [](void*, ddh_event** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_event*>(new uint64_t(0));
      return DDH_OK;
    },
    [](void*, ddh_event* event) noexcept { delete reinterpret_cast<uint64_t*>(event); },
    [](void* h, ddh_event* event, ddh_stream* stream, ddh_err*) noexcept -> ddh_rc {
      LazyHost& host = LazyHost::self(h);
      *reinterpret_cast<uint64_t*>(event) = stream == nullptr ? 0 : host.done + host.queue.size();
      return DDH_OK;
    },
    [](void* h, ddh_stream* stream, ddh_event* event, ddh_err*) noexcept -> ddh_rc {
      if (stream == nullptr) LazyHost::self(h).do_until(*reinterpret_cast<uint64_t*>(event));
      return DDH_OK;
    },
    [](void* h, ddh_stream*, ddh_err*) noexcept -> ddh_rc {
      LazyHost::self(h).do_until(LazyHost::self(h).done + LazyHost::self(h).queue.size());
      return DDH_OK;
    },
    nullptr,
    nullptr,
    nullptr,
    nullptr,  // no graphs
    nullptr,
    nullptr,
    nullptr};

LazyHost::LazyHost() {
  host = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, [](void*, const char* id) noexcept -> const void* {
            const std::string_view name = id;
            if (name == DDH_ALLOC_IFACE) return &kAlloc;
            if (name == DDH_COPY_IFACE) return &kCopy;
            return name == DDH_STREAM_IFACE ? &kStream : nullptr;
          }};
}

// A tier without data in a world where a transfer takes one tick of a clock that only waiting and working move. Reads and
// writes have a channel each.
class TickTier final : public Tier {
 public:
  TickTier() : Tier(4096) {}
  size_t add_cut(const std::string&, int32_t, uint64_t, uint64_t) override { return 0; }
  void reserve() override {}
  Handle begin_read(size_t, uint64_t, void*) override { return begin(read_free_at_); }
  Handle begin_write(size_t, uint64_t, const void*) override { return begin(write_free_at_); }
  void wait(Handle handle) override { now = std::max(now, ends_[handle - 1]); }
  [[nodiscard]] Traffic traffic() const override { return {}; }
  uint64_t now = 0;

 private:
  Handle begin(uint64_t& free_at) {
    free_at = std::max(free_at, now) + 1;
    ends_.push_back(free_at);
    return ends_.size();
  }
  uint64_t read_free_at_ = 0, write_free_at_ = 0;
  std::vector<uint64_t> ends_;
};

uint64_t ticks_of(uint32_t n_frames, size_t tiles, ddh::TileOverlap overlap = {}) {
  LazyHost host;
  const ddh::Host h(&host.host);
  TickTier tier;
  TileFrames frames(n_frames, 1, 4096, overlap);
  frames.materialize(h, DDH_TAG_OPTIM, DDH_MEM_PINNED);
  run_tiles(
      frames, tiles,
      [&](size_t i) {
        return std::vector<TilePart>{{&tier, 0, i, nullptr}};
      },
      [&](size_t, const std::vector<float*>&) { ++tier.now; });
  return tier.now;
}

// Adds i + t + 1 to every element of tensor t of tile i, twice, over tensors on `tiers` and a resident one.
void check_sums(const ddh::Host& h, const std::vector<Tier*>& tiers, uint32_t n_frames, size_t numel) {
  constexpr size_t kTileNumel = 1024;
  const size_t tiles = (numel + kTileNumel - 1) / kTileNumel;
  std::vector<size_t> tensors;
  for (Tier* tier : tiers) {
    tensors.push_back(tier->add("tensor", DDH_TAG_OPTIM, numel * 4));
    tier->reserve();
  }
  std::vector<float> resident(numel, 0.0F);
  TileFrames frames(n_frames, static_cast<uint32_t>(tiers.size()), 4096);
  frames.materialize(h, DDH_TAG_OPTIM, DDH_MEM_PINNED);
  const auto parts = [&](size_t i) {
    std::vector<TilePart> out;
    for (size_t t = 0; t < tiers.size(); ++t) out.push_back({tiers[t], tensors[t], i, nullptr});
    out.push_back({nullptr, 0, 0, &resident[i * kTileNumel]});
    return out;
  };
  const auto numel_of = [&](size_t i) { return std::min(kTileNumel, numel - i * kTileNumel); };
  for (int round = 0; round < 2; ++round) {
    run_tiles(frames, tiles, parts, [&](size_t i, const std::vector<float*>& memory) {
      for (size_t t = 0; t < memory.size(); ++t)
        for (size_t k = 0; k < numel_of(i); ++k) memory[t][k] += static_cast<float>(i + t + 1);
    });
  }
  size_t seen = 0;
  run_tiles(frames, tiles, parts, [&](size_t i, const std::vector<float*>& memory) {
    for (size_t t = 0; t < memory.size(); ++t)
      for (size_t k = 0; k < numel_of(i); ++k) seen += memory[t][k] == static_cast<float>(2 * (i + t + 1)) ? 1 : 0;
  });
  CHECK(seen == numel * (tiers.size() + 1));
}

}  // namespace

TEST_CASE("with three frames, reads, work and writes overlap; with one frame they run in turn") {
  for (const size_t tiles : {1UL, 2UL, 3UL, 10UL, 100UL}) {
    INFO(tiles << " tiles");
    CHECK(ticks_of(1, tiles) == 3 * tiles);
    CHECK(ticks_of(3, tiles) == tiles + 2);  // the first read and the last write alone are not hidden
    CHECK(ticks_of(5, tiles) == tiles + 2);
  }
  CHECK(ticks_of(2, 100) < 3 * 100);
  CHECK(ticks_of(2, 100) > 100 + 2);
}

TEST_CASE("read-ahead and write-behind can each be switched off") {
  for (const uint32_t n_frames : {1U, 2U, 3U, 5U}) {
    INFO(n_frames << " frames");
    CHECK(ticks_of(n_frames, 20, {false, false}) == 3 * 20);
    CHECK(ticks_of(n_frames, 20, {true, false}) == (n_frames == 1 ? 3 * 20 : 2 * 20 + 1));
    CHECK(ticks_of(n_frames, 20, {false, true}) == (n_frames == 1 ? 3 * 20 : 2 * 20 + 1));
  }
}

TEST_CASE("tiles in files are processed with their own data, for any number of frames") {
  for (const std::string& io : io_ways()) {
    for (const uint32_t n_frames : {1U, 2U, 3U, 7U}) {
      for (const size_t numel : {64UL, 1024UL, 1024UL * 9 + 128}) {
        INFO(io << ", " << n_frames << " frames, " << numel << " elements");
        LazyHost host;
        const ddh::Host h(&host.host);
        TierFixture one(4096, io), two(4096, io, 2);
        check_sums(h, {one.tier.get(), two.tier.get()}, n_frames, numel);
      }
    }
  }
}

TEST_CASE("tiles in pinned memory are only ordered by events, on streams that run as late as possible") {
  for (const uint32_t n_frames : {1U, 2U, 3U, 7U}) {
    LazyHost host;
    const ddh::Host h(&host.host);
    ddh::MemoryTier tier(h, 4096);
    check_sums(h, {&tier}, n_frames, 1024 * 9 + 128);
  }
}

TEST_CASE("frames take the planned memory") {
  CHECK(TileFrames(3, 2, 8192).bytes() == 3 * 2 * 8192 + 4096);
  CHECK(TileFrames(1, 0, 8192).bytes() == 0);
}
