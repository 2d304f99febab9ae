// SPDX-License-Identifier: Apache-2.0
//
// fold.hpp: reductions in the order that makes every number of ranks and every strategy give the same bits
// (ddh/service/comm.h): a left fold in rank order inside each block of ranks, then over the blocks.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "ddh/sdk/kernels/flat.hpp"

namespace sockets {

template <class T>
T combine(int32_t op, T a, T b) {
  if (op == DDH_MAX) return a > b || a != a ? a : b;  // a NaN stays
  if (op == DDH_MIN) return a < b || a != a ? a : b;
  if constexpr (std::is_integral_v<T>) {  // integers wrap around
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// What is folded: source r has the numel elements of rank r. `initial` may be `dst`, or NULL.
struct Fold {
  int32_t dtype, op;
  uint32_t block;  // ranks, at least 1
  std::vector<const void*> sources;
  const void* initial;
  void* dst;
  uint64_t numel;
};

template <class T>
void fold_as(const Fold& f) {
  const auto value = [&](size_t rank, uint64_t i) { return static_cast<const T*>(f.sources[rank])[i]; };
  const auto* const initial = static_cast<const T*>(f.initial);
  for (uint64_t i = 0; i < f.numel; ++i) {
    T total = initial != nullptr ? initial[i] : T{};
    for (size_t first = 0; first < f.sources.size(); first += f.block) {
      T sum = value(first, i);
      for (size_t r = first + 1; r < std::min(first + f.block, f.sources.size()); ++r)
        sum = combine(f.op, sum, value(r, i));
      total = first == 0 && initial == nullptr ? sum : combine(f.op, total, sum);
    }
    static_cast<T*>(f.dst)[i] = total;
  }
}

// bf16 is added in fp32 and rounded once, at the end.
inline void fold_bf16(const Fold& f) {
  std::vector<std::vector<float>> wide(f.sources.size(), std::vector<float>(f.numel));
  std::vector<float> result(f.numel);
  Fold in_fp32 = f;
  for (size_t r = 0; r < wide.size(); ++r) {
    ddh::flat::cast(wide[r].data(), DDH_F32, f.sources[r], DDH_BF16, f.numel);
    in_fp32.sources[r] = wide[r].data();
  }
  in_fp32.dst = result.data();
  fold_as<float>(in_fp32);
  ddh::flat::cast(f.dst, DDH_BF16, result.data(), DDH_F32, f.numel);
}

inline void fold(const Fold& f) {
  switch (f.dtype) {
    case DDH_F32:
      return fold_as<float>(f);
    case DDH_F64:
      return fold_as<double>(f);
    case DDH_I32:
      return fold_as<int32_t>(f);
    case DDH_I64:
      return fold_as<int64_t>(f);
    default:
      return fold_bf16(f);
  }
}

inline void require_foldable(const ddh_coll& c) {
  const bool has_type =
      c.dtype == DDH_F32 || c.dtype == DDH_F64 || c.dtype == DDH_BF16 || c.dtype == DDH_I32 || c.dtype == DDH_I64;
  const bool has_op = c.op == DDH_SUM || c.op == DDH_MAX || c.op == DDH_MIN;
  const bool has_start = c.initial == nullptr || (c.dtype == DDH_F32 && c.op == DDH_SUM);
  if (has_type && has_op && has_start) return;
  ddh::fail(DDH_UNIMPLEMENTED,
            "sockets reduces with SUM, MAX or MIN over F32, F64, BF16, I32 or I64, and starts only sums ",
            "of F32 from a value; it was asked for op ", c.op, " over dtype ", c.dtype,
            c.initial != nullptr ? " from a value" : "");
}

}  // namespace sockets
