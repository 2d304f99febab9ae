// SPDX-License-Identifier: Apache-2.0
//
// The interpreter of PTX: arithmetic as PTX specifies it, barriers, and refusals.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ptx/program.hpp"

using namespace standin::ptx;
using Catch::Contains;

extern "C" const char block_sum_ptx[];

namespace {

// A kernel with one pointer as its parameter, which %rd1 holds.
std::string kernel_with(const std::string& body) {
  return ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\n"
         ".reg .b32 %r<20>;\nld.param.u64 %rd1, [k_param_0];\n" +
         body + "\nret;\n}\n";
}

// Runs the kernel over `memory`, of which %rd1 holds the address.
void run(const std::string& text, std::vector<uint64_t>& memory, uint32_t threads = 1) {
  const Module module = parse(text);
  const auto begin = reinterpret_cast<uint64_t>(memory.data());
  const Reach reach = [&](uint64_t address, uint64_t bytes, bool) -> void* {
    const bool inside = address >= begin && address + bytes <= begin + memory.size() * 8;
    return inside ? reinterpret_cast<void*>(address) : nullptr;
  };
  execute(module.kernels.at("k"), &begin, 1, threads, reach);
}

// The result of `instruction`, whose operands are %a, %b and %c and whose result is %d.
uint64_t result(const std::string& instruction, std::vector<uint64_t> operands) {
  operands.resize(3);
  std::string body;
  for (const char* name : {"a", "b", "c"}) {
    const std::string offset = std::to_string((name[0] - 'a') * 8);
    body += std::string("ld.global.u64 %") + name + ", [%rd1+" + offset + "];\n";
  }
  operands.push_back(0);
  run(kernel_with(body + instruction + "\nst.global.u64 [%rd1+24], %d;"), operands);
  return operands[3];
}
uint64_t bits(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }

}  // namespace

TEST_CASE("fma rounds once, a product and a sum round twice", "[ptx]") {
  const float x = 1.0F + std::ldexp(1.0F, -12), y = -(1.0F + std::ldexp(1.0F, -11));
  const uint64_t fused = result("fma.rn.f32 %d, %a, %b, %c;", {bits(x), bits(x), bits(y)});
  CHECK(std::bit_cast<float>(static_cast<uint32_t>(fused)) == std::ldexp(1.0F, -24));
  const uint64_t apart = result("mul.rn.f32 %t, %a, %b;\nadd.rn.f32 %d, %t, %c;", {bits(x), bits(x), bits(y)});
  CHECK(apart == 0);
}

TEST_CASE("an fp32 result that is not a number is the canonical NaN", "[ptx]") {
  const uint64_t payload = 0xffc12345;
  CHECK(result("add.rn.f32 %d, %a, %b;", {payload, bits(1.0F)}) == 0x7fffffff);
  CHECK(result("div.rn.f32 %d, %a, %b;", {0, 0}) == 0x7fffffff);
  CHECK(result("mov.b32 %d, %a;", {payload, 0}) == payload);
  CHECK(result("min.f32 %d, %a, %b;", {payload, bits(2.0F)}) == bits(2.0F));
}

TEST_CASE("integers have their width and sign", "[ptx]") {
  CHECK(result("add.s32 %d, %a, %b;", {0xffffffff, 1}) == 0);
  CHECK(result("mul.wide.u32 %d, %a, %b;", {0xffffffff, 0xffffffff}) == 0xfffffffe00000001);
  CHECK(result("mul.wide.s32 %d, %a, %b;", {0xffffffff, 7}) == static_cast<uint64_t>(-7));
  CHECK(result("mul.hi.u64 %d, %a, %b;", {~uint64_t{0}, 16}) == 15);
  CHECK(result("mad.lo.s32 %d, %a, %b, %c;", {3, 5, 0xfffffff0}) == 0xffffffff);
  CHECK(result("shr.s32 %d, %a, %b;", {0x80000000, 31}) == 0xffffffff);
  CHECK(result("shr.u32 %d, %a, %b;", {0x80000000, 40}) == 0);
  CHECK(result("div.s64 %d, %a, %b;", {static_cast<uint64_t>(-9), 2}) == static_cast<uint64_t>(-4));
  CHECK(result("rem.u32 %d, %a, %b;", {17, 5}) == 2);
  CHECK(result("clz.b32 %d, %a;", {1, 0}) == 31);
  CHECK(result("popc.b32 %d, %a;", {0xff01, 0}) == 9);
}

