// SPDX-License-Identifier: Apache-2.0
//
// SIGBUS: a mapped file that another program has cut short is named.
#include "launch/mapped_path.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "ddh/sdk/files/input_file.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

int report_pipe = -1;

void report(int, siginfo_t* info, void*) {
  std::array<char, 1024> sentence{"no file"};
  write_cut_file(*info, sentence.data(), sentence.size());
  static_cast<void>(!::write(report_pipe, sentence.data(), std::strlen(sentence.data())));
  ::_exit(3);
}

// What the handler reports in a child that reads the byte.
std::string reported(const volatile char* byte) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    report_pipe = ends[1];
    struct sigaction mine {};
    mine.sa_sigaction = &report;
    mine.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &mine, nullptr);
    ::_exit(*byte == 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text(1024, '\0');
  const ssize_t n = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return text;
}

}  // namespace

TEST_CASE("a mapped file that was cut short is named by its path") {
  const TempFolder folder;
  const std::string path = folder.file("tokens of a run.bin");
  std::ofstream(path) << std::string(3 * 4096, 'x');
  const ddh::MappedInput file(path);
  REQUIRE(::truncate(path.c_str(), 4096) == 0);
  CHECK_THAT(reported(file.bytes().data() + 2 * 4096),
             Catch::StartsWith("'" + path + "' was cut short or overwritten by another program"));
}

TEST_CASE("memory that ranks share is not reported as a file of the user") {
  const int fd = ::memfd_create("shared", MFD_CLOEXEC);
  const void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  REQUIRE(memory != MAP_FAILED);
  CHECK(reported(static_cast<const char*>(memory)) == "no file");
}
