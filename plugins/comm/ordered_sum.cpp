// SPDX-License-Identifier: Apache-2.0
//
// The ordered sum. A tile of accumulators stays in the first-level cache while the sources are read. One body is
// compiled for several vector widths. It has no products, so nothing can be fused, and all widths give equal bits.
#include "ordered_sum.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/kernels/simd.hpp"

namespace ordered_sum {
namespace {

constexpr uint64_t kTile = 1024;  // elements

// Conversions between a stored type and its accumulator.
template <class T>
struct Plain {
  using Stored = T;
  using Acc = T;
  DDH_SIMD_BODY Acc load(Stored x) { return x; }
  DDH_SIMD_BODY Stored store(Acc x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Acc = float;
  DDH_SIMD_BODY Acc load(Stored x) { return ddh::Bf16::to_f32(x); }
  DDH_SIMD_BODY Stored store(Acc x) { return ddh::Bf16::from_f32(x); }
};

struct Sum {
  template <class A>
  DDH_SIMD_BODY A apply(A a, A b) {
    if constexpr (std::is_same_v<A, int32_t> || std::is_same_v<A, int64_t>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <class A>
  DDH_SIMD_BODY A apply(A a, A b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <class A>
  DDH_SIMD_BODY A apply(A a, A b) {
    return (a < b || a != a) ? a : b;
  }
};

// acc = the source, or acc = acc (op) the source.
template <class Type, class Op, bool kFirst>
DDH_SIMD_INLINE void take(typename Type::Acc* acc, const typename Type::Stored* source, uint64_t n) {
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < n; ++i) {
    if constexpr (kFirst)
      acc[i] = Type::load(source[i]);
    else
      acc[i] = Op::template apply<typename Type::Acc>(acc[i], Type::load(source[i]));
  }
}

template <class Type, class Op>
struct Reduce {
  using Stored = typename Type::Stored;
  using Acc = typename Type::Acc;

  DDH_SIMD_INLINE static const Stored* tile(const void* array, uint64_t at) {
    return static_cast<const Stored*>(array) + at;
  }

  DDH_SIMD_BODY void run(const OrderedReduce& args) {
    alignas(64) Acc total[kTile];
    alignas(64) Acc block_sum[kTile];
    alignas(64) Stored result[kTile];
    for (uint64_t at = 0; at < args.count; at += kTile) {
      const uint64_t n = args.count - at < kTile ? args.count - at : kTile;
      if (args.initial != nullptr) take<Type, Op, true>(total, tile(args.initial, at), n);
      for (uint32_t first = 0; first < args.n_sources; first += args.block) {
        const bool begins = first == 0 && args.initial == nullptr;
        const uint32_t left = args.n_sources - first, in_block = left < args.block ? left : args.block;
        if (in_block == 1 && !begins) {  // needs no sum of its own
          take<Type, Op, false>(total, tile(args.source[first], at), n);
          continue;
        }
        Acc* const acc = begins ? total : block_sum;
        take<Type, Op, true>(acc, tile(args.source[first], at), n);
        for (uint32_t r = 1; r < in_block; ++r) take<Type, Op, false>(acc, tile(args.source[first + r], at), n);
        if (begins) continue;
        DDH_SIMD_LOOP
        for (uint64_t i = 0; i < n; ++i) total[i] = Op::template apply<Acc>(total[i], block_sum[i]);
      }
      DDH_SIMD_LOOP
      for (uint64_t i = 0; i < n; ++i) result[i] = Type::store(total[i]);
      for (uint32_t d = 0; d < args.n_destinations; ++d)
        std::memcpy(static_cast<Stored*>(args.destination[d]) + at, result, n * sizeof(Stored));
    }
  }
};

template <class Type>
void by_op(const OrderedReduce& args) {
  switch (args.op) {
    case DDH_SUM:
      return ddh::Kernel<Reduce<Type, Sum>>::run(args);
    case DDH_MAX:
      return ddh::Kernel<Reduce<Type, Max>>::run(args);
    default:
      return ddh::Kernel<Reduce<Type, Min>>::run(args);
  }
}

}  // namespace

bool can_reduce(int32_t dtype, int32_t op) {
  const bool known_op = op == DDH_SUM || op == DDH_MAX || op == DDH_MIN;
  const bool known_dtype =
      dtype == DDH_F32 || dtype == DDH_F64 || dtype == DDH_BF16 || dtype == DDH_I32 || dtype == DDH_I64;
  return known_op && known_dtype;
}

void ordered_reduce(const OrderedReduce& args) {
  switch (args.dtype) {
    case DDH_F32:
      return by_op<Plain<float>>(args);
    case DDH_F64:
      return by_op<Plain<double>>(args);
    case DDH_BF16:
      return by_op<Bf16>(args);
    case DDH_I32:
      return by_op<Plain<int32_t>>(args);
    default:
      return by_op<Plain<int64_t>>(args);
  }
}

}  // namespace ordered_sum
