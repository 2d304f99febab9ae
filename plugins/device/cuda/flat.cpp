// SPDX-License-Identifier: Apache-2.0
//
// The flat operations of the GPU: each is a kernel of flat_kernels.cu.
#include "context.hpp"
#include "flat_kernels.hpp"

extern "C" const char flat_kernels_ptx[];

namespace cuda DDH_HIDDEN {
namespace {

static_assert(ExactSquares::kWords == DDH_SQUARES_WORDS && ExactSquares::kLimbs == DDH_SQUARES_LIMBS);

}  // namespace

template <class Args>
void Context::launch_flat(ddh_stream* stream, const char* name, const Args& args, uint64_t work) {
  if (work == 0) return;
  const Kernel& kernel = find(flat_kernels_ptx, name, sizeof args);
  const ddh::Grid grid(work);
  launch(kernel, grid.blocks, grid.threads, &args, stream);
}

template <class T>
void Context::fill_with(ddh_stream* stream, const char* name, void* dst, uint64_t numel, T value) {
  launch_flat(stream, name, Fill<T>{static_cast<T*>(dst), numel, value}, numel);
}

void Context::fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* stream) {
  const auto f32 = static_cast<float>(value);
  switch (dtype) {
    case DDH_F32:
      return fill_with(stream, "fill32", dst, numel, std::bit_cast<uint32_t>(f32));
    case DDH_F64:
      return fill_with(stream, "fill64", dst, numel, std::bit_cast<uint64_t>(value));
    case DDH_BF16:
      return fill_with(stream, "fill16", dst, numel, ddh::Bf16::from_f32(f32));
    case DDH_F16:
      return fill_with(stream, "fill16", dst, numel, ddh::F16::from_f32(f32));
    default:
      break;
  }
  if (ddh_dtype_bytes(dtype) == 0 || value != 0)
    ddh::fail(DDH_UNIMPLEMENTED, "fill has no dtype ", dtype, " with value ", value,
              "; use F32, BF16, F16 or F64, or the value 0");
  set_zero(dst, numel * ddh_dtype_bytes(dtype), stream);
}

template <class To, class From>
void Context::cast_with(ddh_stream* stream, const char* name, void* dst, const void* src, uint64_t numel) {
  using Dst = typename To::Stored;
  using Src = typename From::Stored;
  launch_flat(stream, name, Cast<To, From>{static_cast<Dst*>(dst), static_cast<const Src*>(src), numel}, numel);
}

void Context::cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
                   ddh_stream* stream) {
  const auto is_float = [](int32_t dtype) { return dtype == DDH_F32 || dtype == DDH_BF16 || dtype == DDH_F16; };
  if (!is_float(dst_dtype) || !is_float(src_dtype))
    ddh::fail(DDH_UNIMPLEMENTED, "cast does not convert from dtype ", src_dtype, " to dtype ", dst_dtype,
              "; use F32, BF16 or F16");
  if (dst_dtype == src_dtype) {
    if (dst != src) copy(dst, DDH_MEM_DEVICE, src, DDH_MEM_DEVICE, numel * ddh_dtype_bytes(src_dtype), stream);
    return;
  }
  if (src_dtype == DDH_F32)
    return dst_dtype == DDH_BF16 ? cast_with<Bf16, F32>(stream, "cast_f32_to_bf16", dst, src, numel)
                                 : cast_with<F16, F32>(stream, "cast_f32_to_f16", dst, src, numel);
  if (src_dtype == DDH_BF16)
    return dst_dtype == DDH_F32 ? cast_with<F32, Bf16>(stream, "cast_bf16_to_f32", dst, src, numel)
                                : cast_with<F16, Bf16>(stream, "cast_bf16_to_f16", dst, src, numel);
  return dst_dtype == DDH_F32 ? cast_with<F32, F16>(stream, "cast_f16_to_f32", dst, src, numel)
                              : cast_with<Bf16, F16>(stream, "cast_f16_to_bf16", dst, src, numel);
}

void Context::scale(float* dst, uint64_t numel, double factor, ddh_stream* stream) {
  launch_flat(stream, "scale", Scale{dst, numel, static_cast<float>(factor)}, numel);
}

void Context::add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) {
  launch_flat(stream, "add", Add{dst, src, numel}, numel);
}

void Context::exact_squares(const float* src, uint64_t numel, uint64_t* words, ddh_stream* stream) {
  launch_flat(stream, "exact_squares", ExactSquares{src, numel, words},
              (numel + ExactSquares::kBlock - 1) / ExactSquares::kBlock);
}

// In passes of whole blocks. Every pass after the first adds to dst.
void Context::ordered_sum(float* dst, const float* const* srcs, uint32_t n_srcs, uint32_t reduce_block, uint32_t flags,
                          uint64_t numel, ddh_stream* stream) {
  constexpr uint32_t kMost = OrderedSum::kMostSources;
  if (n_srcs == 0 || reduce_block == 0 || (flags & ~(DDH_SUM_FROM_DST | DDH_SUM_ROUNDED)) != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "an ordered sum of ", n_srcs, " sources in blocks of ", reduce_block,
              " with flags ", flags, " is not possible; give at least one of both, and flags of this version");
  const uint32_t block = reduce_block < n_srcs ? reduce_block : n_srcs;
  if (block > kMost)
    ddh::fail(DDH_UNIMPLEMENTED, "a kernel sums blocks of at most ", kMost, " sources, not ", block,
              "; choose a smaller train.reduce_block");
  const uint32_t per_pass = n_srcs <= kMost ? n_srcs : kMost / block * block;
  for (uint32_t begin = 0; begin < n_srcs; begin += per_pass) {
    OrderedSum pass{};
    pass.dst = dst;
    pass.numel = numel;
    pass.n_srcs = n_srcs - begin < per_pass ? n_srcs - begin : per_pass;
    pass.reduce_block = block;
    pass.accumulates = begin > 0 || (flags & DDH_SUM_FROM_DST) != 0 ? 1 : 0;
    pass.rounds = flags & DDH_SUM_ROUNDED ? 1 : 0;
    for (uint32_t k = 0; k < pass.n_srcs; ++k) {
      pass.srcs[k] = srcs[begin + k];
      if (begin > 0 && pass.srcs[k] == dst)
        ddh::fail(DDH_UNIMPLEMENTED, "the result of an ordered sum is its source ", begin + k,
                  ", but the first pass overwrites it; give another result");
    }
    launch_flat(stream, "ordered_sum", pass, numel);
  }
}

template <class Args>
void Context::load_flat(std::initializer_list<const char*> names) {
  for (const char* name : names) (void)find(flat_kernels_ptx, name, sizeof(Args));
}

void Context::load_flat_kernels() {
  load_flat<Fill<uint16_t>>({"fill16"});
  load_flat<Fill<uint32_t>>({"fill32"});
  load_flat<Fill<uint64_t>>({"fill64"});
  load_flat<Cast<Bf16, F32>>({"cast_f32_to_bf16", "cast_f32_to_f16", "cast_bf16_to_f32", "cast_bf16_to_f16",
                              "cast_f16_to_f32", "cast_f16_to_bf16"});
  load_flat<Scale>({"scale"});
  load_flat<Add>({"add"});
  load_flat<ExactSquares>({"exact_squares"});
  load_flat<OrderedSum>({"ordered_sum"});
}

}  // namespace DDH_HIDDEN
