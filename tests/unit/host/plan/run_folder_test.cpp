// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run: its name, its lock, and what is left of a run that came to nothing.
#include "plan/run_folder.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "engine/record/step_count.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

namespace fs = std::filesystem;
using namespace ddhost;
using namespace ddhost::test;

namespace {

// A plan as prepare_run leaves it, for the folder alone.
PreparedRun plan_for(const fs::path& run_dir, const std::string& source, const std::string& save_final = "") {
  PreparedRun plan;
  plan.config.set("run.dir", run_dir.string(), source);
  plan.config.set("train.save_final", save_final, "the command line");
  plan.run_dir = run_dir;
  return plan;
}
std::string refusal(PreparedRun plan) {
  return sentence_of([&] { make_run_folder(plan); });
}

// As the launcher does when the run's processes have ended.
void clean_up(PreparedRun& run) {
  const std::string note = folder_note(run);
  run.lock.reset();
  clean_up_folder(note, /*has_failed=*/true);
}

// A run with other launchers after 37 steps, whose parts of checkpoints here are those of steps 20 and 30.
class RunOfHosts {
 public:
  explicit RunOfHosts(const StepNumbers& start = {}) : run_(plan_for(folder_.path() / "a", "the command line")) {
    run_.memory_by_host = true;
    run_.config.set("checkpoint.memory_every", 10, "the command line");
    make_run_folder(run_);
    StepCount(run_.run_dir, start).done(37);
    make_memory_folder(run_.run_dir);
    claim_memory_folder(run_.run_dir, /*run_id=*/7);
    for (const int64_t step : {20, 30}) fs::create_directories(checkpoint_folder(parts_root(run_.run_dir), step));
  }
  ~RunOfHosts() { remove_memory_folder(run_.run_dir); }
  RunOfHosts(const RunOfHosts&) = delete;
  RunOfHosts& operator=(const RunOfHosts&) = delete;

  [[nodiscard]] const fs::path& dir() const { return run_.run_dir; }
  [[nodiscard]] std::string end(bool is_member, int exit_code, bool lost_head = false, uint64_t run_id = 7) const {
    Outcome end;
    end.exit_code = exit_code;
    end.lost_head = lost_head;
    return end_memory(is_member ? member_note(run_.run_dir) : folder_note(run_), end, run_id);
  }
  // A run in the same folder on this host alone.
  [[nodiscard]] std::string end_alone(int exit_code) {
    run_.memory_by_host = false;
    run_.lock.reset();
    Outcome end;
    end.exit_code = exit_code;
    return end_memory(folder_note(run_), end, 0);
  }
  [[nodiscard]] bool has_parts() const { return has_memory_folder(run_.run_dir); }

 private:
  const TempFolder folder_;
  PreparedRun run_;
};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("a derived run folder gets a new suffix when it exists", "[prepare]") {
  const TempFolder folder;
  for (const char* expected : {"run", "run-2", "run-3"}) {
    PreparedRun plan = plan_for(folder.file("run"), "derived");
    make_run_folder(plan);
    CHECK(plan.run_dir == folder.path() / expected);
    CHECK(plan.config.text("run.dir") == folder.file(expected));
    CHECK(fs::is_directory(plan.run_dir));
  }
}

TEST_CASE("a requested run folder is used, but never a second time", "[prepare]") {
  const TempFolder folder;
  CHECK(refusal(plan_for(folder.path() / "a" / "b", "the command line")).empty());
  CHECK_THAT(refusal(plan_for(folder.path() / "a" / "b", "the command line")),
             Catch::Contains("already holds a run (run.lock)"));
  fs::remove(folder.path() / "a" / "b" / "run.lock");
  std::ofstream(folder.path() / "a" / "b" / "config.json") << "{}\n";
  CHECK_THAT(refusal(plan_for(folder.path() / "a" / "b", "the command line")),
             Catch::Contains("already holds files that a run writes (config.json)"));
  CHECK(fs::file_size(folder.path() / "a" / "b" / "config.json") == 3);
}

TEST_CASE("a run that has done no step leaves nothing that was not there", "[prepare]") {
  const TempFolder folder;
  PreparedRun made = plan_for(folder.path() / "a" / "b", "the command line");
  make_run_folder(made);
  for (const char* name : {"log.txt", "config.json"}) std::ofstream(made.run_dir / name) << "text\n";
  std::ofstream(made.run_dir / "rows") << "";
  clean_up(made);
  CHECK(fs::is_empty(folder.path()));

  fs::create_directories(folder.path() / "there");
  std::ofstream(folder.path() / "there" / "empty") << "";
  std::ofstream(folder.path() / "there" / "notes.txt") << "of the user\n";
  std::ofstream(folder.path() / "there" / "not UTF-8: \xff") << "";
  PreparedRun found = plan_for(folder.path() / "there", "the command line");
  make_run_folder(found);
  clean_up(found);
  CHECK(names_in(folder.path() / "there") == std::set<std::string>{"empty", "not UTF-8: \xff", "notes.txt"});
}

TEST_CASE("a run that has done a step, or left values, keeps its folder", "[prepare]") {
  const bool has_steps = GENERATE(false, true);
  const TempFolder folder;
  PreparedRun run = plan_for(folder.path() / "a", "the command line");
  make_run_folder(run);
  if (has_steps)
    StepCount(run.run_dir, {}).done(1);
  else
    std::ofstream(run.run_dir / "rows") << "1\n";
  const std::set<std::string> before = names_in(run.run_dir);
  clean_up(run);
  CHECK(names_in(run.run_dir) == before);
}

TEST_CASE("a folder is left as it is where the note is damaged", "[prepare]") {
  const TempFolder folder;
  PreparedRun run = plan_for(folder.path() / "a", "the command line");
  make_run_folder(run);
  const std::string note = folder_note(run);
  run.lock.reset();
  clean_up_folder(note.substr(0, note.size() - 1), /*has_failed=*/true);
  CHECK(names_in(folder.path() / "a") == std::set<std::string>{"run.lock"});
  clean_up_folder("", /*has_failed=*/true);
}

TEST_CASE("a link in the way of a folder is not removed", "[prepare]") {
  const TempFolder folder;
  const char* const target = GENERATE("loop", "nowhere");
  fs::create_symlink(target, folder.file("loop"));
  CHECK_THAT(refusal(plan_for(folder.path() / "loop" / "run", "the command line")),
             Catch::Contains("can't be created"));
  CHECK(fs::is_symlink(folder.file("loop")));
}

TEST_CASE("the files of a run that holds the folder are left alone", "[prepare]") {
  const TempFolder folder;
  PreparedRun first = plan_for(folder.path() / "a", "the command line");
  make_run_folder(first);
  PreparedRun second = plan_for(folder.path() / "a", "the command line");
  second.wish.from = ResumeWish::From::newest;
  CHECK_THAT(refusal(second), Catch::Contains("in use by a run"));
  CHECK(names_in(folder.path() / "a") == std::set<std::string>{"run.lock"});
}

TEST_CASE("folders that can't be written are reported before the run", "[prepare]") {
  const TempFolder folder;
  std::ofstream(folder.file("file")) << "x";
  CHECK_THAT(refusal(plan_for(folder.file("file"), "the command line")), Catch::Contains("can't be created"));
  CHECK_THAT(refusal(plan_for("/dev/null/run", "the command line")), Catch::Contains("/dev/null/run"));
  CHECK_THAT(refusal(plan_for("/proc", "the command line")), Catch::Contains("nothing can be written"));
  CHECK_THAT(refusal(plan_for(folder.file("run"), "derived", "/no/such/w.safetensors")), Catch::Contains("/no/such"));
  CHECK_THAT(refusal(plan_for(folder.file("run"), "derived", folder.path().string())), Catch::Contains("is a folder"));
  CHECK_FALSE(fs::exists(folder.file("run")));
  CHECK(refusal(plan_for(folder.file("run"), "derived", folder.file("run/w.safetensors"))).empty());
}

TEST_CASE("the write test leaves only the file that marks the folder as used", "[prepare]") {
  const TempFolder folder;
  CHECK(refusal(plan_for(folder.file("run"), "derived")).empty());
  CHECK(fs::file_size(folder.file("run/run.lock")) == 0);
  CHECK(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()) == 1);
}

