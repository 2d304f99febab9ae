// SPDX-License-Identifier: Apache-2.0
//
// The handshakes of windows and exchanges over shared pages, with ranks that sleep at critical points: no rank
// overwrites data that another rank still reads, and no rank reads data that is not written yet. The transport here is
// a few atomics.
#include "engine/services/memory/windows.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

using namespace ddhost;

namespace {

constexpr int kRanks = 3;
constexpr size_t kMarks = 64;

// Memory and marks of a world of threads.
struct World {
  std::mutex mutex;
  std::map<uint64_t, std::vector<char>> regions;  // by order of creation
  std::array<std::array<std::atomic<uint64_t>, kMarks>, kRanks> marks{};
  std::array<const void*, kRanks> sent{};  // of the all_gather that runs
  std::barrier<> all_ranks{kRanks};
};

struct RankTransport {
  World* world;
  int32_t rank;
  uint64_t regions_made = 0;
  uint32_t marks_made = 0;
};
RankTransport& transport(ddh_inst* inst) { return *reinterpret_cast<RankTransport*>(inst); }

ddh_comm_backend_api make_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return reinterpret_cast<ddh_group*>(transport(i).world); };
  t.group_info = [](ddh_inst* i, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps,
                    ddh_err*) noexcept -> ddh_rc {
    *rank = transport(i).rank;
    *size = kRanks;
    *caps = DDH_COMM_SHARED_VIEW | DDH_COMM_ORDERED_SUM;
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst* i, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    World& world = *transport(i).world;
    const uint64_t bytes = c->count * ddh_dtype_bytes(c->dtype);
    world.sent[static_cast<size_t>(transport(i).rank)] = c->send;
    world.all_ranks.arrive_and_wait();
    for (size_t r = 0; r < kRanks; ++r) std::memcpy(static_cast<char*>(c->recv) + r * bytes, world.sent[r], bytes);
    world.all_ranks.arrive_and_wait();
    return DDH_OK;
  };
  return t;
}

ddh_comm_shared_api make_shared() {
  ddh_comm_shared_api t{};
  t.struct_size = sizeof t;
  t.region_create = [](ddh_inst* i, ddh_group*, const char*, uint64_t bytes, void** base, ddh_region**,
                       ddh_err*) noexcept -> ddh_rc {
    RankTransport& r = transport(i);
    const std::lock_guard lock(r.world->mutex);
    std::vector<char>& region = r.world->regions[r.regions_made++];
    if (region.empty()) region.resize(bytes);
    *base = region.data();
    return DDH_OK;
  };
  t.region_destroy = [](ddh_inst*, ddh_region*) noexcept {};
  t.marks_create = [](ddh_inst* i, ddh_group*, uint32_t n, uint32_t* first, ddh_err*) noexcept -> ddh_rc {
    *first = transport(i).marks_made;
    transport(i).marks_made += n;
    return DDH_OK;
  };
  t.mark_set = [](ddh_inst* i, ddh_group*, uint32_t mark, uint64_t value) noexcept {
    transport(i).world->marks[static_cast<size_t>(transport(i).rank)][mark].store(value, std::memory_order_release);
  };
  t.mark_wait = [](ddh_inst* i, ddh_group*, int32_t peer, uint32_t mark, uint64_t value, const char*,
                   ddh_err*) noexcept -> ddh_rc {
    const auto& at = transport(i).world->marks[static_cast<size_t>(peer)][mark];
    while (at.load(std::memory_order_acquire) < value) std::this_thread::yield();
    return DDH_OK;
  };
  return t;
}

struct Rank {
  Rank(World& world, int32_t rank, uint32_t block) : transport{&world, rank}, reduce_block(block) {}
  RankTransport transport;
  ddh_comm_backend_api backend = make_backend();
  ddh_comm_shared_api shared = make_shared();
  Clock clock;
  Memory memory;
  Comm comm{reinterpret_cast<ddh_inst*>(&transport), &backend, &shared, clock};
  Staging staging{memory};
  const uint32_t reduce_block;
  Windows windows{comm, memory, staging, {false, false, reduce_block}};
};

