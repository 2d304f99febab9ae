// SPDX-License-Identifier: Apache-2.0
//
// The ordered sum, tile by tile: a tile of accumulators stays in the first-level cache while the sources stream by.
// One body, compiled for several vector widths. No product is involved, so no width can fuse anything: equal bits.
#include "ordered_sum.hpp"

#include <bit>
#include <cstring>
#include <type_traits>

#include "ddh/ddh.h"

namespace same_host {
namespace {

#define DDH_INLINE [[gnu::always_inline]] inline

constexpr uint64_t kTile = 1024;  // elements

// How a stored type is loaded into its accumulator and back.
template <class T>
struct Plain {
  using Stored = T;
  using Acc = T;
  DDH_INLINE static Acc load(Stored x) { return x; }
  DDH_INLINE static Stored store(Acc x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Acc = float;
  DDH_INLINE static Acc load(Stored x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  DDH_INLINE static Stored store(Acc x) {  // to nearest, ties to even; a NaN stays one
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40u : rounded);
  }
};

struct Sum {
  template <class A>
  DDH_INLINE static A apply(A a, A b) {
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
  DDH_INLINE static A apply(A a, A b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <class A>
  DDH_INLINE static A apply(A a, A b) {
    return (a < b || a != a) ? a : b;
  }
};

template <class Type, class Op>
DDH_INLINE void reduce_body(const OrderedReduce& args) {
  using Stored = typename Type::Stored;
  using Acc = typename Type::Acc;
  alignas(64) Acc total[kTile];
  alignas(64) Acc block_sum[kTile];
  alignas(64) Stored result[kTile];
  for (uint64_t at = 0; at < args.count; at += kTile) {
    const uint64_t n = args.count - at < kTile ? args.count - at : kTile;
    for (uint32_t first = 0; first < args.n_sources; first += args.block) {
      Acc* const acc = first == 0 ? total : block_sum;
      const uint32_t left = args.n_sources - first;
      const uint32_t in_block = left < args.block ? left : args.block;
      const Stored* const head = static_cast<const Stored*>(args.source[first]) + at;
      for (uint64_t i = 0; i < n; ++i) acc[i] = Type::load(head[i]);
      for (uint32_t r = 1; r < in_block; ++r) {
        const Stored* const next = static_cast<const Stored*>(args.source[first + r]) + at;
        for (uint64_t i = 0; i < n; ++i) acc[i] = Op::template apply<Acc>(acc[i], Type::load(next[i]));
      }
      if (first == 0) continue;
      for (uint64_t i = 0; i < n; ++i) total[i] = Op::template apply<Acc>(total[i], block_sum[i]);
    }
    for (uint64_t i = 0; i < n; ++i) result[i] = Type::store(total[i]);
    for (uint32_t d = 0; d < args.n_destinations; ++d)
      std::memcpy(static_cast<Stored*>(args.destination[d]) + at, result, n * sizeof(Stored));
  }
}

#if defined(__x86_64__)
#define DDH_WIDE [[gnu::target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")]]
#define DDH_MIDDLE [[gnu::target("avx2")]]
template <class Type, class Op>
DDH_WIDE void reduce_avx512(const OrderedReduce& args) {
  reduce_body<Type, Op>(args);
}
template <class Type, class Op>
DDH_MIDDLE void reduce_avx2(const OrderedReduce& args) {
  reduce_body<Type, Op>(args);
}
#endif
template <class Type, class Op>
void reduce_base(const OrderedReduce& args) {
  reduce_body<Type, Op>(args);
}

template <class Type, class Op>
void dispatch(const OrderedReduce& args) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return reduce_avx512<Type, Op>(args);
  if (__builtin_cpu_supports("avx2")) return reduce_avx2<Type, Op>(args);
#endif
  reduce_base<Type, Op>(args);
}

template <class Type>
void by_op(const OrderedReduce& args) {
  switch (args.op) {
    case DDH_SUM:
      return dispatch<Type, Sum>(args);
    case DDH_MAX:
      return dispatch<Type, Max>(args);
    default:
      return dispatch<Type, Min>(args);
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

}  // namespace same_host
