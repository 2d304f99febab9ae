// SPDX-License-Identifier: Apache-2.0
//
// Code in a child process: its answer, and a child that has none, because its code fails, ends, is killed or hangs.
#include "base/child_process.hpp"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

using namespace ddhost;
using namespace std::chrono_literals;
using Clock = ChildProcess::Clock;

namespace {

// A process whose end nobody has noted yet is a zombie.
bool has_ended(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return !std::getline(file, text) || text.find(") Z ") != std::string::npos;
}

}  // namespace

TEST_CASE("a child process sends the answer of its code", "[child]") {
  ChildProcess empty("for a test", [] { return std::string(); });
  CHECK(empty.answer(Clock::now() + 20s) == "");
  const std::string text(1'000'000, 'x');  // more than a pipe holds
  ChildProcess large("for a test", [&] { return text; });
  CHECK(large.answer(Clock::now() + 20s) == text);
  CHECK(large.answer(Clock::now()) == text);
}

TEST_CASE("a child process whose code fails, ends or is killed has no answer", "[child]") {
  ChildProcess failed("for a test", []() -> std::string { throw std::runtime_error("of its code"); });
  ChildProcess ended("for a test", []() -> std::string { ::_exit(0); });
  ChildProcess killed("for a test", [] {
    ::raise(SIGKILL);
    return std::string("after its end");
  });
  for (ChildProcess* child : {&failed, &ended, &killed}) {
    CHECK(!child->answer(Clock::now() + 20s));
    CHECK(child->is_silent());
  }
}

TEST_CASE("a child process that hangs is killed, with what it has started", "[child]") {
  pid_t pid = 0, started = 0;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  {
    ChildProcess child(
        "for a test",
        [&]() -> std::string {
          const pid_t own = ::fork();
          if (own < 0) ::_exit(1);
          if (own > 0 && ::write(ends[1], &own, sizeof own) != sizeof own) ::_exit(1);
          while (true) ::pause();
        },
        ends[1]);
    pid = child.pid();
    pollfd waiting{ends[0], POLLIN, 0};
    REQUIRE(::poll(&waiting, 1, 20'000) == 1);
    REQUIRE(::read(ends[0], &started, sizeof started) == sizeof started);
    const auto begin = Clock::now();
    CHECK(!child.answer(begin + 100ms));
    CHECK(Clock::now() - begin >= 100ms);
    CHECK(!child.is_silent());
    CHECK(!has_ended(started));
  }
  CHECK(has_ended(pid));
  for (const auto limit = Clock::now() + 20s; !has_ended(started) && Clock::now() < limit;)
    std::this_thread::sleep_for(1ms);
  CHECK(has_ended(started));
  ::close(ends[0]);
  ::close(ends[1]);
}
