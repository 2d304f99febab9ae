// SPDX-License-Identifier: Apache-2.0
//
// What a plugin file says without being loaded.
#include "plugin/elf_note.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "ddh/abi.h"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

ElfFacts read_bytes(const std::string& bytes) {
  const TempFolder folder;
  std::ofstream(folder.file("x.so"), std::ios::binary) << bytes;
  return read_elf(folder.file("x.so"));
}

}  // namespace

TEST_CASE("the note names plugins, ABI and versions", "[elf]") {
  const ElfFacts facts = read_elf(fake_plugin("two"));
  CHECK(facts.problem.empty());
  REQUIRE(facts.note);
  CHECK(facts.note->abi_major == DDH_ABI_MAJOR);
  REQUIRE(facts.note->plugins.size() == 2);
  CHECK(facts.note->plugins[1].kind == "strategy");
  CHECK(facts.note->plugins[1].id == "right");
  const auto libraries = read_elf(fake_plugin("links_gone")).note->libraries;
  REQUIRE(libraries.size() == 1);
  CHECK(libraries[0].text() == "LibTorch 2.11.0");
}

TEST_CASE("the libraries that a plugin asks for are read without loading it", "[elf]") {
  const std::vector<std::string> needed = read_elf(fake_plugin("links_gone")).needed;
  CHECK(std::count(needed.begin(), needed.end(), "libtorch_gone.so") == 1);
}

TEST_CASE("two builds of one source are told apart by the linker's build id", "[elf]") {
  const std::string one = read_elf(fake_plugin("good")).build_id;
  CHECK(one.size() >= 8);
  CHECK(one == read_elf(fake_plugin("good")).build_id);
  CHECK(one != read_elf(fake_plugin("same_id_twice")).build_id);
}

TEST_CASE("a library without note has none", "[elf]") { CHECK_FALSE(read_elf(fake_plugin("plain")).note); }

TEST_CASE("a file that is not a shared library for this machine is refused with its type", "[elf]") {
  CHECK_THAT(read_bytes("").problem, Catch::Contains("empty"));
  CHECK_THAT(read_bytes("no library at all").problem, Catch::Contains("not an ELF file"));
  std::string other = read_text(fake_plugin("good"));
  other[18] = '\xb7';  // e_machine: aarch64
  CHECK_THAT(read_bytes(other).problem, Catch::Contains("another machine"));
  std::string narrow = read_text(fake_plugin("good"));
  narrow[4] = 1;  // 32-bit
  CHECK_THAT(read_bytes(narrow).problem, Catch::Contains("another machine"));
}

TEST_CASE("a note that can't be read is named", "[elf]") {
  std::string broken = read_text(fake_plugin("good"));
  const size_t note = broken.find(R"({"abi")");
  REQUIRE(note != std::string::npos);
  broken[note] = '[';
  CHECK_THAT(read_bytes(broken).problem, Catch::Contains("has a ddhost note that is not JSON"));
}

TEST_CASE("a plugin that is truncated anywhere is refused without a crash", "[elf]") {
  const std::string whole = read_text(fake_plugin("good"));
  CHECK(read_bytes(whole).problem.empty());
  for (size_t length = 4; length + 1 < whole.size(); length += whole.size() / 97) {
    INFO(length << " of " << whole.size() << " bytes");
    CHECK_THAT(read_bytes(whole.substr(0, length)).problem, Catch::Contains("truncated"));
  }
}

TEST_CASE("damaged headers cause no crash", "[elf]") {
  const std::string whole = read_text(fake_plugin("good"));
  for (size_t at = 4; at < 1024 && at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = '\xff';
    CHECK_NOTHROW(read_bytes(damaged));
  }
}

TEST_CASE("of a large library only the headers and notes are read", "[elf]") {
  const TempFolder folder;
  fs::copy_file(fake_plugin("good"), folder.file("large.so"));
  fs::resize_file(folder.file("large.so"),
                  uintmax_t{1} << 30);  // a hole behind its end, as debug information would lie
  const auto read_so_far = [] {
    std::ifstream io("/proc/self/io");
    std::string word;
    for (uint64_t bytes = 0; io >> word >> bytes;)
      if (word == "rchar:") return bytes;
    FAIL("/proc/self/io has no rchar");
    return uint64_t{0};
  };
  const uint64_t before = read_so_far();
  CHECK(read_elf(folder.file("large.so")).note);
  CHECK(read_so_far() - before < 100'000);
}

TEST_CASE("a missing file and a folder are refused by name", "[elf]") {
  CHECK_THAT(sentence_of([] { read_elf("/no/such.so"); }), Catch::Contains("/no/such.so"));
  CHECK_THAT(sentence_of([] { read_elf("/tmp"); }), Catch::Contains("not a file"));
}
