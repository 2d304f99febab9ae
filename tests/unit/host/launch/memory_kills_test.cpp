// SPDX-License-Identifier: Apache-2.0
//
// A rank that the kernel ends for lack of memory is told from one that a user kills, by the counters of its cgroup.
#include "launch/memory_kills.hpp"

#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

// The counters of a kernel, as files in a folder.
struct Fixture {
  TempFolder folder;
  CgroupFiles files{folder.path() / "own", folder.path() / "root", folder.path() / "vmstat"};
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << text;
  }
};

}  // namespace

TEST_CASE("a risen counter of a cgroup of version 1 or 2, or of the machine, is found", "[launch]") {
  const Fixture f;
  f.write("vmstat", "nr_free_pages 7\noom_kill 5\n");
  SECTION("version 1") {
    f.write("own", "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n");
    f.write("root/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    f.write("root/memory/a/b/memory.limit_in_bytes", "536870912\n");
    const MemoryKills kills(f.files);
    f.write("vmstat", "oom_kill 6\n");  // of another cgroup
    CHECK_FALSE(kills.reason());
    f.write("root/memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    CHECK(kills.reason() == "the memory limit of its cgroup is 512 MiB");
  }
  SECTION("version 2") {
    f.write("own", "0::/a\n");
    f.write("root/a/memory.events", "low 0\noom 0\noom_kill 0\n");
    f.write("root/a/memory.max", "max\n");
    const MemoryKills kills(f.files);
    CHECK_FALSE(kills.reason());
    f.write("root/a/memory.events", "low 0\noom 1\noom_kill 1\n");
    CHECK(kills.reason() == "the machine had no memory left");
    f.write("root/a/memory.max", "1073741824\n");
    CHECK(kills.reason() == "the memory limit of its cgroup is 1024 MiB");
  }
  SECTION("version 2 in a container, which sees its own cgroup as the root") {
    f.write("own", "0::/outside/of/the/container\n");
    f.write("root/memory.events", "oom_kill 0\n");
    const MemoryKills kills(f.files);
    f.write("root/memory.events", "oom_kill 1\n");
    CHECK(kills.reason().has_value());
  }
  SECTION("no cgroup") {
    const MemoryKills kills(f.files);
    CHECK_FALSE(kills.reason());
    f.write("vmstat", "nr_free_pages 7\noom_kill 6\n");
    CHECK(kills.reason() == "the machine had no memory left");
  }
  SECTION("no counter at all") {
    fs::remove(f.folder.file("vmstat"));
    const MemoryKills kills(f.files);
    CHECK_FALSE(kills.reason());
  }
}

TEST_CASE("a rank that was ended for lack of memory is named as that, with the planned memory", "[launch]") {
  const bool killed_by_kernel = GENERATE(true, false);
  const Fixture f;
  f.write("own", "0::/\n");
  f.write("root/memory.events", "oom_kill 0\n");
  LaunchArgs args;
  args.world_size = 2;
  args.failure_grace = std::chrono::milliseconds(300);
  args.cgroups = f.files;
  const Outcome end = launch(args, [&](RankSeat& seat) {
    seat.record.set_plan("planned memory: param 16");
    if (seat.rank == 0) return 0;
    if (killed_by_kernel) f.write("root/memory.events", "oom_kill 1\n");
    return raise(SIGKILL);
  });
  CHECK(end.exit_code == 1);
  if (killed_by_kernel)
    CHECK_THAT(end.sentence, Catch::Contains("the kernel ended rank 1") && Catch::Contains("for lack of memory") &&
                                 Catch::Contains("raise the limit") && Catch::Contains(" (planned memory: param 16);"));
  else
    CHECK_THAT(end.sentence, Catch::Contains("rank 1") && Catch::Contains("was killed by signal 9"));
}
