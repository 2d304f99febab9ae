// SPDX-License-Identifier: Apache-2.0
//
// What a host notes of the parts of a checkpoint in its memory: each damage is noticed. Which rank has the copy of which part.
#include "checkpoint/host_parts.hpp"

#include <catch2/catch.hpp>

#include "engine/state/part_moves.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using ddhost::test::TempFolder;
namespace fs = std::filesystem;

namespace {

Part a_part() {
  return {{/*run_id=*/7, /*step=*/20, /*world_size=*/4, /*rank=*/3, /*manifest_sum=*/5},
          {{0, 0, 64, 100, 1}, {1, 0, 0, kChunkBytes, 2}}};
}

}  // namespace

TEST_CASE("a note of a part is read as it was written, or not at all", "[checkpoint]") {
  const std::string text = part_text(a_part());
  const std::optional<Part> read = parse_part(text);
  REQUIRE(read.has_value());
  CHECK(part_text(*read) == text);
  CHECK(read->bytes() == 100 + kChunkBytes);
  for (size_t size = 0; size < text.size(); ++size) CHECK_FALSE(parse_part(text.substr(0, size)).has_value());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CHECK_FALSE(parse_part(damaged).has_value());
  }
  Part too_large = a_part();
  too_large.ranges[0].bytes = kChunkBytes + 1;
  CHECK_FALSE(parse_part(part_text(too_large)).has_value());
}

TEST_CASE("the parts of a folder are listed by rank, and damaged ones as such", "[checkpoint]") {
  const TempFolder folder;
  CHECK(list_parts(folder.path() / "none").empty());
  write_part(folder.path(), a_part());
  fs::copy_file(folder.path() / "part-3", folder.path() / "part-1");  // of another rank
  write_durably(folder.path() / "part-2", "no part");
  write_durably(folder.path() / "part-x", "no rank");
  const std::map<int32_t, std::optional<Part>> parts = list_parts(folder.path());
  REQUIRE(parts.size() == 3);
  CHECK(parts.at(3).has_value());
  CHECK_FALSE(parts.at(1).has_value());
  CHECK_FALSE(parts.at(2).has_value());
}

TEST_CASE("the files of a part hold it until a byte is another one", "[checkpoint]") {
  const TempFolder folder;
  Manifest manifest;
  manifest.files.push_back({"model.safetensors", 200, 0, 0});
  PartFiles files(folder.path(), manifest);
  files.make();
  CHECK(fs::file_size(folder.path() / "model.safetensors") == 200);
  const std::string bytes = "some values";
  Part part = a_part();
  part.ranges = {{0, 0, 64, bytes.size(), sum_of(bytes.data(), bytes.size())}};
  CHECK_FALSE(files.hold(part));
  files.write(part.ranges[0], bytes.data());
  CHECK(files.hold(part));
  CHECK(files.ranges_of(0).size() == 1);
  part.ranges[0].offset = 65;
  CHECK_FALSE(files.hold(part));
  part.ranges[0].offset = UINT64_MAX;  // beyond its end
  CHECK_FALSE(files.hold(part));
  const PartRange of_codec{files.codec_file(2), 0, 0, bytes.size(), 0};
  files.write(of_codec, bytes.data());
  CHECK(fs::exists(folder.path() / "codec-rank-2.safetensors"));
}

TEST_CASE("each part has a copy on the next host", "[checkpoint]") {
  CHECK(moves_to_next_host(Nodes(std::vector<int32_t>{4})).empty());
  const std::vector<PartMove> moves = moves_to_next_host(Nodes(std::vector<int32_t>{2, 1, 3}));
  const std::vector<int32_t> to = {2, 2, 3, 0, 1, 0};
  REQUIRE(moves.size() == to.size());
  for (size_t rank = 0; rank < to.size(); ++rank) {
    CHECK(moves[rank].from == static_cast<int32_t>(rank));
    CHECK(moves[rank].part == static_cast<int32_t>(rank));
    CHECK(moves[rank].to == to[rank]);
  }
}
