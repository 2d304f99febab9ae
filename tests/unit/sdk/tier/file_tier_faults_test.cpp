// SPDX-License-Identifier: Apache-2.0
//
// A tier whose disk is damaged, full, broken or transfers small pieces: either an error that names file, offset and
// tensor, or the right bytes.
#include <sys/mount.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "fixtures/harness/throws.hpp"
#include "unit/sdk/tier/tier_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

TEST_CASE("a flipped byte in the file is noticed at the read, which names tensor, place and folder") {
  for (const std::string& io : io_ways()) {
    TierFixture f(8192, io);
    f.tier->add("exp_avg of layer 0", DDH_TAG_OPTIM, 8192);
    const size_t t = f.tier->add("exp_avg_sq of layer 1", DDH_TAG_OPTIM, 8192 + 100);
    f.tier->reserve();
    for (const uint64_t at : {0UL, 4095UL, 8191UL}) {
      f.write(t, 0, content(t, 0, 8192));
      char byte = 0;
      const auto offset = static_cast<off_t>(8192 + at);
      const int fd = open(("/proc/self/fd/" + std::to_string(f.tier->fd())).c_str(), O_RDWR);  // without O_DIRECT
      REQUIRE(pread(fd, &byte, 1, offset) == 1);
      byte = static_cast<char>(byte ^ 16);
      REQUIRE(pwrite(fd, &byte, 1, offset) == 1);
      REQUIRE(fsync(fd) == 0);
      close(fd);
      const std::string sentence = sentence_of([&] { f.read(t, 0, 8192); });
      CHECK_THAT(sentence, Contains("damaged") && Contains("'exp_avg_sq of layer 1'") &&
                               Contains("bytes 8192 to 16384") && Contains(f.folder.path().string()) &&
                               Contains("strategy.nvme_path"));
    }
    f.write(t, 0, content(t, 0, 8192));
    CHECK((f.read(t, 0, 8192) == content(t, 0, 8192)));
  }
}

TEST_CASE("a file that became shorter is noticed at the read") {
  for (const std::string& io : io_ways()) {
    TierFixture f(8192, io);
    const size_t t = f.tier->add("master of head", DDH_TAG_PARAM, 2 * 8192);
    f.tier->reserve();
    f.write(t, 1, content(t, 1, 8192));
    REQUIRE(ftruncate(f.tier->fd(), 8192 + 4096) == 0);
    CHECK_THAT(sentence_of([&] { f.read(t, 1, 8192); }),
               Contains("'master of head'") && Contains("the file ends before") && Contains("strategy.nvme_path"));
  }
}

