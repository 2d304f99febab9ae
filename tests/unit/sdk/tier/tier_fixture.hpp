// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/sdk/tier/tier_fixture.hpp: a file tier in a folder of its own, and buffers for it.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ddh/sdk/tier/file_tier.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/fake_host.hpp"

namespace ddhost::test {

// Memory on the boundary that a tier asks for.
class TileBuffer {
 public:
  explicit TileBuffer(uint64_t bytes)
      : bytes_(ddh::Tier::round_up(bytes)), data_(static_cast<char*>(std::aligned_alloc(4096, bytes_))) {
    fill(0x5A);
  }
  TileBuffer(TileBuffer&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  TileBuffer& operator=(TileBuffer&&) = delete;
  ~TileBuffer() { std::free(data_); }
  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::string text(uint64_t bytes) const { return {data_, bytes}; }
  void fill(int byte) { std::memset(data_, byte, bytes_); }

 private:
  uint64_t bytes_;
  char* data_;
};

// Bytes that tell tensor, tile and round apart.
inline std::string content(size_t tensor, uint64_t tile, uint64_t bytes, int round = 0) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<char>((i * 31 + tensor * 7 + tile * 13 + static_cast<size_t>(round) * 101) >> 1);
  return out;
}

struct DDH_HIDDEN TierFixture {
  explicit TierFixture(uint64_t tile_bytes, const std::string& io = "pread", uint32_t depth = 8)
      : TierFixture(tile_bytes, depth,
                    [this, io](int fd, uint32_t tags) { return ddh::make_io_engine(host, io, fd, tags); }) {}
  TierFixture(uint64_t tile_bytes, uint32_t depth, ddh::IoEngineMaker make_io)
      : tier(std::make_unique<ddh::FileTier>(
            host, ddh::FileTierSettings{folder.path().string(), "strategy.nvme_path", tile_bytes, depth, true,
                                        std::move(make_io)})) {}
  void write(size_t tensor, uint64_t tile, const std::string& bytes) const {
    const TileBuffer buffer(bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    tier->wait(tier->begin_write(tensor, tile, buffer.data()));
  }
  std::string read(size_t tensor, uint64_t tile, uint64_t bytes) const {
    const TileBuffer buffer(bytes);
    tier->wait(tier->begin_read(tensor, tile, buffer.data()));
    return buffer.text(bytes);
  }

  FakeHost fake{{}};
  ddh::Host host{fake.get()};
  TempFolder folder;
  std::unique_ptr<ddh::FileTier> tier;
};

// The ways that this machine has.
inline std::vector<std::string> io_ways() {
  std::vector<std::string> ways = {"pread"};
  FakeHost fake{{}};
  const ddh::Host host(fake.get());
  try {
    ddh::make_io_engine(host, "uring", 0, 1);
    ways.emplace_back("uring");
  } catch (const ddh::Error&) {  // not available here: the test of the fallback says so
  }
  return ways;
}

}  // namespace ddhost::test