TEST_CASE("conversions round as they say", "[ptx]") {
  CHECK(result("cvt.f64.f32 %d, %a;", {bits(1.5F)}) == bits(1.5));
  CHECK(result("cvt.rn.f32.f64 %d, %a;", {bits(1.0 + std::ldexp(1.0, -25))}) == bits(1.0F));
  CHECK(result("cvt.rzi.s32.f32 %d, %a;", {bits(-2.9F)}) == 0xfffffffe);
  CHECK(result("cvt.rni.s32.f32 %d, %a;", {bits(2.5F)}) == 2);
  CHECK(result("cvt.rzi.u32.f32 %d, %a;", {bits(-1.0F)}) == 0);
  CHECK(result("cvt.rzi.s32.f32 %d, %a;", {bits(1e20F)}) == 0x7fffffff);
  CHECK(result("cvt.rn.f32.s32 %d, %a;", {0xffffffff}) == bits(-1.0F));
  CHECK(result("cvt.rn.f16.f32 %d, %a;", {bits(65519.0F)}) == 0x7bff);
  CHECK(result("cvt.f32.f16 %d, %a;", {0x0001}) == bits(std::ldexp(1.0F, -24)));
  CHECK(result("cvt.rn.bf16.f32 %d, %a;", {0x3f808000}) == 0x3f80);  // a tie goes to the even one
  CHECK(result("cvt.rn.bf16.f32 %d, %a;", {0x7f800001}) == 0x7fff);
  CHECK(result("cvt.s64.s32 %d, %a;", {0x80000000}) == 0xffffffff80000000);
  CHECK(result("cvt.u32.u16 %d, %a;", {0x12345678}) == 0x5678);
}

TEST_CASE("comparisons with a NaN hold only where they say so", "[ptx]") {
  const uint64_t nan = bits(std::numeric_limits<float>::quiet_NaN());
  const auto holds = [&](const std::string& compare) {
    return result("setp." + compare + ".f32 %p1, %a, %b;\nselp.b64 %d, 1, 0, %p1;", {nan, bits(1.0F)}) == 1;
  };
  CHECK_FALSE(holds("lt"));
  CHECK_FALSE(holds("ne"));
  CHECK(holds("neu"));
  CHECK(holds("ltu"));
  CHECK(holds("nan"));
  CHECK_FALSE(holds("num"));
}

TEST_CASE("threads meet at barriers, and their shared memory belongs to a block", "[ptx]") {
  const Module module = parse(block_sum_ptx);
  std::vector<float> src(192), sums(3);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
  const struct {
    const float* src;
    float* dst;
  } args{src.data(), sums.data()};
  const Reach reach = [](uint64_t address, uint64_t, bool) { return reinterpret_cast<void*>(address); };
  for (const uint32_t first : {0U, 17U, 63U}) {
    execute(module.kernels.at("block_sum"), &args, 3, 64, reach, first);
    CHECK(sums == std::vector<float>{2016, 6112, 10208});
  }
  // Without its barriers the same kernel gives another result.
  std::string without = block_sum_ptx;
  for (size_t at = 0; (at = without.find("bar.sync", at)) != std::string::npos;) without.replace(at, 2, "//");
  const Module wrong = parse(without);
  execute(wrong.kernels.at("block_sum"), &args, 3, 64, reach, 32);
  CHECK(sums != std::vector<float>{2016, 6112, 10208});
}

TEST_CASE("64 bits are divided into halves and joined again; a thread meets no other of its warp", "[ptx]") {
  CHECK(result("mov.b64 {%r1, %r2}, %a;\nmov.b64 %d, {%r2, %r1};", {0x0123456789abcdef}) == 0x89abcdef01234567);
  std::vector<uint64_t> memory(64);
  run(kernel_with("activemask.b32 %r1;\nmov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, 8;\nadd.s64 %rd3, %rd1, %rd2;\n"
                  "st.global.u32 [%rd3], %r1;"),
      memory, 64);
  for (size_t t = 0; t < memory.size(); ++t) CHECK(memory[t] == uint64_t{1} << (t % 32));
  CHECK_THROWS_WITH(run(kernel_with("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;"), memory), Contains("none have met"));
}

TEST_CASE("what the interpreter does not know is refused with its line", "[ptx]") {
  CHECK_THROWS_WITH(parse(kernel_with("tex.2d.v4.f32 %f1, [%rd1];")), Contains("line 10") && Contains("tex.2d"));
  CHECK_THROWS_WITH(parse(kernel_with("add.rz.ftz.f32 %f1, %f2, %f3;")), Contains("ftz"));
  CHECK_THROWS_WITH(parse(kernel_with("mov.b64 {%r1, %r2, %r3}, %rd1;")), Contains("4 operands"));
  CHECK_THROWS_WITH(parse(kernel_with("mov.b32 {%rs1, %rs2}, %r1;")), Contains("3 operands"));
  CHECK_THROWS_WITH(parse(kernel_with("shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;")), Contains(".down"));
  CHECK_THROWS_WITH(parse(kernel_with("mov.u32 %r1, %tid.y;")), Contains("%tid.y"));
  CHECK_THROWS_WITH(parse(kernel_with("bra $nowhere;")), Contains("$nowhere"));
}

TEST_CASE("faults of a kernel name the kernel and the line", "[ptx]") {
  std::vector<uint64_t> memory(2);
  CHECK_THROWS_WITH(run(kernel_with("ld.global.u32 %r1, [%rd1+16];"), memory),
                    Contains("kernel k, PTX line 10") && Contains("reads 4 bytes") && Contains("outside"));
  CHECK_THROWS_WITH(run(kernel_with("st.global.u64 [%rd1+4], %rd1;"), memory), Contains("not aligned"));
  const std::string some = "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $L;\nbar.sync 0;\n$L:";
  CHECK_THROWS_WITH(run(kernel_with(some), memory, 4), Contains("1 of 4 threads ended without the barrier"));
}
