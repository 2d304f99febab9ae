// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/usable_values.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// The bits of an infinity without its sign; a larger number is a NaN.
template <class Bits>
struct Format {
  Bits infinity;
};

template <class Bits>
Bits magnitude_at(const char* values, uint64_t index) {
  Bits bits = 0;
  std::memcpy(&bits, values + index * sizeof bits, sizeof bits);
  return bits & (std::numeric_limits<Bits>::max() >> 1);
}

// Calls body(Format) for a dtype of floating point.
template <class Body>
void with_format(int32_t dtype, Body&& body) {
  if (dtype == DDH_F32) body(Format<uint32_t>{0x7f800000});
  if (dtype == DDH_BF16) body(Format<uint16_t>{0x7f80});
  if (dtype == DDH_F16) body(Format<uint16_t>{0x7c00});
  if (dtype == DDH_F64) body(Format<uint64_t>{0x7ff0000000000000});
}

// Index of the first value whose magnitude is above `most`, or numel.
template <class Bits>
uint64_t first_above(const char* values, uint64_t numel, Bits most) {
  constexpr uint64_t kPiece = 1024;  // checked at once, so that the loop is vectorized
  for (uint64_t begin = 0; begin < numel; begin += kPiece) {
    const uint64_t end = std::min(begin + kPiece, numel);
    Bits any = 0;
    for (uint64_t i = begin; i < end; ++i) any |= magnitude_at<Bits>(values, i) > most ? Bits{1} : Bits{0};
    if (any == 0) continue;
    uint64_t at = begin;
    while (magnitude_at<Bits>(values, at) <= most) ++at;
    return at;
  }
  return numel;
}

std::optional<uint64_t> first_refused(int32_t dtype, const char* values, uint64_t bytes, bool takes_infinity) {
  std::optional<uint64_t> found;
  with_format(dtype, [&](auto format) {
    using Bits = decltype(format.infinity);
    const Bits most = takes_infinity ? format.infinity : static_cast<Bits>(format.infinity - 1);
    const uint64_t numel = bytes / sizeof(Bits), at = first_above<Bits>(values, numel, most);
    if (at < numel) found = at;
  });
  return found;
}

}  // namespace

std::optional<uint64_t> first_unusable(const StoredTensor& tensor, const char* values, uint64_t bytes) {
  if (tensor.holds_any_value) return std::nullopt;
  const bool takes_infinity = tensor.kind == TensorKind::slot || tensor.kind == TensorKind::strategy;
  return first_refused(tensor.dtype, values, bytes, takes_infinity);
}

std::optional<uint64_t> first_unusable(const ddh_buffer_desc& buffer, const void* values) {
  if (buffer.sync == DDH_SYNC_NEVER) return std::nullopt;
  return first_refused(buffer.dtype, static_cast<const char*>(values), buffer.numel * ddh_dtype_bytes(buffer.dtype),
                       /*takes_infinity=*/false);
}

std::optional<uint64_t> first_nonfinite(const float* values, uint64_t numel) {
  constexpr uint32_t kLargest = 0x7F7FFFFF;
  const uint64_t at = first_above<uint32_t>(reinterpret_cast<const char*>(values), numel, kLargest);
  return at < numel ? std::optional(at) : std::nullopt;
}

uint64_t count_nonfinite(int32_t dtype, const char* values, uint64_t bytes) {
  uint64_t count = 0;
  with_format(dtype, [&](auto format) {
    using Bits = decltype(format.infinity);
    for (uint64_t i = 0; i < bytes / sizeof(Bits); ++i)
      count += magnitude_at<Bits>(values, i) >= format.infinity ? 1 : 0;
  });
  return count;
}

std::string unusable_text(const StoredTensor& tensor, uint64_t element) {
  const bool is_slot = tensor.kind == TensorKind::slot || tensor.kind == TensorKind::strategy;
  return ddh::str(kind_text(tensor.kind), " '", tensor.name, is_slot ? "' is NaN" : "' is not finite", " from element ",
                  element, " on");
}

}  // namespace ddhost
