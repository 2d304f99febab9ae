// SPDX-License-Identifier: Apache-2.0
//
// The store of the ranks, in one process and over sockets.
#include "launch/kv.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace std::chrono_literals;
using ddhost::test::sentence_of;

namespace {

// A server on a thread, and one client per rank.
class Served {
 public:
  explicit Served(int ranks) {
    std::vector<Fd> servers;
    for (int i = 0; i < ranks; ++i) {
      SocketPair pair = make_socket_pair();
      servers.push_back(std::move(pair.server));
      clients_.push_back(std::make_unique<KvClient>(std::move(pair.client)));
    }
    server_ = std::make_unique<KvServer>(std::move(servers));
    thread_ = std::thread([this] { loop(); });
  }
  ~Served() {
    stop_ = true;
    thread_.join();
  }
  Kv& rank(size_t i) { return *clients_[i]; }
  void drop(size_t i) { clients_[i].reset(); }
  void abort() { abort_ = true; }

 private:
  void loop() {
    bool aborted = false;
    while (!stop_) {
      std::vector<pollfd> set = server_->poll_set();
      const int wait = server_->timeout_ms();
      poll(set.data(), set.size(), wait < 0 || wait > 5 ? 5 : wait);
      server_->serve(set);
      if (abort_ && !aborted) server_->abort("rank 7 has ended with an error");
      aborted = abort_;
    }
  }
  std::vector<std::unique_ptr<KvClient>> clients_;
  std::unique_ptr<KvServer> server_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, abort_{false};
};

ddh_rc code_of(Kv& kv, const std::string& key, std::chrono::milliseconds timeout) {
  try {
    static_cast<void>(kv.get(key, timeout));
  } catch (const ddh::Error& error) {
    return error.code();
  }
  return DDH_OK;
}

void check_store(Kv& a, Kv& b) {
  a.set("k", "one");
  CHECK(b.get("k", 0ms) == "one");
  a.set("k", std::string("\0two", 4));
  CHECK(b.get("k", 0ms) == std::string("\0two", 4));
  a.set("empty", "");
  CHECK(b.get("empty", 0ms).empty());
  const std::string big(kMaxKvBytes, 'x');
  a.set("big", big);
  CHECK(b.get("big", 1s) == big);
  CHECK_THAT(sentence_of([&] { a.set("big", big + "y"); }), Catch::Contains("'big'"));
  CHECK_THAT(sentence_of([&] { a.set("", "y"); }), Catch::Contains("key"));
  CHECK(code_of(a, "never", 30ms) == DDH_DEADLINE_EXCEEDED);
  CHECK_THAT(sentence_of([&] { static_cast<void>(a.get("never", 0ms)); }), Catch::Contains("'never'"));
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    a.set("late", "here");
  });
  CHECK(b.get("late", 5s) == "here");
  later.join();
}

}  // namespace

TEST_CASE("ranks that are threads share values, wait for them and time out", "[kv]") {
  KvLocal kv;
  check_store(kv, kv);
}

TEST_CASE("ranks that are processes do the same over sockets", "[kv]") {
  Served served(2);
  check_store(served.rank(0), served.rank(1));
}

TEST_CASE("a waiting get of one thread lets another thread of the rank set", "[kv]") {
  Served served(1);
  std::thread waiter([&] { CHECK(served.rank(0).get("mine", 5s) == "set"); });
  std::this_thread::sleep_for(30ms);
  served.rank(0).set("mine", "set");
  waiter.join();
}

TEST_CASE("a thread that takes the lock again at once does not keep others from it", "[kv]") {
  FairMutex mutex;
  std::atomic<bool> done{false};
  std::atomic<int> turns{0};
  std::thread greedy([&] {
    while (!done) {
      const std::lock_guard lock(mutex);
      std::this_thread::sleep_for(5ms);
      ++turns;
    }
  });
  std::vector<int> waited;  // turns of the other thread until this one has the lock
  for (int i = 0; i < 21; ++i) {
    const int before = turns;
    while (turns == before) std::this_thread::sleep_for(100us);  // so the other thread is at work
    const int asked = turns;
    const std::lock_guard lock(mutex);
    waited.push_back(turns - asked);
  }
  done = true;
  greedy.join();
  std::nth_element(waited.begin(), waited.begin() + 10, waited.end());
  CHECK(waited[10] <= 2);  // the median; a fair lock gives 1, and a busy machine may stop this thread before it asks
}

TEST_CASE("the store serves the other ranks after one has ended", "[kv]") {
  Served served(3);
  served.rank(0).set("k", "v");
  served.drop(0);
  served.rank(1).set("l", "w");
  CHECK(served.rank(2).get("k", 1s) == "v");
  CHECK(served.rank(2).get("l", 1s) == "w");
}

TEST_CASE("the end of the run ends every wait with its reason", "[kv]") {
  Served served(1);
  std::thread ender([&] {
    std::this_thread::sleep_for(30ms);
    served.abort();
  });
  CHECK(code_of(served.rank(0), "never", 20s) == DDH_ABORTED);
  ender.join();
  KvLocal local;
  local.abort("rank 1 has ended");
  CHECK(code_of(local, "never", 20s) == DDH_ABORTED);
}

TEST_CASE("the end of the launcher ends a wait", "[kv]") {
  SocketPair pair = make_socket_pair();
  pair.server.reset();
  KvClient client(std::move(pair.client));
  CHECK(code_of(client, "k", 20s) == DDH_UNAVAILABLE);
}

TEST_CASE("a counter adds up what all ranks add, and is no value", "[kv]") {
  Served served(2);
  KvLocal local;
  for (Kv* const kv : {static_cast<Kv*>(&local), &served.rank(0)}) {
    CHECK(kv->add("members", 2) == 2);
    CHECK(kv->add("members", -5) == -3);
    CHECK(code_of(*kv, "members", 1ms) == DDH_DEADLINE_EXCEEDED);
    kv->set("name", "x");
    CHECK(sentence_of([&] { static_cast<void>(kv->add("name", 1)); }).find("'name' has a value") != std::string::npos);
    kv->erase("name");
    kv->erase("members");
    kv->erase("nothing");
    CHECK(kv->add("name", 1) == 1);
    CHECK(kv->add("members", 1) == 1);
  }
  CHECK(served.rank(1).add("members", 1) == 2);
}

TEST_CASE("a store that is full refuses further values and goes on", "[kv]") {
  KvLocal kv;
  const std::string value(kMaxKvBytes, 'x');
  const std::string sentence = sentence_of([&] {
    for (int i = 0;; ++i) kv.set("key " + std::to_string(i), value);
  });
  CHECK(sentence.find("is full: it takes 256 MiB") != std::string::npos);
  kv.erase("key 0");
  kv.set("another", value);
}
