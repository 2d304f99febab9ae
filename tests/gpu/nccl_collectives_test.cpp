// SPDX-License-Identifier: Apache-2.0
//
// The transport nccl on the stand-ins for the driver and for NCCL: every collective against the numbers that the host
// computes, with memory of the device, and refusals.
#include <dlfcn.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "cli/prepare.hpp"
#include "ddh/sdk/lowp.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/interfaces.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/setting.hpp"
#include "gpu/linked_libraries.hpp"
#include "launch/launch.hpp"

using namespace ddhost;
using namespace ddhost::test;
using Catch::Contains;

namespace {

const std::string kStandin = std::string(DDHOST_BUILD_DIR) + "/tests/standin/";

// One rank with a GPU and the transport, called as the host calls it.
class NcclRank {
 public:
  NcclRank(const PreparedRun& plan, const RankSeat& rank_seat, uint32_t reduce_block)
      : services_(rank_seat, plan.config.clone(),
                  std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>())),
        device_seat_(services_, "device:cuda"),
        comm_seat_(services_, "comm:nccl"),
        device_(plan.device, device_seat_.host(), "device"),
        rank(rank_seat.rank),
        world(rank_seat.world_size) {
    services_.device = std::make_unique<Device>(
        device_.get(), device_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE), uint64_t{0}, "cuda",
        rank_seat.local_rank);
    services_.memory.use(*services_.device);
    comm_ = Instance(plan.comm, comm_seat_.host(), "comm");
    table_ = &comm_.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
    const ddh_device_info info = services_.device->info();
    const ddh_comm_init init{sizeof init, rank, world, reduce_block, rank_seat.run_id, 0, rank, world, 0, &info};
    ddh::call(table_->init, comm_.get(), &init);
    group = table_->world(comm_.get());
  }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank() {
    comm_ = Instance();
    services_.memory.release_all();
    services_.device.reset();
  }

  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* const p = static_cast<T*>(services_.memory.allocate(DDH_TAG_COMM, values.size() * sizeof(T), "a test"));
    device().copy(p, DDH_MEM_DEVICE, values.data(), DDH_MEM_HOST, values.size() * sizeof(T), nullptr);
    return p;
  }
  template <class T>
  std::vector<T> read(const T* p, uint64_t numel) {
    std::vector<T> out(numel);
    device().copy(out.data(), DDH_MEM_HOST, p, DDH_MEM_DEVICE, numel * sizeof(T), nullptr);
    device().synchronize(nullptr);
    return out;
  }
  ddh_coll coll(const void* send, void* recv, uint64_t count) const {
    return {sizeof(ddh_coll), DDH_F32, DDH_SUM, 0,      send,    recv,   count,
            nullptr,          group,   nullptr, "test", nullptr, nullptr};
  }
  void call(ddh_rc (*collective)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept, const ddh_coll& c) {
    ddh::call(collective, comm_.get(), &c);
  }
  [[nodiscard]] const ddh_comm_backend_api& table() const { return *table_; }
  [[nodiscard]] ddh_inst* inst() const { return comm_.get(); }
  [[nodiscard]] Device& device() { return *services_.device; }

 private:
  RankServices services_;
  PluginSeat device_seat_, comm_seat_;
  Instance device_, comm_;
  const ddh_comm_backend_api* table_ = nullptr;

 public:
  const int32_t rank, world;
  ddh_group* group = nullptr;
};

Outcome run_world(int world, const std::function<void(NcclRank&)>& body, std::vector<Override> settings = {},
                  uint32_t reduce_block = 2) {
  Registry registry(&host_interface, DDHOST_BUILD_DIR, linked_plugins());
  settings.insert(settings.begin(),
                  {{"comm.plugin", "nccl", "test"},
                   {"comm.library", kStandin + "libnccl.so.2", "test"},
                   {"device.plugin", "cuda", "test"},
                   {"device.driver", kStandin + "libcuda.so.1", "test"},
                   {"model.plugin", std::string(DDHOST_BUILD_DIR) + "/tests/plugins/kernel_toy.so", "test"}});
  const PreparedRun plan = prepare_run(UserConfig::read("", settings), registry, world);
  LaunchArgs args;
  args.world_size = world;
  return launch(args, [&](const RankSeat& seat) {
    NcclRank rank(plan, seat, reduce_block);
    body(rank);
    rank.device().synchronize(nullptr);
    ddh::call(rank.table().finalize, rank.inst());
    return 0;
  });
}

