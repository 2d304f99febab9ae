// SPDX-License-Identifier: Apache-2.0
//
// What the device cpu says of itself: its instructions and its fastest arithmetic.
#include <catch2/catch.hpp>
#include <limits>

#include "engine/services/device.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/throws.hpp"
#include "plan/ask_device.hpp"

using namespace ddhost;
using namespace ddhost::test;
using Catch::Contains;

namespace {

Plugin cpu() { return {&cpu_module(), cpu_module().desc[0], "/proc/self/exe"}; }

std::optional<ddh_device_peak> peak_of(const ddh_device_api& table, int32_t dtype) {
  return Device(cpu_inst(), table, DDH_CAP_HOST_MEMORY, "cpu", 0).peak(dtype);
}

}  // namespace

TEST_CASE("the CPU names its instructions, fewer under a limit, and refuses a limit that it can't keep", "[cpu]") {
  CHECK_THAT(instructions_of_linked(cpu(), ""), Contains(" "));  // vendor and set
  if (__builtin_cpu_supports("avx2") != 0) CHECK_THAT(instructions_of_linked(cpu(), "avx2"), Contains(" AVX2"));
  if (__builtin_cpu_supports("avx512f") == 0)
    CHECK_THAT(sentence_of([] { (void)instructions_of_linked(cpu(), "avx512"); }), Contains("has no AVX-512"));
  CHECK_THAT(sentence_of([] { (void)instructions_of_linked(cpu(), "sse9"); }),
             Contains("DDHOST_CPU is 'sse9'; give avx2 or avx512"));
}

TEST_CASE("the CPU measures the operations of a thread", "[cpu]") {
  for (const int32_t dtype : {DDH_F32, DDH_BF16}) {
    const std::optional<ddh_device_peak> peak = peak_of(cpu_device(), dtype);
    REQUIRE(peak);
    CHECK(peak->flops_per_s > 1e8);
    CHECK((peak->dtype == dtype || peak->dtype == DDH_F32));
  }
}

TEST_CASE("a device without a peak, or with one that is no number, has none", "[cpu]") {
  ddh_device_api table = cpu_device();
  table.peak = nullptr;
  CHECK_FALSE(peak_of(table, DDH_F32));
  table.peak = [](void*, int32_t dtype, ddh_device_peak* out, ddh_err*) noexcept -> ddh_rc {
    out->dtype = dtype;
    out->flops_per_s = std::numeric_limits<double>::infinity();
    return DDH_OK;
  };
  CHECK_FALSE(peak_of(table, DDH_F32));
  table.peak = [](void*, int32_t, ddh_device_peak* out, ddh_err*) noexcept -> ddh_rc {
    out->flops_per_s = 1e9;
    return DDH_OK;  // of no dtype
  };
  CHECK_FALSE(peak_of(table, DDH_F32));
}
