// SPDX-License-Identifier: Apache-2.0
//
// The queue of a monitor that writes slowly: order, waiting, errors.
#include "ddh/sdk/write_queue.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <vector>

using namespace std::chrono_literals;

TEST_CASE("what is put is written in order, and all of it at the end", "[queue]") {
  std::vector<int> written;
  {
    ddh::WriteQueue queue(nullptr, 8);
    for (int i = 0; i < 1000; ++i) queue.put([&written, i] { written.push_back(i); });
  }
  REQUIRE(written.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(written[static_cast<size_t>(i)] == i);
}

TEST_CASE("a slow write does not hold up who puts, until the queue is full", "[queue]") {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> put = 0, written = 0;
  ddh::WriteQueue queue(nullptr, 2);
  std::promise<void> begun;
  queue.put([&] {
    begun.set_value();
    gone.wait();
    ++written;
  });
  begun.get_future().wait();
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) {
      queue.put([&] { ++written; });
      ++put;
    }
  });
  while (put < 2) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  CHECK(put == 2);  // the third waits
  CHECK(written == 0);
  go.set_value();
  other.join();
  queue.drain();
  CHECK(written == 4);
}

TEST_CASE("what waits is written together", "[queue]") {
  std::vector<int> written;
  std::vector<size_t> sizes;
  ddh::WriteQueue queue([&](const std::function<void()>& run_all) {
    const size_t before = written.size();
    run_all();
    sizes.push_back(written.size() - before);
  });
  std::promise<void> go;
  queue.put([&written, gone = go.get_future().share()] {
    gone.wait();
    written.push_back(-1);
  });
  std::this_thread::sleep_for(200ms);  // longer than the thread waits for more: the first is taken alone
  for (int i = 0; i < 20; ++i) queue.put([&written, i] { written.push_back(i); });
  go.set_value();
  queue.drain();
  CHECK(sizes == std::vector<size_t>{1, 20});
  queue.drain();  // nothing waits
  CHECK(sizes.size() == 2);
}

TEST_CASE("a queue waits a tenth of a second for more, and no longer for a drain", "[queue]") {
  using Clock = std::chrono::steady_clock;
  std::promise<Clock::time_point> written;
  ddh::WriteQueue queue;
  const Clock::time_point begin = Clock::now();
  queue.put([&] { written.set_value(Clock::now()); });
  CHECK(written.get_future().get() - begin >= 90ms);
  const Clock::time_point again = Clock::now();
  queue.put([] {});
  queue.drain();
  CHECK(Clock::now() - again < 90ms);
}

TEST_CASE("a write that fails is the error of the next call, and none follows it", "[queue]") {
  std::atomic<int> written = 0;
  ddh::WriteQueue queue(nullptr, 4);
  queue.put([&] { ++written; });
  queue.put([] { ddh::fail(DDH_RESOURCE_EXHAUSTED, "the disk is full"); });
  CHECK_THROWS_WITH(queue.drain(), "the disk is full");
  CHECK_THROWS_WITH(queue.put([&] { ++written; }), "the disk is full");
  CHECK_THROWS_WITH(queue.drain(), "the disk is full");
  CHECK(written == 1);
}
