// SPDX-License-Identifier: Apache-2.0
//
// A process of a run gets SIGKILL after its n-th system call: the launcher or a rank, for each n. Every other process ends
// within 5 s, every file is whole, and the run can be resumed with the bits of one that nothing disturbed.
//
//   DDHOST_KILL_POINT=1:250 build/tests/bin/kill_points     that point alone: after call 250 of process 1
#include <sched.h>
#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <cstdio>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "fixtures/faults/small_run.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

// Gives this process an empty /dev/shm of its own, which its children share. Only root may.
bool hide_shared_memory() {
  static const bool kHidden = unshare(CLONE_NEWNS) == 0 &&
                              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                              mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;
  return kHidden;
}
std::string in_shared_memory() {
  std::string out;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) out += entry.path().string() + "\n";
  return out;
}

struct Point {
  int process;
  int64_t call;
};

// Whether the run got that far: the number of calls differs a little from run to run.
bool check_point(const Point& point) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "weights");
  TraceFault fault;
  fault.kill_process = point.process;
  fault.kill_after = point.call;
  const std::string shared = in_shared_memory();
  const TracedRun run = trace_run(small_run_words(folder), fault);
  CHECK(in_shared_memory() == shared);
  INFO("DDHOST_KILL_POINT=" << point.process << ":" << point.call << ", exit " << run.code << "\n" << run.err);
  CHECK(run.code != -1);
  if (!run.reached) {
    CHECK(run.code == 0);
    return false;
  }
  CHECK(run.to_end < std::chrono::seconds(5));
  if (point.process == 0)
    CHECK(run.code == 128 + SIGKILL);
  else if (run.code != 0)
    CHECK_THAT(run.err, Catch::Contains("ddhost: "));
  if (run.code == 0) CHECK((read_text(folder.file("weights/final.safetensors")) == reference().weights));
  require_no_raw_text(run.err);
  check_files(folder, run.err);
  check_goes_on(folder, run.err);
  return true;
}

std::vector<Point> all_points() {
  std::vector<Point> out;
  const std::vector<TracedProcess>& processes = reference().run.processes;
  for (size_t p = 0; p < processes.size(); ++p)
    for (int64_t call = 1; call <= processes[p].calls; ++call) out.push_back({static_cast<int>(p), call});
  return out;
}

// Some points, drawn from a seed: the same number of each process that makes many calls.
std::vector<Point> drawn_points(size_t count, uint64_t seed) {
  std::vector<Point> large, out;  // call: how many there are
  const std::vector<TracedProcess>& processes = reference().run.processes;
  for (size_t p = 0; p < processes.size(); ++p)
    if (processes[p].calls > 100) large.push_back({static_cast<int>(p), processes[p].calls});
  const ddh::CounterRng random(seed, "kill points");
  for (size_t i = 0; i < count; ++i) {
    const Point& of = large[i % large.size()];
    out.push_back({of.process, 1 + static_cast<int64_t>(random.bits(i) % static_cast<uint64_t>(of.call))});
  }
  return out;
}

// Of `count` points; of all if it is 0.
void check_points(size_t count, uint64_t seed) {
  if (const std::string why = why_no_trace(); !why.empty()) return skip(why);
  if (!hide_shared_memory()) WARN("/dev/shm of all processes is looked at, because it can't be hidden");
  if (const char* one = std::getenv("DDHOST_KILL_POINT")) {
    Point point{};
    REQUIRE(std::sscanf(one, "%d:%ld", &point.process, &point.call) == 2);
    CHECK(check_point(point));
    return;
  }
  int64_t reached = 0, tried = 0;
  for (const Point& point : count == 0 ? all_points() : drawn_points(count, seed)) {
    if (check_point(point)) ++reached;
    if (++tried % 500 == 0) WARN(tried << " points tried");
  }
  std::string of;
  for (const TracedProcess& process : reference().run.processes) of += " " + std::to_string(process.calls);
  WARN(reached << " kill points of " << all_points().size() << "; calls of each process:" << of);
}

}  // namespace

TEST_CASE("a run of which a process is killed after any system call ends, and can be resumed", "[faults]") {
  check_points(16, 1);
}

TEST_CASE("the same, after every call", "[.all]") {
  const char* count = std::getenv("DDHOST_KILL_POINTS");  // fewer of them, and from another seed
  const char* seed = std::getenv("DDHOST_KILL_SEED");
  check_points(count == nullptr ? 0 : std::strtoull(count, nullptr, 10),
               seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10));
}
