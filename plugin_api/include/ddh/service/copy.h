/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/copy.h: "ddh.copy/0", copies between kinds of memory (DDH_MEM_*).
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_COPY_H
#define DDH_SERVICE_COPY_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_COPY_IFACE "ddh.copy/0"

typedef struct ddh_copy_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Copies `bytes` from src (in src_memory, DDH_MEM_*) to dst. The ranges don't overlap and stay valid until the copy
   * is done. DDH_UNIMPLEMENTED: no copy between the two kinds of memory. DDH_INVALID_ARGUMENT: a pointer is in another
   * kind of memory than stated, if the device can detect it. [serial] [stream-ordered] */
  ddh_rc (*copy)(void* h, void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
                 ddh_stream* stream, ddh_err* err) DDH_NX;
} ddh_copy_api;
#define DDH_COPY_API_MIN_SIZE 16u

#endif
