// SPDX-License-Identifier: Apache-2.0
//
// Offloading to a disk that fails: the run ends with an error and always leaves no file behind.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

std::vector<std::string> offloading_run(const TempFolder& folder, const std::vector<std::string>& more = {}) {
  std::filesystem::create_directories(folder.path() / "nvme");
  std::vector<std::string> args = {"--model",
                                   toy_model(),
                                   "--strategy",
                                   "zero3_offload",
                                   "--nproc",
                                   "2",
                                   "train.steps=10000000",
                                   "run.quiet=true",
                                   "run.dir=" + folder.file("run"),
                                   "strategy.offload_optimizer.device=nvme",
                                   "strategy.nvme_path=" + folder.file("nvme")};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream in(read_text("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> out;
  for (pid_t child = 0; in >> child;) out.push_back(child);
  return out;
}

bool wait_for_steps(const TempFolder& folder) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    if (read_text(folder.file("run/metrics.jsonl")).size() > 2000) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

// Flips a bit in every block of the files that the process has in `folder`. Returns the number of files.
int damage_files(pid_t pid, const std::string& folder) {
  int damaged = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind(folder, 0) != 0) continue;
    const int fd = open(entry.path().c_str(), O_RDWR);
    char byte = 0;
    for (off_t at = 5; pread(fd, &byte, 1, at) == 1; at += 4096) {
      byte = static_cast<char>(byte ^ 1);
      if (pwrite(fd, &byte, 1, at) != 1) break;
    }
    close(fd);
    ++damaged;
  }
  return damaged;
}

}  // namespace

TEST_CASE("a file that is damaged during the run ends it with an error that names the damaged tensor") {
  const TempFolder folder;
  Process process(offloading_run(folder));
  REQUIRE(wait_for_steps(folder));
  int damaged = 0;
  for (int i = 0; i < 3000; ++i) {  // again, because the run rewrites the blocks
    const std::vector<pid_t> ranks = children_of(process.pid());
    if (ranks.empty()) break;
    damaged += damage_files(ranks.back(), folder.file("nvme"));
  }
  CHECK(damaged > 0);
  CHECK(process.wait(30s) > 0);
  CHECK_THAT(process.err(), Contains("the file is damaged: 'optimizer slot") && Contains(folder.file("nvme")) &&
                                Contains("strategy.nvme_path"));
}

TEST_CASE("a killed run leaves no file in the folder that it offloaded to") {
  const TempFolder folder;
  Process process(offloading_run(folder));
  REQUIRE(wait_for_steps(folder));
  const std::vector<pid_t> ranks = children_of(process.pid());
  REQUIRE(ranks.size() == 2);
  kill(ranks[1], SIGKILL);
  CHECK(process.wait(30s) > 0);
  CHECK(std::filesystem::is_empty(folder.path() / "nvme"));
}

TEST_CASE("a full disk, a missing folder and impossible options are errors before the first step") {
  const TempFolder folder;
  const auto sentence_of_run = [&](const std::vector<std::string>& more, auto&& setup) {
    std::vector<std::string> args = offloading_run(folder, {"--comm", "loop"});
    args.insert(args.end(), more.begin(), more.end());
    Process process(args, setup);
    CHECK(process.wait(60s) > 0);
    CHECK(read_text(folder.file("run/metrics.jsonl")).empty());
    std::filesystem::remove_all(folder.path() / "run");
    return process.err();
  };
  const auto nothing = [] {};
  CHECK_THAT(sentence_of_run({"model.width=256", "model.hidden=1024"},
                             [] {
                               const rlimit four_mib{4 << 20, 4 << 20};
                               setrlimit(RLIMIT_FSIZE, &four_mib);
                             }),
             Contains("no room for") && Contains("File too large") && Contains("strategy.nvme_path"));
  CHECK_THAT(sentence_of_run({"strategy.nvme_path=" + folder.file("nowhere")}, nothing),
             Contains("cannot make a file in") && Contains("nowhere"));
  CHECK_THAT(sentence_of_run({"strategy.nvme_path="}, nothing), Contains("give strategy.nvme_path"));
  CHECK_THAT(sentence_of_run({"strategy.buffer_bytes=1000"}, nothing), Contains("strategy.buffer_bytes = 1000"));
  CHECK_THAT(sentence_of_run({"strategy.offload_optimizer.device=tape"}, nothing), Contains("none, cpu, nvme"));
}
