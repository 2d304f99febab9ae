// SPDX-License-Identifier: Apache-2.0
#include "engine/services/comm/comm_thread.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"

using namespace ddhost;

namespace {

using Names = std::vector<std::string>;

struct Fixture {
  Clock clock;
  CommThread thread{clock, PluginCaller("comm 'test'"), PluginCaller("comm 'test'")};
  std::vector<std::string> runs, finishes;  // the first one of the other thread

  CommThread::Number start(const std::string& name) {
    return thread.start(
        PluginCall::kAllReduce, [this, name] { runs.push_back(name); }, [this, name] { finishes.push_back(name); });
  }
};

}  // namespace

TEST_CASE("a transfer runs while the rank goes on, and finishes when the rank waits for it", "[unit]") {
  Fixture f;
  std::latch go(1);
  bool is_finished = false;
  const auto number = f.thread.start(
      PluginCall::kAllReduce, [&] { go.wait(); }, [&] { is_finished = true; });
  CHECK_FALSE(is_finished);
  go.count_down();
  f.thread.wait(number);
  CHECK(is_finished);
  f.thread.wait(number);  // once more: nothing is left
  f.thread.wait_all();
}

TEST_CASE("a wait finishes what was given before, in that order, and leaves what comes after", "[unit]") {
  Fixture f;
  f.start("a");
  const auto b = f.start("b");
  std::latch go(1);
  bool is_finished = false;
  f.thread.start(
      PluginCall::kAllReduce, [&] { go.wait(); }, [&] { is_finished = true; });
  f.thread.wait(b);
  CHECK(f.runs == Names{"a", "b"});
  CHECK(f.finishes == Names{"a", "b"});
  CHECK_FALSE(is_finished);
  go.count_down();
  f.thread.wait_all();
  CHECK(is_finished);
}

TEST_CASE("the time of a wait counts for communication", "[unit]") {
  Fixture f;
  std::latch go(1);
  f.thread.start(
      PluginCall::kAllReduce, [&] { go.wait(); }, [] {});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    go.count_down();
  });
  f.thread.wait_all();
  other.join();
  CHECK(f.clock.split_ms()[DDH_SPAN_COMM] > 20);
}

TEST_CASE("the error of a transfer comes from the wait, and later transfers do not run", "[unit]") {
  Fixture f;
  f.start("a");
  const auto fails = f.thread.start(
      PluginCall::kAllReduce, [] { throw std::runtime_error("rank 1 is gone"); }, [] {});
  f.start("after");
  CHECK_THROWS_WITH(f.thread.wait(fails), "rank 1 is gone");
  CHECK(f.runs == Names{"a"});
  CHECK(f.finishes == Names{"a"});
  f.start("later");
  CHECK_THROWS_WITH(f.thread.wait_all(), "rank 1 is gone");
  f.thread.settle();
  CHECK(f.runs == Names{"a"});
}

TEST_CASE("a transfer that is dropped does not run any more and is not finished, but those around it are", "[unit]") {
  Fixture f;
  f.start("a");
  bool is_finished = false;
  const auto dropped = f.thread.start(
      PluginCall::kAllReduce, [&] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); },
      [&] { is_finished = true; });
  f.thread.drop(dropped);
  const auto after = f.start("b");
  f.thread.wait(after);
  CHECK_FALSE(is_finished);
  CHECK(f.runs == Names{"a", "b"});
  CHECK(f.finishes == Names{"a", "b"});
}

TEST_CASE("a thread that ends with transfers waits for the running one alone", "[unit]") {
  bool has_run = false, has_run_after = false;
  std::latch begun(1);
  {
    Fixture f;
    f.thread.start(
        PluginCall::kAllReduce,
        [&] {
          begun.count_down();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          has_run = true;
        },
        [] {});
    f.thread.start(
        PluginCall::kAllReduce, [&] { has_run_after = true; }, [] {});
    begun.wait();
  }
  CHECK(has_run);
  CHECK_FALSE(has_run_after);
}
