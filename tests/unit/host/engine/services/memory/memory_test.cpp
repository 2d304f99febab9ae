// SPDX-License-Identifier: Apache-2.0
//
// Tagged memory as a plugin gets it: what is counted, the guard behind each block, and wrong releases.
#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "engine/services/memory/memory.hpp"
#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

class Blocks {
 public:
  char* allocate(uint64_t bytes, int32_t memory = DDH_MEM_DEVICE) {
    const ddh_alloc_args args{sizeof args, DDH_TAG_OPTIM, bytes, memory, DDH_ALLOC_ZERO, "slots"};
    void* p = nullptr;
    ddh::call(table_.allocate, host_.h(), &args, &p);
    return static_cast<char*>(p);
  }
  void release(void* p) { table_.release(host_.h(), p); }
  [[nodiscard]] uint64_t counted() const { return host_.services.memory.usage(DDH_TAG_OPTIM).now_bytes; }
  [[nodiscard]] Memory& memory() { return host_.services.memory; }
  // "" if nothing is wrong so far.
  [[nodiscard]] std::string misuse() const {
    try {
      host_.services.seat.record.misuse().require_none();
    } catch (const ddh::Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  HostServices host_{"strategy:mine"};
  const ddh_alloc_api& table_ = host_.table<ddh_alloc_api>(DDH_ALLOC_IFACE);
};

}  // namespace

TEST_CASE("the guard behind a block is neither counted nor part of the block", "[memory]") {
  Blocks blocks;
  const uint64_t bytes = GENERATE(0, 1, 100, 4096, 8192, 1 << 20);
  const int32_t memory = GENERATE(DDH_MEM_HOST, DDH_MEM_DEVICE, DDH_MEM_PINNED);
  char* const p = blocks.allocate(bytes, memory);
  CHECK(reinterpret_cast<uintptr_t>(p) % 256 == 0);
  CHECK(blocks.counted() == bytes);
  CHECK(std::all_of(p, p + bytes, [](char c) { return c == 0; }));
  std::memset(p, 1, bytes);
  blocks.release(p);
  CHECK(blocks.counted() == 0);
  CHECK(blocks.misuse().empty());
}

TEST_CASE("one byte behind a block is found when it is released, and when the rank ends", "[memory]") {
  const uint64_t at = GENERATE(0, 63, 64, kGuardBytes - 1);
  const bool at_end = GENERATE(false, true);
  Blocks blocks;
  char* const p = blocks.allocate(100);
  p[100 + at] ^= 1;
  CHECK(blocks.misuse().empty());
  if (at_end)
    blocks.memory().release_all();
  else
    blocks.release(p);
  CHECK_THAT(blocks.misuse(), Catch::Contains("behind the end of 'slots' (100 bytes of tag optim)") &&
                                  Catch::Contains("strategy 'mine' allocated") &&
                                  Catch::Contains("first at byte " + std::to_string(at) + " after the end"));
}

TEST_CASE("a guard that several ranks write stays damaged where a plugin wrote before the last of them", "[memory]") {
  std::array<char, kGuardBytes> shared{};
  write_shared_guard(shared.data());
  write_shared_guard(shared.data());
  CHECK_FALSE(changed_guard_byte(shared.data()).has_value());
  shared[7] = 1;
  write_shared_guard(shared.data());
  CHECK(changed_guard_byte(shared.data()) == 7u);
}

TEST_CASE("a release that is not of a block is named and frees nothing", "[memory]") {
  Blocks blocks;
  char* const p = blocks.allocate(4096);
  SECTION("an inner address") {
    blocks.release(p + 128);
    CHECK_THAT(blocks.misuse(), Catch::Contains("strategy 'mine' called release") &&
                                    Catch::Contains("128 bytes after the beginning of 'slots'"));
    CHECK(blocks.counted() == 4096);
  }
  SECTION("twice") {
    blocks.release(p);
    blocks.release(p);
    CHECK_THAT(blocks.misuse(), Catch::Contains("a second time for 'slots' (4096 bytes of tag optim)"));
  }
  SECTION("another address") {
    int other = 0;
    blocks.release(&other);
    CHECK_THAT(blocks.misuse(), Catch::Contains("with an address that allocate did not give"));
  }
  SECTION("the host's own block") {
    void* const host = blocks.memory().allocate(DDH_TAG_COMM, 64, "staging");
    blocks.release(host);
    CHECK_THAT(blocks.misuse(), Catch::Contains("for 'staging' (64 bytes of tag comm), which the host allocated"));
    CHECK(blocks.memory().usage(DDH_TAG_COMM).now_bytes == 64);
  }
  SECTION("NULL is nothing") {
    blocks.release(nullptr);
    CHECK(blocks.misuse().empty());
  }
}

TEST_CASE("blocks of plugins that are left at the end are leaks, and those of the host are not", "[memory]") {
  Blocks blocks;
  blocks.memory().allocate(DDH_TAG_COMM, 64, "staging");
  blocks.memory().note_leaks();
  CHECK(blocks.misuse().empty());
  blocks.allocate(10);
  blocks.allocate(20);
  blocks.memory().note_leaks();
  CHECK_THAT(blocks.misuse(), Catch::Contains("strategy 'mine' was destroyed and had not released 'slots'") &&
                                  Catch::Contains("and 1 more"));
}
