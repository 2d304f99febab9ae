// SPDX-License-Identifier: Apache-2.0
//
// What a host notes of the parts of a checkpoint in its memory: each damage is noticed. Which rank has the copy of which part,
// and from which parts a run goes on.
#include "checkpoint/host_parts.hpp"

#include <catch2/catch.hpp>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/memory_folder.hpp"
#include "engine/loop/memory_checkpoints.hpp"
#include "engine/loop/room.hpp"
#include "engine/state/part_moves.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::HostServices;
using ddhost::test::sentence_of;
using ddhost::test::TempFolder;
namespace fs = std::filesystem;

namespace {

Part a_part() {
  return {{/*run_id=*/7, /*first_run=*/9, /*step=*/20, /*world_size=*/4, /*rank=*/3, /*manifest_sum=*/5},
          {{0, 0, 64, 100, 1}, {1, 0, 0, kChunkBytes, 2}}};
}

// A run on this host alone, as one of several. Its checkpoints have two parts with 8 bytes each.
class OneHost {
 public:
  OneHost() { make_memory_folder(run_.path()); }
  ~OneHost() { remove_memory_folder(run_.path()); }
  OneHost(const OneHost&) = delete;
  OneHost& operator=(const OneHost&) = delete;

  [[nodiscard]] fs::path run() const { return run_.path(); }
  [[nodiscard]] fs::path folder(int64_t step) const { return checkpoint_folder(parts_root(run_.path()), step); }
  void save(int64_t step, uint64_t first_run, int parts = 2) const {
    fs::create_directories(folder(step));
    Manifest manifest;
    manifest.progress.step = step;
    manifest.progress.programs.push_back({"train", 1, 1});
    manifest.progress.optimizers.push_back({"optimizer", "adamw", "1", {}, {}, {}});
    manifest.config = "{}";
    manifest.world_size = 2;
    manifest.files.push_back({"model.safetensors", 16, 0, sum_of("", 0)});
    const std::string text = manifest_text(manifest), bytes = "8 bytes.";
    write_durably(folder(step) / kPartsManifest, text);
    PartFiles files(folder(step), manifest);
    files.make();
    for (int32_t rank = 0; rank < parts; ++rank) {
      const PartRange range{0, 0, 8 * static_cast<uint64_t>(rank), 8, sum_of(bytes.data(), 8)};
      files.write(range, bytes.data());
      write_part(folder(step), {{7, first_run, step, 2, rank, sum_of(text.data(), text.size())}, {range}});
    }
  }
  [[nodiscard]] FoundInMemory find(uint64_t first_run) {
    return find_in_memory(*host_.services.comm, host_.services.seat, run_.path(), first_run);
  }
  RankServices& services() { return host_.services; }