TEST_CASE("the hosts keep their parts of checkpoints after a failure, and the head says so", "[prepare]") {
  const bool is_member = GENERATE(false, true);
  const RunOfHosts run;
  const std::string said = run.end(is_member, 1);
  CHECK(run.has_parts());
  if (is_member)
    CHECK(said.empty());
  else
    CHECK_THAT(said, Catch::Contains("the hosts keep their parts") && Catch::Contains("--resume auto"));
  CHECK(run.end(is_member, 0, false, /*run_id=*/8).empty());  // another run has the folder
  CHECK(run.has_parts());
  CHECK(run.end(is_member, 0).empty());
  CHECK_FALSE(run.has_parts());
}

TEST_CASE("the hosts remove their parts after a failure if the disk has a newer checkpoint", "[prepare]") {
  const bool is_member = GENERATE(false, true);
  const RunOfHosts run;
  fs::create_directories(checkpoint_folder(run.dir(), 35));
  CHECK(run.end(is_member, 1).empty());
  CHECK_FALSE(run.has_parts());
}

TEST_CASE("a host that has lost the head keeps its parts, because the run may start again", "[prepare]") {
  const RunOfHosts run;
  fs::create_directories(checkpoint_folder(run.dir(), 35));
  CHECK_THAT(run.end(/*is_member=*/true, 1, /*lost_head=*/true), Catch::Contains("in the memory of this host stay"));
  CHECK(run.has_parts());
}

TEST_CASE("a failed run on one host leaves the parts of a run of several hosts, unless the disk is newer",
          "[prepare]") {
  const bool is_on_disk = GENERATE(false, true);
  RunOfHosts run;
  if (is_on_disk) fs::create_directories(checkpoint_folder(run.dir(), 35));
  CHECK(run.end_alone(1).empty());
  CHECK(run.has_parts() != is_on_disk);
  CHECK(run.end_alone(0).empty());
  CHECK_FALSE(run.has_parts());
}

TEST_CASE("a failed run of several hosts leaves a checkpoint of a run on one host", "[prepare]") {
  const bool is_member = GENERATE(false, true);
  const RunOfHosts run;
  fs::remove_all(parts_root(run.dir()));
  fs::create_directories(checkpoint_folder(memory_folder(run.dir()), 30));
  static_cast<void>(run.end(is_member, 1));
  CHECK(run.has_parts());
  CHECK(run.end(is_member, 0).empty());
  CHECK_FALSE(run.has_parts());
}

TEST_CASE("the head tells of parts only if the run has saved some", "[prepare]") {
  const auto [begun, tells] = GENERATE(table<int64_t, bool>({{20, true}, {30, false}}));
  const RunOfHosts run({begun, begun, 0, 7});
  fs::remove_all(parts_root(run.dir()));  // the head's host has no ranks
  CHECK(run.end(/*is_member=*/false, 1).empty() != tells);
}