void check_world(int world, const std::function<void(NcclRank&)>& body, const std::vector<Override>& settings = {}) {
  const Setting gpus("DDHOST_STANDIN_GPUS", "4");
  const Outcome outcome = run_world(world, body, settings);
  INFO("world " << world << ": " << outcome.sentence);
  CHECK(outcome.exit_code == 0);
}

void expect(bool ok, const char* what, uint64_t numel) {
  if (!ok) ddh::fail(DDH_INTERNAL, what, " is wrong with ", numel, " elements");
}

// Values whose sum depends on the order; rank -1 is an initial value.
float value(int32_t rank, uint64_t i) {
  const int32_t kind = (rank + 3) % 3;
  const float magnitude = kind == 0 ? 1e7F : kind == 1 ? -1e7F : 1.0F;
  return magnitude * (1.0F + 1e-3F * static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101));
}
std::vector<float> values(int32_t rank, uint64_t n) {
  std::vector<float> out(n);
  for (uint64_t i = 0; i < n; ++i) out[i] = value(rank, i);
  return out;
}
float sum_in_order(int32_t world, uint64_t i, int32_t block, bool from_start) {
  float total = from_start ? value(-1, i) : 0;
  for (int32_t first = 0; first < world; first += block) {
    float sum = value(first, i);
    for (int32_t p = first + 1; p < std::min(world, first + block); ++p) sum += value(p, i);
    total = first == 0 && !from_start ? sum : total + sum;
  }
  return total;
}

constexpr uint64_t kSizes[] = {1, 17, 300};

}  // namespace

TEST_CASE("sums over GPUs are in rank order, from a value or without, with equal and uneven pieces", "[gpu]") {
  const int world = GENERATE(1, 2, 3);
  check_world(world, [](NcclRank& r) {
    for (const uint64_t n : kSizes) {
      for (const bool from_start : {false, true}) {
        const float* const send = r.upload(values(r.rank, n));
        float* const recv = r.upload(std::vector<float>(n, NAN));
        ddh_coll c = r.coll(send, recv, n);
        if (from_start) c.initial = r.upload(values(-1, n));
        r.call(r.table().all_reduce, c);
        const std::vector<float> got = r.read(recv, n);
        for (uint64_t i = 0; i < n; ++i) expect(got[i] == sum_in_order(r.world, i, 2, from_start), "all_reduce", n);

        // Pieces of n, n + 1, n + 2 elements; the second time in place, where the start is the contribution's own place.
        std::vector<uint64_t> counts;
        uint64_t total = 0, offset = 0;
        for (int32_t p = 0; p < r.world; ++p) {
          if (p == r.rank) offset = total;
          counts.push_back(n + static_cast<uint64_t>(p));
          total += counts.back();
        }
        const uint64_t mine = counts[static_cast<size_t>(r.rank)];
        for (const bool in_place : {false, true}) {
          float* const all = r.upload(values(r.rank, total));
          float* const piece = in_place ? all + offset : r.upload(std::vector<float>(mine, NAN));
          ddh_coll scatter = r.coll(all, piece, 0);
          scatter.counts = counts.data();
          std::vector<float> start(mine);
          for (uint64_t i = 0; i < mine; ++i) start[i] = value(-1, offset + i);
          if (from_start) scatter.initial = r.upload(start);
          r.call(r.table().reduce_scatter, scatter);
          const std::vector<float> part = r.read(piece, mine);
          for (uint64_t i = 0; i < mine; ++i)
            expect(part[i] == sum_in_order(r.world, offset + i, 2, from_start), "reduce_scatter", n);
        }
      }
    }
  });
}

