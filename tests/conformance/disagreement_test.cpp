// SPDX-License-Identifier: Apache-2.0
//
// A conformance test for transports (conformance.hpp): calls through the host and from other threads, ranks that make
// different calls or fail, marks and regions.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <new>
#include <thread>

#include "conformance/comm_world.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// The failure of a rank if the transport has no feature that could be refused.
constexpr const char* kNothing = "nothing to refuse";

// What all ranks count in, also those that are processes.
class SharedCount {
 public:
  SharedCount() : count_(new (page()) std::atomic<int>(0)) {}
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  ~SharedCount() { ::munmap(count_, sizeof(std::atomic<int>)); }
  std::atomic<int>& operator*() const { return *count_; }

 private:
  static void* page() {
    void* const memory =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) ddh::fail(DDH_RESOURCE_EXHAUSTED, "no shared memory for the test");
    return memory;
  }

  std::atomic<int>* const count_;
};

bool offered_nothing(const Outcome& outcome) {
  return outcome.exit_code == kLeftOut || outcome.sentence.find(kNothing) != std::string::npos;
}

}  // namespace

TEST_CASE("through the host a collective of another thread counts as comm, and the main thread's span goes on",
          "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  check_world(transport, 2, [](CommRank& r) {
    const Instance device(r.plan.device, r.seat.host(), "device");
    r.services.device = std::make_unique<Device>(
        device.get(), device.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE),
        r.plan.device.desc->caps, r.plan.device.id(), 0);
    r.services.memory.use(*r.services.device);
    struct End {  // before the device's plugin
      RankServices& services;
      ~End() {
        services.memory.release_all();
        services.device.reset();
      }
    } const end{r.services};
    r.services.comm = std::make_unique<Comm>(r.instance.get(), &r.table, r.shared_or_null, r.services.clock);
    PluginSeat model(r.services, "model:test");
    const auto& comm = *static_cast<const ddh_comm_api*>(host_interface(DDH_COMM_IFACE));
    Clock& clock = r.services.clock;
    clock.restart();
    clock.begin(DDH_SPAN_BACKWARD);
    for (int i = 0; i < 20; ++i) {
      int64_t sum = r.rank + 1;
      ddh_coll c{sizeof c, DDH_I64, DDH_SUM, 0, &sum, &sum, 1, nullptr, nullptr, nullptr, "test", nullptr, nullptr};
      ddh::ErrorBuffer err;
      ddh_rc rc = DDH_OK;
      std::thread([&] { rc = comm.all_reduce(&model, &c, err.get()); }).join();
      err.check(rc);
      expect(sum == 3, "all_reduce of another thread", 1);
      int64_t again = r.rank + 1;
      c.send = c.recv = &again;
      err.check(comm.all_reduce(&model, &c, err.get()));
      expect(again == 3, "all_reduce of the main thread afterwards", 1);
    }
    const double backward = clock.split_ms()[DDH_SPAN_BACKWARD];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect(clock.split_ms()[DDH_SPAN_BACKWARD] >= backward + 5, "the main thread's span", 1);
    clock.end();
    const double ended = clock.split_ms()[DDH_SPAN_BACKWARD];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect(clock.split_ms()[DDH_SPAN_BACKWARD] == ended, "the end of the main thread's span", 1);
    expect(clock.counters().at("comm.all_reduce") == 40, "the number of calls", 40);
    const float start = 1;
    ddh_coll c{sizeof c, DDH_F32, DDH_SUM, 0, &start, nullptr, 1, nullptr, nullptr, nullptr, "test", nullptr, &start};
    ddh::ErrorBuffer err;
    expect(comm.all_gather(&model, &c, err.get()) == DDH_INVALID_ARGUMENT, "a start value of all_gather", 1);
    const uint64_t counts[] = {1, 1};
    if (r.table.all_to_all == nullptr) return;
    c.initial = nullptr;
    c.counts = counts;
    expect(comm.all_to_all(&model, &c, err.get()) == DDH_INVALID_ARGUMENT, "counts without recv_counts", 1);
  });
}

