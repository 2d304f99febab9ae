// SPDX-License-Identifier: Apache-2.0
//
// A tier in a file: what goes out comes back, by io_uring and by pread, and the file has no name.
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "ddh/sdk/tier/checksum.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/sdk/tier/tier_fixture.hpp"

using namespace ddhost::test;
using ddh::Tier;

namespace {

const std::vector<uint64_t> kSizes = {4, 4092, 4096, 4100, 8192, 3 * 8192 + 256, 8192 * 5, 0, 64};

uint64_t tiles_of(uint64_t bytes, uint64_t tile_bytes) { return (bytes + tile_bytes - 1) / tile_bytes; }
uint64_t bytes_of(uint64_t bytes, uint64_t tile_bytes, uint64_t tile) {
  return std::min(tile_bytes, bytes - tile * tile_bytes);
}

}  // namespace

TEST_CASE("a file tier returns the written data, for all sizes and numbers of transfers in flight") {
  for (const std::string& io : io_ways()) {
    for (const uint64_t tile_bytes : {uint64_t{4096}, uint64_t{8192}}) {
      for (const uint32_t depth : {1U, 3U, 64U}) {  // 1 and 3: more transfers than may be under way
        INFO(io << ", tiles of " << tile_bytes << ", depth " << depth);
        TierFixture f(tile_bytes, io, depth);
        for (size_t t = 0; t < kSizes.size(); ++t) f.tier->add("tensor " + std::to_string(t), DDH_TAG_OPTIM, kSizes[t]);
        f.tier->reserve();
        for (int round = 0; round < 2; ++round) {
          std::vector<TileBuffer> buffers;
          std::vector<Tier::Handle> handles;
          for (size_t t = 0; t < kSizes.size(); ++t) {
            for (uint64_t tile = 0; tile < tiles_of(kSizes[t], tile_bytes); ++tile) {
              const std::string bytes = content(t, tile, bytes_of(kSizes[t], tile_bytes, tile), round);
              buffers.emplace_back(tile_bytes);
              std::memcpy(buffers.back().data(), bytes.data(), bytes.size());
              handles.push_back(f.tier->begin_write(t, tile, buffers.back().data()));
            }
          }
          for (const Tier::Handle h : handles) f.tier->wait(h);
          for (TileBuffer& b : buffers) b.fill(0);
          size_t next = 0;
          for (size_t t = 0; t < kSizes.size(); ++t)
            for (uint64_t tile = 0; tile < tiles_of(kSizes[t], tile_bytes); ++tile)
              handles[next] = f.tier->begin_read(t, tile, buffers[next].data()), ++next;
          for (size_t i = next; i-- > 0;) f.tier->wait(handles[i]);
          next = 0;
          for (size_t t = 0; t < kSizes.size(); ++t) {
            for (uint64_t tile = 0; tile < tiles_of(kSizes[t], tile_bytes); ++tile) {
              const uint64_t bytes = bytes_of(kSizes[t], tile_bytes, tile);
              CHECK((buffers[next++].text(bytes) == content(t, tile, bytes, round)));
            }
          }
        }
        uint64_t sum = 0;
        for (const uint64_t bytes : kSizes) sum += Tier::round_up(bytes);
        CHECK(f.tier->traffic().read_bytes == 2 * sum);
        CHECK(f.tier->traffic().written_bytes == 2 * sum);
        CHECK(f.tier->traffic().busy_seconds > 0);
      }
    }
  }
}

TEST_CASE("a tile that was never written reads as zeros") {
  TierFixture f(4096);
  const size_t t = f.tier->add("slot", DDH_TAG_OPTIM, 5000);
  f.tier->reserve();
  f.write(t, 0, content(t, 0, 4096));
  CHECK((f.read(t, 1, 5000 - 4096) == std::string(5000 - 4096, '\0')));
  CHECK((f.read(t, 0, 4096) == content(t, 0, 4096)));
}

