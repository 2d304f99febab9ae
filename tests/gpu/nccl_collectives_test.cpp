// SPDX-License-Identifier: Apache-2.0
//
// The transport nccl: every collective against the numbers that the host computes, with memory of the device, and refusals.
// It runs on the stand-ins for the driver and for NCCL, and on real ones (place.hpp) with as many ranks as there are GPUs.
#include <filesystem>

#include "ddh/sdk/kernels/lowp.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "gpu/linked_libraries.hpp"
#include "gpu/nccl_fixture.hpp"

using namespace ddhost;
using namespace ddhost::test;
using Catch::Contains;

namespace {

void check_world(int world, const std::function<void(NcclRank&)>& body, const std::vector<Override>& settings = {}) {
  const StandinGpus gpus(4);
  const Outcome outcome = run_world(world, body, settings);
  INFO("world " << world << ": " << outcome.sentence);
  CHECK(outcome.exit_code == 0);
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
  if (lacks_gpus_for(world)) return;
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
  check_world(gpus_for(3), [](NcclRank& r) {
    const auto n_ranks = static_cast<uint64_t>(r.world), me = static_cast<uint64_t>(r.rank);
    for (const uint64_t n : kSizes) {
      for (const bool uneven : {false, true}) {
        if (uneven && r.world == 1) continue;
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
      cast.root = r.world / 2;
      r.call(r.table().broadcast, cast);
      expect(r.read(buffer, n) == values(r.world / 2, n), "broadcast", n);

      float* const around = r.upload(std::vector<float>(n, NAN));
      const int32_t last = r.world - 1;
      if (r.rank == 0 && last > 0) {
        ddh_coll out = r.coll(r.upload(values(7, n)), nullptr, n);
        out.root = last;
        r.call(r.table().send, out);
      } else if (r.rank == last && last > 0) {
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
  const int world = gpus_for(3);
  check_world(world, [](NcclRank& r) {
    int64_t* const counted = r.upload(std::vector<int64_t>{r.rank + 1, -5});
    ddh_coll c = r.coll(counted, counted, 2);
    c.dtype = DDH_I64;
    r.call(r.table().all_reduce, c);
    const int64_t n_ranks = r.world;
    expect(r.read(counted, 2) == std::vector<int64_t>{n_ranks * (n_ranks + 1) / 2, -5 * n_ranks}, "a sum of integers",
           2);
    c.dtype = DDH_F64;
    ddh::ErrorBuffer err;
    const ddh_rc rc = r.table().all_reduce(r.inst(), &c, err.get());
    expect(rc == DDH_UNIMPLEMENTED && std::string(err.text()).find("ordered_sums=false") != std::string::npos,
           "the refusal of a sum of F64", 2);
  });
  check_world(world,
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
                if (on_stand_ins()) expect(differs, "the order of the stand-in's sums", n);
              },
              {{"comm.ordered_sums", "false", "test"}});
}

TEST_CASE("with ordered_sums=false NCCL's reduce_scatter sums, from a value or without, also in place", "[gpu]") {
  const int world = GENERATE(1, 3);
  if (lacks_gpus_for(world)) return;
  check_world(world,
              [](NcclRank& r) {
                constexpr uint64_t n = 300;
                const uint64_t offset = n * static_cast<uint64_t>(r.rank), total = n * static_cast<uint64_t>(r.world);
                bool differs = false;
                for (const bool from_start : {false, true}) {
                  for (const bool in_place : {false, true}) {
                    float* const all = r.upload(values(r.rank, total));
                    float* const piece = in_place ? all + offset : r.upload(std::vector<float>(n, NAN));
                    ddh_coll c = r.coll(all, piece, n);
                    if (from_start) c.initial = r.upload(std::vector<float>(n, 1.0F));
                    r.call(r.table().reduce_scatter, c);
                    const std::vector<float> got = r.read(piece, n);
                    for (uint64_t i = 0; i < n; ++i) {
                      const float expected = sum_in_order(r.world, offset + i, 1, false) + (from_start ? 1.0F : 0.0F);
                      differs = differs || got[i] != expected;
                      expect(std::abs(got[i] - expected) <= 4, "a sum in NCCL's order", n);
                    }
                  }
                }
                if (on_stand_ins() && r.world > 1) expect(differs, "the order of the stand-in's sums", n);
              },
              {{"comm.ordered_sums", "false", "test"}});
}

TEST_CASE("a group of some ranks has its own numbers", "[gpu]") {
  if (lacks_gpus_for(3)) return;
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

TEST_CASE("a symmetric window is used by collectives and given back; without the option there is none", "[gpu]") {
  if (lacks_gpus_for(2)) return;
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
  const StandinGpus gpus(2);
  const Outcome right = run_world(2, gather, {{"comm.symmetric_windows", "true", "test"}});
  INFO(right.sentence);
  const bool has_none = right.sentence.find("makes no symmetric windows") != std::string::npos ||
                        right.sentence.find("needs NCCL 2.27") != std::string::npos;
  if (!on_stand_ins() && has_none) return skip(right.sentence);
  CHECK(right.exit_code == 0);
  check_world(2, [](NcclRank& r) { expect(window_of(r, 64) == nullptr, "a window without the option", 64); });
}

TEST_CASE("two ranks on one GPU are refused", "[gpu]") {
  const std::string shown = from_environment("CUDA_VISIBLE_DEVICES", "0");
  const Setting first("CUDA_VISIBLE_DEVICES", shown.substr(0, shown.find(',')).c_str());
  const Outcome outcome = run_world(2, [](NcclRank&) {});
  CHECK(outcome.exit_code != 0);
  CHECK_THAT(outcome.sentence, Contains("ranks 0 and 1 use the same GPU") && Contains("--comm shm"));
}

TEST_CASE("ranks share a GPU with comm.share_gpu, and the sum is that of ranks with a GPU each", "[gpu]") {
  const std::string shown = from_environment("CUDA_VISIBLE_DEVICES", "0");
  const Setting first("CUDA_VISIBLE_DEVICES", shown.substr(0, shown.find(',')).c_str());
  const auto sums = [](NcclRank& rank) {
    const auto* const mine = rank.upload(std::vector<float>(100, static_cast<float>(rank.rank + 1)));
    auto* const sum = rank.upload(std::vector<float>(100));
    rank.call(rank.table().all_reduce, rank.coll(mine, sum, 100));
    if (rank.read(sum, 100) != std::vector<float>(100, 3)) ddh::fail(DDH_INTERNAL, "another sum");
  };
  const Outcome outcome = run_world(2, sums, {{"comm.share_gpu", "true", "test"}});
  INFO(outcome.sentence);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("a library that is missing or foreign is refused with one sentence", "[gpu]") {
  const auto refusal = [](const std::string& library) {
    return run_world(1, [](NcclRank&) {}, {{"comm.library", library, "test"}}).sentence;
  };
  CHECK_THAT(refusal("libnccl-none.so.2"), Contains("NCCL was not found") && Contains("--comm shm"));
  CHECK_THAT(refusal("libm.so.6"), Contains("lacks ncclGetVersion") && Contains("comm.library"));
}

TEST_CASE("a library that the loader does not find is found where pip installs it for the LibTorch that is loaded",
          "[gpu]") {
  if (needs_stand_ins("the loader may find a machine's own NCCL")) return;
  const TempFolder folder;
  const std::string torch = folder.file("torch/lib"), nccl = folder.file("nvidia/nccl/lib");
  for (const std::string& path : {torch, nccl}) std::filesystem::create_directories(path);
  std::filesystem::copy_file(nccl_file(), nccl + "/libnccl-of-pip.so.2");
  std::filesystem::copy_file(nccl_file(), torch + "/libtorch_cpu.so");  // any library
  const std::vector<Override> named = {{"comm.library", "libnccl-of-pip.so.2", "test"}};
  CHECK_THAT(run_world(
                 1, [](NcclRank&) {}, named)
                 .sentence,
             Contains("NCCL was not found"));
  REQUIRE(dlopen((torch + "/libtorch_cpu.so").c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr);
  const Outcome outcome = run_world(
      1, [](NcclRank&) {}, named);
  INFO(outcome.sentence);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("the plugin nccl links neither NCCL nor CUDA", "[gpu]") {
  if (needs_stand_ins("what the plugins link is a question to the build")) return;
  const std::vector<std::string> lines = ddhost::test::linked_libraries("nccl.so");
  for (const std::string& line : lines)
    for (const char* foreign : {"cuda", "nccl", "torch"}) CHECK(line.find(foreign) == std::string::npos);
  CHECK(!lines.empty());
}
