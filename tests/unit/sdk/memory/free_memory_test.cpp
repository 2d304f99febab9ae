// SPDX-License-Identifier: Apache-2.0
//
// What the kernel's files say of free memory, with files of the test.
#include "ddh/sdk/memory/free_memory.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"

using ddh::FreeMemory;
using ddhost::test::TempFolder;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A machine with 1,000 MiB that are available.
class Kernel {
 public:
  Kernel() { write("meminfo", "MemTotal:  2048000 kB\nMemFree: 1 kB\nMemAvailable:    1024000 kB\n"); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = folder_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // A group of version 2.
  void group(const std::string& name, const std::string& most, uint64_t used, uint64_t file_pages = 0) const {
    write("cgroup/" + name + "/memory.max", most + "\n");
    write("cgroup/" + name + "/memory.current", std::to_string(used) + "\n");
    write("cgroup/" + name + "/memory.stat",
          "anon 5\ninactive_file " + std::to_string(file_pages) + "\nactive_file 0\n");
  }
  [[nodiscard]] FreeMemory free() const {
    return ddh::free_memory({folder_.path() / "meminfo", folder_.path() / "own", folder_.path() / "cgroup"});
  }

 private:
  const TempFolder folder_;
};

}  // namespace

TEST_CASE("without a limit the machine's available memory is free", "[unit]") {
  const Kernel kernel;
  kernel.write("own", "0::/\n");
  CHECK(kernel.free().bytes == 1000 * kMiB);
  CHECK(kernel.free().of == "this machine");
}

TEST_CASE("the smallest limit of a control group and those above it counts", "[unit]") {
  const Kernel kernel;
  kernel.write("own", "0::/a/b\n");
  kernel.group("a", std::to_string(300 * kMiB), 100 * kMiB);
  kernel.group("a/b", "max", 90 * kMiB);
  CHECK(kernel.free().bytes == 200 * kMiB);
  CHECK(kernel.free().of == "the control group /a");
  kernel.group("a/b", std::to_string(95 * kMiB), 90 * kMiB);
  CHECK(kernel.free().bytes == 5 * kMiB);
  kernel.group("a/b", std::to_string(80 * kMiB), 90 * kMiB);
  CHECK(kernel.free().bytes == 0);
}

TEST_CASE("pages of files that the kernel can drop count as free", "[unit]") {
  const Kernel kernel;
  kernel.write("own", "0::/a\n");
  kernel.group("a", std::to_string(300 * kMiB), 290 * kMiB, 50 * kMiB);
  CHECK(kernel.free().bytes == 60 * kMiB);
}

TEST_CASE("limits of control groups of version 1 count too", "[unit]") {
  const Kernel kernel;
  kernel.write("own", "12:cpu,cpuacct:/x\n5:memory:/job\n");
  kernel.write("cgroup/memory/job/memory.limit_in_bytes", std::to_string(64 * kMiB) + "\n");
  kernel.write("cgroup/memory/job/memory.usage_in_bytes", std::to_string(60 * kMiB) + "\n");
  kernel.write("cgroup/memory/job/memory.stat", "total_inactive_file 1048576\n");
  CHECK(kernel.free().bytes == 5 * kMiB);
  CHECK(kernel.free().of == "the control group /job");
}

TEST_CASE("what the kernel does not say is no limit", "[unit]") {
  const TempFolder folder;
  const FreeMemory free = ddh::free_memory({folder.path() / "no", folder.path() / "no", folder.path() / "no"});
  CHECK(free.bytes == UINT64_MAX);
}

TEST_CASE("the limit of a process's addresses leaves what is not in use", "[unit]") {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = uint64_t{1} << 46;
    const bool lowered = setrlimit(RLIMIT_AS, &limit) == 0;
    const FreeMemory free = ddh::free_addresses();
    _exit(lowered && free.bytes < limit.rlim_cur && free.bytes > 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