TEST_CASE("a read of a tile whose write is in flight returns the data of the write") {
  for (const std::string& io : io_ways()) {
    TierFixture f(1 << 20, io);
    const size_t t = f.tier->add("slot", DDH_TAG_OPTIM, 1 << 20);
    f.tier->reserve();
    for (int round = 0; round < 10; ++round) {
      const TileBuffer out(1 << 20), in(1 << 20);
      const std::string bytes = content(t, 0, 1 << 20, round);
      std::memcpy(out.data(), bytes.data(), bytes.size());
      const Tier::Handle write = f.tier->begin_write(t, 0, out.data());
      const Tier::Handle read = f.tier->begin_read(t, 0, in.data());
      f.tier->wait(read);
      f.tier->wait(write);
      CHECK((in.text(1 << 20) == bytes));
    }
  }
}

TEST_CASE("the file of a tier has all its blocks from the start, and no name") {
  TierFixture f(8192);
  f.tier->add("slot", DDH_TAG_OPTIM, 100'000);
  f.tier->reserve();
  CHECK(std::filesystem::is_empty(f.folder.path()));
  struct stat status {};
  REQUIRE(fstat(f.tier->fd(), &status) == 0);
  CHECK(status.st_size == 25 * 4096);
  CHECK(status.st_blocks * 512 >= 25 * 4096);
  const int fd = f.tier->fd();
  f.tier.reset();
  CHECK(fcntl(fd, F_GETFD) == -1);  // closed, and with it the file is gone
}

TEST_CASE("without io_uring, auto uses pread with one warning, and uring is refused") {
  const TempFolder folder;
  const int file = open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  FakeHost fake{{}};
  const ddh::Host host(fake.get());
  constexpr uint32_t kDeeperThanAnyRing = 100'000;  // the kernel refuses it, as it refuses all in some containers
  const std::string refusal = sentence_of([&] { ddh::make_io_engine(host, "uring", file, kDeeperThanAnyRing); });
  const std::string engine = ddh::make_io_engine(host, "auto", file, kDeeperThanAnyRing)->name();
  close(file);
  CHECK(engine == "pread");
  CHECK(refusal.find("use io=auto or io=pread") != std::string::npos);
  REQUIRE(fake.log().size() == 1);
  CHECK(fake.log()[0].find("io_uring is not available") != std::string::npos);
  CHECK(fake.log()[0].find("pread") != std::string::npos);
}

TEST_CASE("registered buffers transfer the same bytes") {
  for (const std::string& io : io_ways()) {
    TierFixture f(8192, io);
    const size_t t = f.tier->add("slot", DDH_TAG_OPTIM, 8192);
    f.tier->reserve();
    const TileBuffer buffer(8192);
    const iovec whole{buffer.data(), 8192};
    f.tier->register_buffers({&whole, 1});
    std::memcpy(buffer.data(), content(1, 2, 8192).data(), 8192);
    f.tier->wait(f.tier->begin_write(t, 0, buffer.data()));
    std::memset(buffer.data(), 0, 8192);
    f.tier->wait(f.tier->begin_read(t, 0, buffer.data()));
    CHECK((buffer.text(8192) == content(1, 2, 8192)));
    if (io == "uring") CHECK(f.tier->io_name().find("io_uring") == 0);
  }
}

TEST_CASE("the checksum is XXH3: every flipped bit changes it, and any other program computes the same") {
  std::string data(4096, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7919 >> 3);
  const uint64_t sum = ddh::checksum64(data.data(), data.size());
  for (size_t bit = 0; bit < data.size() * 8; bit += 5) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
    if (ddh::checksum64(data.data(), data.size()) == sum) FAIL("bit " << bit);
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
  }
  CHECK(ddh::checksum64(data.data(), data.size() - 1) != sum);
  CHECK(ddh::checksum64("", 0) == 0x2d06800538d394c2);  // of the XXH3 specification
}
