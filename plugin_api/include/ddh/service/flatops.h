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
} ddh_flatops_api;
#define DDH_FLATOPS_API_MIN_SIZE 40u

#endif