void in_world(const std::function<void(Rank&)>& body, uint32_t reduce_block = 1) {
  World world;
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(world, r, reduce_block);
      body(rank);
    });
  }
  for (std::thread& t : threads) t.join();
}

void sleep_when(bool condition) {
  if (condition) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct NoNorm : NormSink {
  void add_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>) override {}
  [[nodiscard]] bool sums_on_device() const override { return false; }
  void add_device_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>, ddh_stream*) override {
    ddh::fail(DDH_INTERNAL, "a transport of host memory gave a gradient in memory of the device");
  }
};

// The elements of which a norm was told, in order.
struct SeenGradient final : NoNorm {
  void add_gradient(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range>) override {
    if (begin == values.size()) values.insert(values.end(), grad, grad + numel);
  }
  std::vector<float> values;
};

constexpr uint64_t kSegments[kRanks] = {128, 64, 0};  // uneven, and one rank without a segment
constexpr uint64_t kTotal = 192;

ddh_window_args window_args(uint32_t flags) {
  return {sizeof(ddh_window_args), DDH_F32, nullptr, kSegments, "w", DDH_TAG_PARAM, flags};
}

}  // namespace

TEST_CASE("a reader only sees complete epochs, whichever rank is late") {
  const int late = GENERATE(0, 1, 2), place = GENERATE(0, 1, 2);
  std::atomic<int> wrong{0};
  in_world([&](Rank& rank) {
    ddh_window* w = rank.windows.create(window_args(DDH_WINDOW_PERMANENT));
    const bool is_late = rank.comm.rank() == late;
    for (int epoch = 1; epoch <= 20; ++epoch) {
      w->write_begin(nullptr);
      sleep_when(is_late && place == 0);  // before writing: nobody may open yet
      std::fill_n(static_cast<float*>(w->segment()), kSegments[rank.comm.rank()], static_cast<float>(epoch));
      w->commit(nullptr);
      const auto* view = static_cast<const float*>(w->open(nullptr, nullptr));
      for (uint64_t i = 0; i < kTotal; ++i) wrong += view[i] != static_cast<float>(epoch);
      sleep_when(is_late && place == 1);  // while reading: nobody may write yet
      for (uint64_t i = 0; i < kTotal; ++i) wrong += view[i] != static_cast<float>(epoch);
      w->close(nullptr);
      sleep_when(is_late && place == 2);  // between close and the next write
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a window that is open can't be written, and close needs an open") {
  std::atomic<int> refused{0};
  in_world([&](Rank& rank) {
    ddh_window* w = rank.windows.create(window_args(0));
    w->write_begin(nullptr);
    w->commit(nullptr);
    w->open(nullptr, nullptr);
    try {
      w->write_begin(nullptr);
    } catch (const ddh::Error& e) {
      refused += std::string(e.what()).find("'w'") != std::string::npos;
    }
    w->close(nullptr);
    try {
      w->close(nullptr);
    } catch (const ddh::Error&) {
      ++refused;
    }
  });
  CHECK(refused == 2 * kRanks);
}

TEST_CASE("memory always counts the segment, and counts the rest of an open view as an alias") {
  std::atomic<int> wrong{0};
  in_world([&](Rank& rank) {
    const uint64_t own = kSegments[rank.comm.rank()] * sizeof(float);
    ddh_window* w = rank.windows.create(window_args(0));
    w->write_begin(nullptr);
    w->commit(nullptr);
    wrong += rank.memory.usage(DDH_TAG_PARAM).now_bytes != own;
    w->open(nullptr, nullptr);
    w->open(nullptr, nullptr);
    wrong += rank.memory.usage(DDH_TAG_PARAM).now_bytes != kTotal * sizeof(float);
    w->close(nullptr);
    wrong += rank.memory.usage(DDH_TAG_PARAM).now_bytes != kTotal * sizeof(float);
    w->close(nullptr);
    wrong += rank.memory.usage(DDH_TAG_PARAM).now_bytes != own;
    wrong += rank.memory.usage(DDH_TAG_PARAM).unique_peak_bytes != own;
    rank.windows.destroy(w);
    wrong += rank.memory.usage(DDH_TAG_PARAM).now_bytes != 0;
  });
  CHECK(wrong == 0);
}

TEST_CASE("gradients are summed in rank order from complete buffers, generation after generation") {
  const int late = GENERATE(0, 1, 2), place = GENERATE(0, 1, 2);
  const bool to_all = GENERATE(false, true);
  std::atomic<int> wrong{0};
  in_world([&](Rank& rank) {
    NoNorm norm;
    ddh_exchange* x = rank.windows.create_exchange({sizeof(ddh_exchange_args), 0, nullptr, kTotal, "x"});
    const auto me = static_cast<size_t>(rank.comm.rank());
    const bool is_late = rank.comm.rank() == late;
    const uint64_t offset = me == 0 ? 0 : me == 1 ? 128 : 192;
    for (int generation = 1; generation <= 20; ++generation) {
      const auto value = [&](size_t r) {
        return static_cast<float>(generation) * (r == 0 ? 1e8F : r == 1 ? 1.0F : -1e8F);
      };
      x->write_begin(nullptr);
      sleep_when(is_late && place == 0);
      std::fill_n(x->buffer(), kTotal, value(me));
      x->ready(nullptr);
      sleep_when(is_late && place == 1);  // peers wait for my sum, or go on to write_begin
      const uint32_t flags = to_all ? DDH_REDUCE_TO_ALL : 0;
      x->reduce({sizeof(ddh_reduce_args), flags, kSegments, nullptr, nullptr, 0, 0}, norm, nullptr);
      sleep_when(is_late && place == 2);
      const float expected = (value(0) + value(1)) + value(2);
      if (to_all) x->wait(nullptr);
      const uint64_t first = to_all ? 0 : offset, count = to_all ? kTotal : kSegments[me];
      for (uint64_t i = first; i < first + count; ++i) wrong += x->buffer()[i] != expected;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("further micro-batches are added to the sum of the earlier ones, block after block") {
  const uint32_t block = GENERATE(1u, 3u);
  const bool to_all = GENERATE(false, true);
  // Of micro-batch m and rank r: every order of these sums gives another result.
  const auto value = [](int m, int r) {
    return std::array{1e8F, 1.25F, -1e8F, 3.5F, 0.7F, -2e7F, 11.0F, 2e7F, 0.3F}[static_cast<size_t>(3 * m + r)];
  };
  float expected = 0;
  for (int m = 0; m < 3; ++m) {
    const float in_block = (value(m, 0) + value(m, 1)) + value(m, 2);
    if (block == 3)
      expected = m == 0 ? in_block : expected + in_block;
    else
      for (int r = 0; r < kRanks; ++r) expected = m == 0 && r == 0 ? value(m, r) : expected + value(m, r);
  }
  std::atomic<int> wrong{0};
  in_world(
      [&](Rank& rank) {
        NoNorm norm;
        ddh_exchange* x = rank.windows.create_exchange({sizeof(ddh_exchange_args), 0, nullptr, kTotal, "x"});
        std::vector<float> sum(kSegments[rank.comm.rank()] + 1);
        for (int micro = 0; micro < 3; ++micro) {
          x->write_begin(nullptr);
          std::fill_n(x->buffer(), kTotal, value(micro, rank.comm.rank()));
          x->ready(nullptr);
          const uint32_t flags = (micro > 0 ? DDH_REDUCE_ADD : 0) | (to_all && micro == 2 ? DDH_REDUCE_TO_ALL : 0);
          x->reduce({sizeof(ddh_reduce_args), flags, kSegments, sum.data(), nullptr, 0, 0}, norm, nullptr);
        }
        for (uint64_t i = 0; i < kSegments[rank.comm.rank()]; ++i) wrong += sum[i] != expected;
        if (!to_all) return;
        x->wait(nullptr);
        for (uint64_t i = 0; i < kTotal; ++i) wrong += x->buffer()[i] != expected;
      },
      block);
  CHECK(wrong == 0);
}

TEST_CASE("a sum that is too large for the caches is the same, at any address") {
  const uint64_t shift = GENERATE(0, 1);  // elements
  constexpr uint64_t kNumel = (uint64_t{1} << 20) + 7;
  constexpr std::array<uint64_t, kRanks> kLarge{kNumel, kNumel, kNumel};
  const auto value = [](uint64_t i, int r) {
    return std::array{1e8F, 1.25F, -1e8F}[static_cast<size_t>(r)] + static_cast<float>(i % 1000);
  };
  std::atomic<int> wrong{0};
  in_world([&](Rank& rank) {
    SeenGradient norm;
    ddh_exchange* x = rank.windows.create_exchange({sizeof(ddh_exchange_args), 0, nullptr, kRanks * kNumel, "x"});
    x->write_begin(nullptr);
    for (uint64_t i = 0; i < kRanks * kNumel; ++i) x->buffer()[i] = value(i, rank.comm.rank());
    x->ready(nullptr);
    std::vector<float> sum(kNumel + shift + 1, -1.0F);
    x->reduce({sizeof(ddh_reduce_args), DDH_REDUCE_NORM, kLarge.data(), sum.data() + shift, nullptr, 0, 0}, norm,
              nullptr);
    const uint64_t first = kNumel * static_cast<uint64_t>(rank.comm.rank());
    for (uint64_t i = 0; i < kNumel; ++i) {
      const float expected = (value(first + i, 0) + value(first + i, 1)) + value(first + i, 2);
      wrong += sum[shift + i] != expected || i >= norm.values.size() || norm.values[i] != expected;
    }
    wrong += sum.back() != -1.0F;
  });
  CHECK(wrong == 0);
}

TEST_CASE("the time of another thread's span counts for that span, and its end does not end the main thread's span") {
  Clock clock;
  clock.restart();
  clock.begin(DDH_SPAN_BACKWARD);
  std::thread([&] {
    const ClockSpan span(clock, DDH_SPAN_COMM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }).join();
  std::thread([&] { clock.end(); }).join();  // has no span: changes nothing
  CHECK(clock.split_ms()[DDH_SPAN_COMM] >= 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(clock.split_ms()[DDH_SPAN_BACKWARD] >= 20);

  std::atomic<int> step{0};
  const auto wait_for = [&](int value) {
    while (step < value) std::this_thread::yield();
  };
  std::thread other([&] {
    clock.begin(DDH_SPAN_COMM);
    step = 1;
    wait_for(2);
    clock.end();  // its own, though the main thread's began later
    step = 3;
  });
  wait_for(1);
  clock.begin(DDH_SPAN_OPTIM);
  step = 2;
  other.join();
  const double comm_before = clock.split_ms()[DDH_SPAN_COMM], optim_before = clock.split_ms()[DDH_SPAN_OPTIM];
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(clock.split_ms()[DDH_SPAN_COMM] == comm_before);
  CHECK(clock.split_ms()[DDH_SPAN_OPTIM] >= optim_before + 5);
  clock.end();
  clock.end();

  // Spans of several threads at once leave nothing open.
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const ClockSpan outer(clock, DDH_SPAN_COMM), inner(clock, DDH_SPAN_OPTIM);
      }
    });
  for (std::thread& t : threads) t.join();
  const double backward = clock.split_ms()[DDH_SPAN_BACKWARD];
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(clock.split_ms()[DDH_SPAN_BACKWARD] == backward);
  CHECK(clock.split_ms()[DDH_SPAN_OTHER] >= 5);
}

TEST_CASE("ranks that cut a window at different places are named on every rank") {
  std::atomic<int> named{0};
  in_world([&](Rank& rank) {
    const uint64_t odd[kRanks] = {64, rank.comm.rank() == 2 ? 128U : 64U, 64};
    try {
      rank.windows.create({sizeof(ddh_window_args), DDH_F32, nullptr, odd, "w", DDH_TAG_PARAM, 0});
    } catch (const ddh::Error& error) {
      named +=
          std::string(error.what()).find("segment 1 of window 'w' has 128 elements on rank 2") != std::string::npos;
    }
  });
  CHECK(named == kRanks);
}