 private:
  const TempFolder run_;
  HostServices host_{"strategy:of a test"};
};

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
  part.ranges = {of_codec};
  CHECK_THAT(sentence_of([&] { static_cast<void>(files.hold(part)); }), Catch::Contains("codec-rank-2.safetensors"));
  CHECK_FALSE(fs::exists(folder.path() / "codec-rank-2.safetensors"));  // a check makes no file
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

TEST_CASE("after a restart a host gets the parts that it lacks from those that have them", "[checkpoint]") {
  const Nodes nodes(std::vector<int32_t>{2, 1, 1});
  FoundParts found{7, 20, /*world_size=*/4, {{0}, {0, 2}, {2}, {2, 3}}};  // the last host has one part
  std::vector<std::array<int32_t, 3>> moves;
  for (const PartMove& move : moves_to_all_hosts(found, nodes)) moves.push_back({move.part, move.from, move.to});
  std::sort(moves.begin(), moves.end());
  const std::vector<std::array<int32_t, 3>> expected = {{0, 0, 2}, {0, 0, 3}, {1, 0, 3},
                                                        {2, 2, 0}, {2, 2, 3}, {3, 2, 1}};
  CHECK(moves == expected);
}

TEST_CASE("a run goes on from the parts of its own runs, of which all are there", "[checkpoint]") {
  OneHost host;
  host.save(10, 9);
  host.save(20, 9);
  host.save(30, 9, /*parts=*/1);  // killed while the others saved theirs
  host.save(40, 8);               // of a run that was in the folder before
  FoundInMemory found = host.find(9);
  CHECK(found.damages.empty());
  REQUIRE(found.whole.size() == 2);
  CHECK(found.whole[0].step == 20);
  CHECK(found.whole[1].step == 10);

  keep_found_parts(host.run(), found.whole);
  CHECK_FALSE(fs::exists(host.folder(30)));
  CHECK_FALSE(fs::exists(host.folder(40)));
  CHECK(bring_together(*host.services().comm, host.services().seat, host.run(), found.whole[0]).empty());
  CHECK(open_checkpoint(host.folder(20)).progress.step == 20);

  std::ofstream(host.folder(20) / "model.safetensors") << "8 bytes.8 bites.";
  found = host.find(9);
  REQUIRE(found.whole.size() == 1);
  CHECK(found.whole[0].step == 10);
  REQUIRE(found.damages.size() == 1);
  CHECK_THAT(found.damages[0], Catch::Contains("the part of rank 1") && Catch::Contains("of step 20"));
}

TEST_CASE("a run that goes on from its own memory has begun where it began", "[checkpoint]") {
  OneHost host;
  std::ofstream(host.run() / kRunLock) << R"({"begun": 4, "steps": 37, "saved": 0, "first_run": 9})";
  RunPlan plan;
  plan.run_dir = host.run();
  plan.memory_by_host = true;
  plan.memory_resume.emplace(RunPlan::MemoryResume{9, "", {}});
  CheckpointSettings settings;
  const MemoryCheckpoints memory(host.services(), plan, settings);
  CHECK(memory.numbers_after(30, host.folder(30)) == StepNumbers{4, 30, 0, 9});
  CHECK(memory.numbers_after(30, checkpoint_folder(host.run(), 30)) == StepNumbers{30, 30, 0, 0});
  settings.memory_every = 10;
  REQUIRE(host.services().seat.run_id != 9);
  CHECK(memory.by_host(host.folder(30))->first_run == 9);
  // From the disk it takes another course than the one whose parts a host may still have.
  const uint64_t own = host.services().seat.run_id;
  CHECK(memory.numbers_after(30, checkpoint_folder(host.run(), 30)) == StepNumbers{30, 30, 0, own});
  CHECK(memory.by_host(checkpoint_folder(host.run(), 30))->first_run == own);
  plan.memory_resume.reset();
  CHECK(memory.numbers_after(0, "").first_run == host.services().seat.run_id);
}

TEST_CASE("why parts can't be put together is told, and more room is named only where it lacks", "[checkpoint]") {
  OneHost host;
  host.save(10, 9);
  RunPlan plan;
  plan.run_dir = host.run();
  plan.memory_by_host = true;
  const CheckpointSettings settings;
  const MemoryCheckpoints memory(host.services(), plan, settings);
  const FoundInMemory found = host.find(9);
  REQUIRE(found.whole.size() == 1);
  const MemoryCheckpoints::Place place{host.folder(10), found.whole[0]};
  SECTION("damage") {
    const bool is_gone = GENERATE(false, true);
    if (is_gone)
      fs::remove(host.folder(10) / kPartsManifest);
    else
      std::ofstream(host.folder(10) / kPartsManifest) << "{";
    const MemoryCheckpoints::Lack lack = memory.bring_together(place);
    CHECK(lack.is_damage);
    CHECK_THAT(lack.why, Catch::Contains("of step 10") && Catch::Contains(kPartsManifest));
    CHECK_THAT(lack.why, !Catch::Contains("more room"));
  }
  SECTION("a file that can't be written") {
    fs::create_directories(host.folder(10) / "manifest.json" / "in the way");
    const MemoryCheckpoints::Lack lack = memory.bring_together(place);
    CHECK_FALSE(lack.is_damage);
    CHECK_THAT(lack.why, Catch::Contains("manifest.json") && !Catch::Contains("more room"));
  }
  CHECK(is_lack_of_room("cannot write 'a': No space left on device; free some space"));
  CHECK_FALSE(is_lack_of_room("cannot write 'a': Is a directory"));
}

TEST_CASE("a host needs memory for what it saves twice, or once beside all of a checkpoint", "[checkpoint]") {
  CHECK(memory_needed(/*saves=*/25, /*whole=*/100, /*has_one=*/false) == 125);
  CHECK(memory_needed(/*saves=*/100, /*whole=*/100, /*has_one=*/false) == 200);
  CHECK(memory_needed(/*saves=*/25, /*whole=*/100, /*has_one=*/true) == 25);
}