TEST_CASE("moves between GPUs bring every element to its place", "[gpu]") {
  check_world(3, [](NcclRank& r) {
    const auto n_ranks = static_cast<uint64_t>(r.world), me = static_cast<uint64_t>(r.rank);
    for (const uint64_t n : kSizes) {
      for (const bool uneven : {false, true}) {
        std::vector<uint64_t> counts;
        std::vector<float> expected;
        for (uint64_t p = 0; p < n_ranks; ++p) {
          counts.push_back(uneven ? n * p : n);
          const std::vector<float> theirs = values(static_cast<int32_t>(p), counts.back());
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        float* const all = r.upload(std::vector<float>(expected.size(), NAN));
        ddh_coll gather = r.coll(r.upload(values(r.rank, std::max<uint64_t>(counts[me], 1))), all, n);
        if (uneven) gather.counts = counts.data();
        r.call(r.table().all_gather, gather);
        expect(r.read(all, expected.size()) == expected, "all_gather", n);
      }
      float* const buffer = r.upload(values(r.rank, n));
      ddh_coll cast = r.coll(buffer, buffer, n);
      cast.root = 1;
      r.call(r.table().broadcast, cast);
      expect(r.read(buffer, n) == values(1, n), "broadcast", n);

      float* const around = r.upload(std::vector<float>(n, NAN));
      if (r.rank == 0) {
        ddh_coll out = r.coll(r.upload(values(7, n)), nullptr, n);
        out.root = 2;
        r.call(r.table().send, out);
      } else if (r.rank == 2) {
        r.call(r.table().recv, r.coll(nullptr, around, n));
        expect(r.read(around, n) == values(7, n), "send and recv", n);
      }
      std::vector<float> pieces, came;
      for (uint64_t p = 0; p < n_ranks; ++p)
        for (uint64_t i = 0; i < n; ++i) {
          pieces.push_back(static_cast<float>(me * 1000 + p * 100 + i % 10));
          came.push_back(static_cast<float>(p * 1000 + me * 100 + i % 10));
        }
      float* const exchanged = r.upload(std::vector<float>(came.size(), NAN));
      r.call(r.table().all_to_all, r.coll(r.upload(pieces), exchanged, n));
      expect(r.read(exchanged, came.size()) == came, "all_to_all", n);
    }
  });
}

TEST_CASE("integers are summed by NCCL, and with ordered_sums=false fp32 too, where the bits may differ", "[gpu]") {
  check_world(3, [](NcclRank& r) {
    int64_t* const counted = r.upload(std::vector<int64_t>{r.rank + 1, -5});
    ddh_coll c = r.coll(counted, counted, 2);
    c.dtype = DDH_I64;
    r.call(r.table().all_reduce, c);
    expect(r.read(counted, 2) == std::vector<int64_t>{6, -15}, "a sum of integers", 2);
    c.dtype = DDH_F64;
    ddh::ErrorBuffer err;
    const ddh_rc rc = r.table().all_reduce(r.inst(), &c, err.get());
    expect(rc == DDH_UNIMPLEMENTED && std::string(err.text()).find("ordered_sums=false") != std::string::npos,
           "the refusal of a sum of F64", 2);
  });
  check_world(3,
              [](NcclRank& r) {
                constexpr uint64_t n = 300;
                float* const x = r.upload(values(r.rank, n));
                ddh_coll c = r.coll(x, x, n);
                c.initial = r.upload(std::vector<float>(n, 1.0F));
                r.call(r.table().all_reduce, c);
                const std::vector<float> got = r.read(x, n);
                bool differs = false;
                for (uint64_t i = 0; i < n; ++i) {
                  const float expected = sum_in_order(r.world, i, 1, false) + 1;
                  differs = differs || got[i] != expected;
                  expect(std::abs(got[i] - expected) <= 4, "a sum in NCCL's order", n);
                }
                expect(differs, "the order of the stand-in's sums", n);
              },
              {{"comm.ordered_sums", "false", "test"}});
}

TEST_CASE("a group of some ranks has its own numbers", "[gpu]") {
  check_world(3, [](NcclRank& r) {
    if (r.rank == 1) return;
    const int32_t members[] = {0, 2};
    ddh_group* pair = nullptr;
    ddh::call(r.table().group_create, r.inst(), "pair", members, 2U, &pair);
    float* const all = r.upload(std::vector<float>(2, NAN));
    ddh_coll c = r.coll(r.upload(std::vector<float>{static_cast<float>(r.rank)}), all, 1);
    c.group = pair;
    r.call(r.table().all_gather, c);
    expect(r.read(all, 2) == std::vector<float>{0, 2}, "all_gather of a group", 1);
  });
}

namespace {

void check_mismatch_is_found() {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  const Outcome outcome = run_world(2, [](NcclRank& r) {
    float* const all = r.upload(std::vector<float>(404, NAN));
    r.call(r.table().all_gather, r.coll(r.upload(values(r.rank, 101)), all, r.rank == 0 ? 100 : 101));
    r.device().synchronize(nullptr);
  });
  CHECK(outcome.exit_code != 0);
}

void check_swap_is_found() {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  const Outcome outcome = run_world(2, [](NcclRank& r) {
    constexpr uint64_t n = 64;
    float *const x = r.upload(values(r.rank, n)), *const all = r.upload(std::vector<float>(2 * n, NAN));
    const auto gather = [&] { r.call(r.table().all_gather, r.coll(x, all, n)); };
    const auto cast = [&] { r.call(r.table().broadcast, r.coll(x, x, n)); };
    if (r.rank == 0) gather();
    cast();
    if (r.rank != 0) gather();
    r.device().synchronize(nullptr);
  });
  CHECK(outcome.exit_code != 0);
}

}  // namespace

TEST_CASE("ranks whose calls don't match end with an error, and none hangs", "[gpu]") { check_mismatch_is_found(); }

TEST_CASE("ranks that swap two collectives end with an error", "[gpu]") { check_swap_is_found(); }

TEST_CASE("ranks whose calls don't match, or are swapped, are found in ten of ten runs", "[.all]") {
  for (int i = 0; i < 10; ++i) {
    check_mismatch_is_found();
    check_swap_is_found();
  }
}

namespace {

const std::vector<Override> kSymmetric = {{"comm.symmetric_windows", "true", "test"}, {"comm.timeout_s", "1", "test"}};

float* window_of(NcclRank& r, uint64_t numel) {
  void* out = nullptr;
  ddh::call(r.table().buffer_allocate, r.inst(), r.group, numel * sizeof(float), &out);
  return static_cast<float*>(out);
}

// A run of two ranks with symmetric windows.
Outcome run_windows(const std::function<void(NcclRank&)>& body) {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  return run_world(2, body, kSymmetric);
}

}  // namespace

TEST_CASE("a symmetric window is used by collectives and given back; without the option there is none", "[gpu]") {
  const auto gather = [](NcclRank& r) {
    constexpr uint64_t n = 64;
    float* const all = window_of(r, 2 * n);
    expect(all != nullptr, "the memory of a window", n);
    float* const mine = all + static_cast<uint64_t>(r.rank) * n;
    r.device().copy(mine, DDH_MEM_DEVICE, values(r.rank, n).data(), DDH_MEM_HOST, n * sizeof(float), nullptr);
    r.call(r.table().all_gather, r.coll(mine, all, n));
    std::vector<float> expected = values(0, n);
    const std::vector<float> of_last = values(1, n);
    expected.insert(expected.end(), of_last.begin(), of_last.end());
    expect(r.read(all, 2 * n) == expected, "all_gather in a window", n);
    r.table().buffer_release(r.inst(), r.group, all);
  };
  const Outcome right = run_windows(gather);
  INFO(right.sentence);
  CHECK(right.exit_code == 0);
  check_world(2, [](NcclRank& r) { expect(window_of(r, 64) == nullptr, "a window without the option", 64); });
}

namespace {

void check_window_mistakes_are_found() {
  CHECK(run_windows([](NcclRank& r) { window_of(r, r.rank == 0 ? 64 : 128); }).exit_code != 0);  // different sizes
  const Outcome by_one_rank = run_windows([](NcclRank& r) {
    if (r.rank == 0)
      window_of(r, 64);
    else
      std::this_thread::sleep_for(std::chrono::seconds(20));
  });
  CHECK_THAT(by_one_rank.sentence, Contains("NCCL was not done with registering a window in group 'world'"));
  const Outcome beyond_the_end = run_windows([](NcclRank& r) {
    float* const window = window_of(r, 64);
    r.call(r.table().broadcast, r.coll(window + 32, window + 32, 64));
  });
  CHECK(beyond_the_end.exit_code != 0);
}

}  // namespace

TEST_CASE("mistakes with symmetric windows end the run", "[gpu]") { check_window_mistakes_are_found(); }

TEST_CASE("mistakes with symmetric windows are found in ten of ten runs", "[.all]") {
  for (int i = 0; i < 10; ++i) check_window_mistakes_are_found();
}

TEST_CASE("symmetric windows are refused with an NCCL that has none, or makes none between the GPUs", "[gpu]") {
  {
    const Setting none("DDHOST_STANDIN_NCCL_NO_WINDOWS", "1");
    CHECK_THAT(run_windows([](NcclRank& r) { window_of(r, 64); }).sentence,
               Contains("NCCL makes no symmetric windows") && Contains("comm.symmetric_windows=false"));
  }
  const Setting old("DDHOST_STANDIN_NCCL_VERSION", "22602");
  CHECK_THAT(run_world(
                 1, [](NcclRank&) {}, kSymmetric)
                 .sentence,
             Contains("needs NCCL 2.27") && Contains("is 2.26.2") && Contains("comm.symmetric_windows=false"));
}

TEST_CASE("two ranks on one GPU are refused", "[gpu]") {
  const Outcome outcome = run_world(2, [](NcclRank&) {});
  CHECK(outcome.exit_code != 0);
  CHECK_THAT(outcome.sentence, Contains("ranks 0 and 1 use the same GPU") && Contains("--comm shm"));
}

TEST_CASE("a library that is missing, foreign or old is refused with one sentence", "[gpu]") {
  const auto refusal = [](const std::string& library) {
    return run_world(1, [](NcclRank&) {}, {{"comm.library", library, "test"}}).sentence;
  };
  CHECK_THAT(refusal("libnccl-none.so.2"), Contains("NCCL was not found") && Contains("--comm shm"));
  CHECK_THAT(refusal("libm.so.6"), Contains("lacks ncclGetVersion") && Contains("comm.library"));
  const Setting old("DDHOST_STANDIN_NCCL_VERSION", "21403");
  CHECK_THAT(refusal(kStandin + "libnccl.so.2"), Contains("is NCCL 2.14.3") && Contains("2.18.0"));
}

TEST_CASE("a rank that never connects ends the run at the deadline", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  const Outcome outcome = run_world(2,
                                    [](NcclRank& r) {
                                      if (r.rank == 1)
                                        std::this_thread::sleep_for(std::chrono::seconds(20));  // in no group
                                      const int32_t members[] = {0, 1};
                                      ddh_group* pair = nullptr;
                                      ddh::call(r.table().group_create, r.inst(), "pair", members, 2U, &pair);
                                    },
                                    {{"comm.timeout_s", "1", "test"}});
  CHECK_THAT(outcome.sentence, Contains("NCCL was not done with connecting the ranks in group 'pair'"));
}

TEST_CASE("the plugin nccl links neither NCCL nor CUDA", "[gpu]") {
  const std::vector<std::string> lines = ddhost::test::linked_libraries("nccl.so");
  for (const std::string& line : lines)
    for (const char* foreign : {"cuda", "nccl", "torch"}) CHECK(line.find(foreign) == std::string::npos);
  CHECK(!lines.empty());
}
