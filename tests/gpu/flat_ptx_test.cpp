// SPDX-License-Identifier: Apache-2.0
//
// The PTX that nvcc makes of the flat kernels gives the bits that g++ gives with the same source.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "flat_kernels.hpp"
#include "gpu/numbers.hpp"
#include "ptx/program.hpp"

using namespace standin::ptx;
using ddhost::test::check_same;
using ddhost::test::numbers;

extern "C" const char flat_kernels_ptx[];

namespace {

constexpr uint64_t kSizes[] = {1, 63, 64, 65, 100003};
constexpr uint32_t kBlocks = 3, kThreads = 32;

const Module& module() {
  static const Module parsed = parse(flat_kernels_ptx);
  return parsed;
}
template <class Kernel>
void run_ptx(const char* name, const Kernel& args) {
  const standin::ptx::Kernel& kernel = module().kernels.at(name);
  REQUIRE(kernel.param_bytes == sizeof args);
  execute(kernel, &args, kBlocks, kThreads,
          [](uint64_t address, uint64_t, bool) { return reinterpret_cast<void*>(address); });
}
template <class Kernel>
void run_cpu(const Kernel& args) {
  ddh::run_grid(args, kBlocks, kThreads);
}

template <class To, class From>
void check_cast(const char* name, const std::vector<typename From::Stored>& src) {
  std::vector<typename To::Stored> a(src.size()), b(src.size());
  run_ptx(name, cuda::Cast<To, From>{a.data(), src.data(), src.size()});
  run_cpu(cuda::Cast<To, From>{b.data(), src.data(), src.size()});
  INFO(name);
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

}  // namespace

TEST_CASE("fill, scale and add have the bits of the CPU as PTX", "[ptx]") {
  for (const uint64_t n : kSizes) {
    std::vector<float> a = numbers(n, 1, true), b = a;
    const std::vector<float> src = numbers(n, 2, false);
    run_ptx("scale", cuda::Scale{a.data(), n, 0.1F});
    run_cpu(cuda::Scale{b.data(), n, 0.1F});
    check_same(a, b);
    run_ptx("add", cuda::Add{a.data(), src.data(), n});
    run_cpu(cuda::Add{b.data(), src.data(), n});
    check_same(a, b);
    run_ptx("fill32", cuda::Fill<uint32_t>{reinterpret_cast<uint32_t*>(a.data()), n, 0x3f800000});
    check_same(a, std::vector<float>(n, 1.0F));
    std::vector<uint16_t> half(n + 1, 7);
    run_ptx("fill16", cuda::Fill<uint16_t>{half.data(), n, 0x3c00});
    CHECK(half[n - 1] == 0x3c00);
    CHECK(half[n] == 7);
    std::vector<uint64_t> wide(n + 1, 7), expected(n, 0x3fb999999999999a);
    expected.push_back(7);
    run_ptx("fill64", cuda::Fill<uint64_t>{wide.data(), n, 0x3fb999999999999a});
    CHECK(wide == expected);
  }
}

TEST_CASE("casts have the bits of the CPU as PTX", "[ptx]") {
  for (const uint64_t n : kSizes) {
    std::vector<uint16_t> halves(n);  // all patterns of 16 bits where n allows it, in an order that has NaNs early
    for (size_t i = 0; i < n; ++i) halves[i] = static_cast<uint16_t>(i * 31751);
    const std::vector<float> src = numbers(n, 3, true);
    check_cast<cuda::Bf16, cuda::F32>("cast_f32_to_bf16", src);
    check_cast<cuda::F16, cuda::F32>("cast_f32_to_f16", src);
    check_cast<cuda::F32, cuda::Bf16>("cast_bf16_to_f32", halves);
    check_cast<cuda::F32, cuda::F16>("cast_f16_to_f32", halves);
    check_cast<cuda::F16, cuda::Bf16>("cast_bf16_to_f16", halves);
    check_cast<cuda::Bf16, cuda::F16>("cast_f16_to_bf16", halves);
  }
}

TEST_CASE("ordered sums have the bits of the CPU as PTX", "[ptx]") {
  for (const uint32_t n_srcs : {1U, 3U, 8U}) {
    for (const uint32_t block : {1U, 2U, 5U}) {
      for (const uint32_t flags : {0U, 1U, 2U, 3U}) {
        const uint64_t n = kSizes[(n_srcs + block + flags) % std::size(kSizes)];
        std::vector<std::vector<float>> srcs;
        cuda::OrderedSum sum{nullptr, n, n_srcs, block, flags & 1U, flags >> 1U, {}};
        for (uint32_t k = 0; k < n_srcs; ++k) srcs.push_back(numbers(n, 10 + k, false));
        for (uint32_t k = 0; k < n_srcs; ++k) sum.srcs[k] = srcs[k].data();
        std::vector<float> a = numbers(n, 5, false), b = a;
        sum.dst = a.data();
        run_ptx("ordered_sum", sum);
        sum.dst = b.data();
        run_cpu(sum);
        check_same(a, b);
      }
    }
  }
}

TEST_CASE("the PTX of flat kernels fuses no product with a sum", "[ptx]") {
  const std::string text = flat_kernels_ptx;
  CHECK(text.find("fma.") == std::string::npos);
  CHECK(text.find(".ftz") == std::string::npos);
  CHECK(text.find("approx") == std::string::npos);
}
