// SPDX-License-Identifier: Apache-2.0
//
// Surroundings in which a run can't go on: a cgroup with too little memory, no /proc, a stop signal in the middle of a step
// that takes seconds.
#include <sched.h>
#include <sys/mount.h>

#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/memory_group.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

Words words_for(const TempFolder& folder, const Words& more) {
  Words words = {"--model", toy_model(),      "--strategy",          "ddp",           "--nproc",
                 "2",       "run.quiet=true", "run.sample_tokens=0", "train.steps=4", "run.dir=" + folder.file("run")};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A run of 25 million parameters in the group, which ends with one sentence of these words.
void check_ended(const MemoryGroup& group, const Words& options, const std::vector<std::string>& words) {
  const TempFolder folder;
  Process process(words_for(folder, joined({"model.width=512", "model.hidden=4096", "model.layers=6"}, options)),
                  [&] { group.enter(); });
  const int code = process.wait(60s);
  INFO(process.err());
  CHECK(code == 1);
  for (const std::string& word : words) CHECK_THAT(process.err(), Catch::Contains(word));
}

}  // namespace

TEST_CASE("a run that its cgroup's limit ends says so, with the planned memory", "[faults]") {
  const MemoryGroup group(80 << 20);
  if (!group.ready()) return skip("no memory cgroup of version 1 can be made here");
  check_ended(group, {"run.allow_overcommit=true"},
              {"for lack of memory", "cgroup is 80 MiB", "param", "raise the limit"});
}

TEST_CASE("a run that does not fit into the limit of its cgroup does not start", "[faults]") {
  const MemoryGroup little(60 << 20), group(200 << 20);
  if (!group.ready()) return skip("no memory cgroup of version 1 can be made here");
  check_ended(little, {}, {"2 ranks need more than", "the control group", "start fewer ranks"});
  check_ended(group, {},
              {"the run does not fit: 2 ranks will take", "the control group", "which does not suffice for"});
}

TEST_CASE("without /proc a run is refused with a cure", "[faults]") {
  if (geteuid() != 0) return skip("only root may unmount /proc, in a mount namespace of its own");
  const TempFolder folder;
  Process process(words_for(folder, {}), [] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        umount2("/proc", MNT_DETACH) != 0)
      _exit(126);
  });
  const int code = process.wait(60s);
  INFO(process.err());
  if (code == 126) return skip("/proc can't be unmounted here");
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains("/proc") && Catch::Contains("mount -t proc proc /proc"));
  CHECK_FALSE(fs::exists(folder.path() / "run"));
}

TEST_CASE("optimizer state that should go to a read-only disk is refused in one sentence", "[faults]") {
  if (geteuid() != 0) return skip("only root may mount a file system, in a mount namespace of its own");
  const TempFolder folder;
  const std::string disk = folder.file("disk");
  fs::create_directory(disk);
  Process process(words_for(folder, {"--strategy", "zero2", "strategy.offload_optimizer.device=nvme",
                                     "strategy.nvme_path=" + disk}),
                  [&] {
                    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                        mount("none", disk.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0)
                      _exit(126);
                  });
  const int code = process.wait(60s);
  const std::string err = process.err();
  INFO(err);
  if (code == 126) return skip("no file system can be mounted here");
  CHECK(code == 1);
  CHECK_THAT(err, Catch::Contains("strategy.nvme_path") && Catch::Contains("Read-only file system"));
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
}

TEST_CASE("SIGTERM in the middle of a long step ends the run after this step, saved, and it resumes with the same bits",
          "[faults]") {
  const Words work = {"checkpoint.every=2", "model.width=64", "model.hidden=256", "data.micro_batch=8",
                      "train.grad_accum_steps=150"};
  const TempFolder whole, stopped;
  Process all(words_for(whole, work));
  Process first(words_for(stopped, work));
  while (!fs::exists(stopped.path() / "run" / "config.json")) std::this_thread::sleep_for(5ms);  // then it trains
  std::this_thread::sleep_for(150ms);
  kill(first.pid(), SIGTERM);
  const int code = first.wait(60s);
  INFO(first.err());
  CHECK(code == 143);
  const std::string rows = rows_of(stopped.path() / "run");
  CHECK_FALSE(rows.empty());  // the step that was running
  Words again = words_for(stopped, work);
  again.emplace_back("--resume"), again.emplace_back("auto");
  Process second(again);
  REQUIRE(second.wait(60s) == 0);
  REQUIRE(all.wait(60s) == 0);
  CHECK(rows_of(stopped.path() / "run") == rows_of(whole.path() / "run"));
  CHECK(rows.size() < rows_of(whole.path() / "run").size());
}
