// SPDX-License-Identifier: Apache-2.0
//
// Values from which no run can go on, in every dtype, kind of tensor and place.
#include "checkpoint/usable_values.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

using namespace ddhost;

namespace {

StoredTensor tensor(TensorKind kind, int32_t dtype) { return {kind, "w", dtype, {}, 0, 0, 0, 0, dtype, {}}; }

// The bits of a NaN and of both infinities.
struct Bits {
  int32_t dtype;
  uint64_t nan, infinity, negative_infinity, largest;
};
const std::array<Bits, 4> kBits = {
    {{DDH_F32, 0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff},
     {DDH_BF16, 0x7fc0, 0x7f80, 0xff80, 0x7f7f},
     {DDH_F16, 0x7e00, 0x7c00, 0xfc00, 0x7bff},
     {DDH_F64, 0x7ff8000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7fefffffffffffff}}};

}  // namespace

TEST_CASE("the first value from which no run can go on is found in every dtype, at any address", "[checkpoint]") {
  const Bits bits = GENERATE(from_range(kBits));
  const uint64_t width = ddh_dtype_bytes(bits.dtype);
  const uint64_t numel = GENERATE(1, 7, 1024, 3000), misplaced = GENERATE(0, 1);
  const bool is_negative = GENERATE(false, true);
  std::vector<char> memory(numel * width + misplaced);
  char* const values = memory.data() + misplaced;
  const auto put = [&](uint64_t index, uint64_t value) { std::memcpy(values + index * width, &value, width); };
  const auto found = [&](TensorKind kind) { return first_unusable(tensor(kind, bits.dtype), values, numel * width); };
  for (uint64_t i = 0; i < numel; ++i) put(i, bits.largest);
  CHECK(found(TensorKind::param) == std::nullopt);
  CHECK(count_nonfinite(bits.dtype, values, numel * width) == 0);
  put(numel - 1, is_negative ? bits.negative_infinity : bits.infinity);
  CHECK(found(TensorKind::param) == numel - 1);
  CHECK(found(TensorKind::buffer) == numel - 1);
  CHECK(found(TensorKind::slot) == std::nullopt);
  CHECK(count_nonfinite(bits.dtype, values, numel * width) == 1);
  put(numel / 2, bits.nan);
  CHECK(found(TensorKind::param) == numel / 2);
  CHECK(found(TensorKind::slot) == numel / 2);
  CHECK(found(TensorKind::buffer) == numel / 2);
}

TEST_CASE("a buffer with DDH_SYNC_NEVER may hold any value, and others only finite ones", "[checkpoint]") {
  const std::array<float, 3> values = {1, HUGE_VALF, std::nanf("")};
  StoredTensor stored = tensor(TensorKind::buffer, DDH_F32);
  const auto* const bytes = reinterpret_cast<const char*>(values.data());
  CHECK(first_unusable(stored, bytes, sizeof values) == 1);
  CHECK(unusable_text(stored, 1) == "buffer 'w' is not finite from element 1 on");
  stored.holds_any_value = true;
  CHECK(first_unusable(stored, bytes, sizeof values) == std::nullopt);

  ddh_buffer_desc buffer{};
  buffer.dtype = DDH_F32;
  buffer.numel = values.size();
  for (const int32_t sync : {DDH_SYNC_STEP, DDH_SYNC_FOLD}) {
    buffer.sync = sync;
    CHECK(first_unusable(buffer, values.data()) == 1);
  }
  buffer.sync = DDH_SYNC_NEVER;
  CHECK(first_unusable(buffer, values.data()) == std::nullopt);
}

TEST_CASE("a dtype without NaN has only usable values", "[checkpoint]") {
  const std::vector<char> ones(64, '\xff');
  CHECK(first_unusable(tensor(TensorKind::slot, DDH_I64), ones.data(), ones.size()) == std::nullopt);
  CHECK(count_nonfinite(DDH_I64, ones.data(), ones.size()) == 0);
}