TEST_CASE("a file above the process's limit is an error at the start, not a signal") {
  TierFixture f(1 << 20);
  f.tier->add("exp_avg of layer 0", DDH_TAG_OPTIM, 8 << 20);
  rlimit before{}, low{};
  getrlimit(RLIMIT_FSIZE, &before);
  low = before;
  low.rlim_cur = 4 << 20;
  setrlimit(RLIMIT_FSIZE, &low);
  const std::string sentence = sentence_of([&] { f.tier->reserve(); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK_THAT(sentence, Contains("no room for 8388608 bytes") && Contains(f.folder.path().string()) &&
                           Contains("File too large") && Contains("strategy.nvme_path"));
}

TEST_CASE("a full disk is an error at the start that says how much is free") {
  TierFixture f(1 << 20);
  if (mount("tmpfs", f.folder.path().c_str(), "tmpfs", 0, "size=2m") != 0) {
    WARN("no disk of a chosen size can be mounted here: only the limit on file sizes was tested");
    return;
  }
  f.tier->add("exp_avg of layer 0", DDH_TAG_OPTIM, 8 << 20);
  const std::string sentence = sentence_of([&] { f.tier->reserve(); });
  f.tier.reset();
  umount(f.folder.path().c_str());
  CHECK_THAT(sentence, Contains("no room for 8388608 bytes") && Contains("No space left on device") &&
                           Contains("bytes are free there"));
}

TEST_CASE("a folder that is missing, a file, or not given is an error") {
  TierFixture f(4096);
  const auto sentence_with = [&](const std::string& folder) {
    return sentence_of([&] {
      ddh::FileTier tier(f.host, {folder, "strategy.nvme_path", 4096, 4, true, nullptr});
      tier.reserve();
    });
  };
  CHECK_THAT(sentence_with(f.folder.file("nowhere")),
             Contains("nowhere") && Contains("No such file or directory") && Contains("give a folder on a fast disk"));
  std::ofstream(f.folder.file("file")) << "x";
  CHECK_THAT(sentence_with(f.folder.file("file")), Contains("Not a directory") && Contains("strategy.nvme_path"));
  CHECK_THAT(sentence_with(""), Contains("give strategy.nvme_path"));
}

namespace {

// A disk in memory that returns the results that a test sets.
struct ToldIo final : ddh::IoEngine {
  using Answer = std::function<int64_t(const ddh::IoOp& op)>;
  explicit ToldIo(Answer a, uint32_t depth) : answer(std::move(a)), results(depth) {}
  [[nodiscard]] std::string name() const override { return "told"; }
  void start(uint32_t tag, const ddh::IoOp& op) override {
    const int64_t n = answer(op);
    if (n > 0 && disk.size() < op.offset + op.bytes) disk.resize(op.offset + op.bytes);
    if (n > 0 && op.is_write) std::memcpy(&disk[op.offset], op.buffer, static_cast<size_t>(n));
    if (n > 0 && !op.is_write) std::memcpy(op.buffer, &disk[op.offset], static_cast<size_t>(n));
    results[tag] = n;
  }
  Result finish(uint32_t tag) override { return {results[tag], std::chrono::steady_clock::now()}; }
  Answer answer;
  std::vector<int64_t> results;
  std::vector<char> disk;
};

ddh::IoEngineMaker told(const ToldIo::Answer& answer) {
  return [answer](int, uint32_t depth) { return std::make_unique<ToldIo>(answer, depth); };
}

}  // namespace

TEST_CASE("transfers that move less than asked for, or are interrupted, are continued to the end") {
  int n = 0;
  TierFixture f(5 * 4096, 4, told([&n](const ddh::IoOp& op) -> int64_t {
                  if (++n % 4 == 0) return -EINTR;
                  if (n % 4 == 1) return std::min<int64_t>(4096 + 512, static_cast<int64_t>(op.bytes));  // off the grid
                  return std::min<int64_t>(8192, static_cast<int64_t>(op.bytes));
                }));
  const size_t t = f.tier->add("slot", DDH_TAG_OPTIM, 5 * 4096 - 8);
  f.tier->reserve();
  f.write(t, 0, content(t, 0, 5 * 4096 - 8));
  CHECK((f.read(t, 0, 5 * 4096 - 8) == content(t, 0, 5 * 4096 - 8)));
  CHECK(n > 6);
}

TEST_CASE("an error of the disk names the tensor, and says how to fix it") {
  int64_t write_result = 4096, read_result = 4096;
  TierFixture f(4096, 4,
                told([&](const ddh::IoOp& op) -> int64_t { return op.is_write ? write_result : read_result; }));
  const size_t t = f.tier->add("exp_avg of h.3", DDH_TAG_OPTIM, 3 * 4096);
  f.tier->reserve();
  f.write(t, 2, content(t, 2, 4096));
  read_result = -EIO;
  CHECK_THAT(sentence_of([&] { f.read(t, 2, 4096); }),
             Contains("cannot read 'exp_avg of h.3' (bytes 8192 to 12288") && Contains("Input/output error") &&
                 Contains("check the disk or give another strategy.nvme_path"));
  write_result = -EIO;
  CHECK_THAT(sentence_of([&] { f.write(t, 1, content(t, 1, 4096)); }),
             Contains("cannot write 'exp_avg of h.3'") && Contains("Input/output error"));
  for (const int64_t full : {int64_t{-ENOSPC}, int64_t{0}}) {
    write_result = full;
    CHECK_THAT(sentence_of([&] { f.write(t, 1, content(t, 1, 4096)); }),
               Contains("No space left on device") && Contains("make room or give another strategy.nvme_path"));
  }
}

TEST_CASE("an error of a transfer that was completed early to make room for another is reported at its wait") {
  TierFixture f(4096, 1, told([](const ddh::IoOp& op) -> int64_t { return op.offset == 0 ? -EIO : 4096; }));
  const size_t t = f.tier->add("slot", DDH_TAG_OPTIM, 3 * 4096);
  f.tier->reserve();
  const TileBuffer buffer(4096);
  const auto first = f.tier->begin_write(t, 0, buffer.data()), second = f.tier->begin_write(t, 1, buffer.data());
  CHECK_NOTHROW(f.tier->wait(second));
  CHECK_THAT(sentence_of([&] { f.tier->wait(first); }), Contains("Input/output error"));
}
