/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/flatops.h: "ddh.flatops/0", operations over flat ranges on the run's device, so that a strategy needs
 * neither LibTorch nor a CUDA runtime. Results don't depend on the width of the machine's vectors. Arrays are in
 * DDH_MEM_DEVICE or DDH_MEM_PINNED.
 * All: [main] [stream-ordered]; DDH_UNIMPLEMENTED for a dtype that the operation does not support.
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_FLATOPS_H
#define DDH_SERVICE_FLATOPS_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_FLATOPS_IFACE "ddh.flatops/0"

#define DDH_SQUARES_LIMBS 20 /* limb i weighs 2^(32 i - 320) */
#define DDH_SQUARES_WORDS 23

#define DDH_SUM_FROM_DST 1u
#define DDH_SUM_ROUNDED 2u

typedef struct ddh_flatops_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* dst[i] = value (rounded to dtype); dtypes F32, BF16, F16, F64. Other dtypes accept only the value 0. */
  ddh_rc (*fill)(void* h, void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* s, ddh_err* err) DDH_NX;
  /* dst[i] = src[i], rounded to nearest even; between F32, BF16 and F16. */
  ddh_rc (*cast)(void* h, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
                 ddh_stream* s, ddh_err* err) DDH_NX;
  /* dst[i] = dst[i] * factor, F32. */
  ddh_rc (*scale)(void* h, float* dst, uint64_t numel, double factor, ddh_stream* s, ddh_err* err) DDH_NX;
  /* dst[i] = dst[i] + src[i], F32. */
  ddh_rc (*add)(void* h, float* dst, const float* src, uint64_t numel, ddh_stream* s, ddh_err* err) DDH_NX;
  /* words += the exact sum of squares of src, F32 (docs/numerics.md), of which element 0 lies on the 64-element grid:
   * DDH_SQUARES_LIMBS limbs of 32 bits in 64-bit words, then the number of 64-element blocks with an infinity, and of
   * those with a NaN. The last word becomes the smaller of itself and the index of the first of these blocks. NULL: the
   * device does not compute it. */
  ddh_rc (*exact_squares)(void* h, const float* src, uint64_t numel, uint64_t* words, ddh_stream* s,
                          ddh_err* err) DDH_NX;
  /* dst[i] = srcs[0][i] + srcs[1][i] + ..., F32: in order within blocks of `reduce_block` sources, then the blocks in
   * order. DDH_SUM_FROM_DST: dst is the first summand. DDH_SUM_ROUNDED: the sources are rounded to BF16 first. NULL: the
   * device does not compute it. */
  ddh_rc (*ordered_sum)(void* h, float* dst, const float* const* srcs, uint32_t n_srcs, uint32_t reduce_block,
                        uint32_t flags, uint64_t numel, ddh_stream* s, ddh_err* err) DDH_NX;
} ddh_flatops_api;
#define DDH_FLATOPS_API_MIN_SIZE 56u

#endif