TEST_CASE("an all_to_all whose ranks expect different counts is refused, and the error names both ranks", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  const uint64_t count = GENERATE(uint64_t{2}, uint64_t{100'000});  // a transport may send few elements in another way
  const uint64_t wrong = GENERATE_COPY(count + 1, count - 1);       // of rank 0
  const Outcome outcome = run_world(transport, 3, [count, wrong](CommRank& r) {
    if (!r.offers(r.table.all_to_all != nullptr, "all_to_all")) ddh::fail(DDH_UNIMPLEMENTED, kNothing);
    const std::vector<uint64_t> sent(3, count), got(3, r.rank == 0 ? wrong : count);
    std::vector<float> x(3 * count + 3), y(3 * count + 3);
    ddh_coll c{sizeof c,    DDH_F32, DDH_SUM, 0,      x.data(),   y.data(), 0,
               sent.data(), r.group, nullptr, "test", got.data(), nullptr};
    ddh::call(r.table.all_to_all, r.instance.get(), &c);
  });
  if (offered_nothing(outcome)) return;
  CHECK(outcome.exit_code == 1);
  if (is_told_why())
    CHECK_THAT(outcome.sentence, Catch::Contains("rank 0") && Catch::Contains(ddh::str("expects ", wrong)));
}

// Other collectives may not notice: the contract requires it only for all_to_all.
TEST_CASE("different calls of ranks are refused, and the error names the calls", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  if (are_tasks()) return;
  const Outcome outcome = run_world(transport, 2, [](CommRank& r) {
    std::vector<float> x(100);
    r.call(r.table.all_reduce, x.data(), x.data(), r.rank == 0 ? 100 : 99);
  });
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.sentence, Catch::Contains("all_reduce of 100") && Catch::Contains("all_reduce of 99"));
}

TEST_CASE("a rank that gives up ends the waits of the others with its reason", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kWaiting{200}, kPromised{1000}, kBusyMachine{4000};
  const SharedCount ended_in_time;
  const Outcome outcome = run_world(transport, 3, [&](CommRank& r) {
    ddh::call(r.table.barrier, r.instance.get(), r.group);
    if (r.rank == 1) {
      std::this_thread::sleep_for(kWaiting);
      ddh::fail(DDH_DATA_LOSS, "the disk ate my batch");
    }
    const auto begin = Clock::now();
    ddh::ErrorBuffer err;
    const ddh_rc rc = r.table.barrier(r.instance.get(), r.group, err.get());
    if (Clock::now() - begin < kWaiting + kPromised + kBusyMachine) ++*ended_in_time;
    err.check(rc);
  });
  if (outcome.exit_code == kLeftOut) return;
  CHECK(outcome.exit_code == 1);
  if (is_told_why()) CHECK_THAT(outcome.sentence, Catch::Contains("the disk ate my batch"));
  CHECK(*ended_in_time == (!are_tasks() ? 2 : is_task(1) ? 0 : 1));
}

TEST_CASE("a mark wakes a sleeping waiter, and regions leave no descriptor behind", "[comm]") {
  check_world(transports().back(), 2, [](CommRank& r) {
    if (!r.offers(r.shared_or_null != nullptr, "shared pages")) return;
    const auto descriptors = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    };
    uint32_t mark = 0;
    ddh::call(r.shared().marks_create, r.instance.get(), r.group, 1u, &mark);
    for (uint64_t i = 1; i <= 20; ++i) {
      if (r.rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the peer to sleep
        r.shared().mark_set(r.instance.get(), r.group, mark, i);
      } else {
        ddh::call(r.shared().mark_wait, r.instance.get(), r.group, 0, mark, i, "test");
      }
    }
    ddh::call(r.table.barrier, r.instance.get(), r.group);
    const auto before = descriptors();
    for (int i = 0; i < 5; ++i) {
      void* base = nullptr;
      ddh_region* region = nullptr;
      ddh::call(r.shared().region_create, r.instance.get(), r.group, "r", uint64_t{8192}, &base, &region);
      r.shared().region_destroy(r.instance.get(), region);
    }
    expect(descriptors() == before, "the number of open descriptors", 5);
  });
}

TEST_CASE("a region that the machine can't back is refused on every rank", "[comm]") {
  const Outcome outcome = run_world(transports().back(), 2, [](CommRank& r) {
    if (!r.offers(r.shared_or_null != nullptr, "shared pages")) ddh::fail(DDH_UNIMPLEMENTED, kNothing);
    void* base = nullptr;
    ddh_region* region = nullptr;
    ddh::call(r.shared().region_create, r.instance.get(), r.group, "huge", uint64_t{1} << 50, &base, &region);
  });
  if (offered_nothing(outcome)) return;
  CHECK(outcome.exit_code == 1);
  if (is_told_why()) CHECK_THAT(outcome.sentence, Catch::Contains("huge") && Catch::Contains("bytes"));
}
