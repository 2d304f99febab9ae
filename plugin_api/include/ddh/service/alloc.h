/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/alloc.h: "ddh.alloc/1", tagged memory. Strategies allocate all tensors here and in windows, so memory by
 * tag is counted, not estimated. A model may use its own allocator and reports its memory with `account`. Blocks are
 * 256-byte aligned.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_ALLOC_H
#define DDH_SERVICE_ALLOC_H

#include "ddh/abi.h"

#define DDH_ALLOC_IFACE "ddh.alloc/1"

/* Kinds of memory. */
#define DDH_MEM_HOST 0
#define DDH_MEM_DEVICE 1 /* memory of the run's device; host memory if the device is the CPU */
#define DDH_MEM_PINNED 2 /* host memory that the device copies fastest */
#define DDH_MEM_FILE 3   /* in a file: only in a ddh_state_entry, never allocated */

#define DDH_ALLOC_ZERO 1u /* filled with zero when the call returns; without it the content is undefined */

typedef struct ddh_alloc_args {
  uint32_t struct_size;
  int32_t tag;      /* DDH_TAG_* */
  uint64_t bytes;   /* 0 gives a valid pointer that must not be read */
  int32_t memory;   /* DDH_MEM_* */
  uint32_t flags;   /* DDH_ALLOC_* */
  const char* name; /* for messages: "zero1 optimizer slots of h.3" */
} ddh_alloc_args;
#define DDH_ALLOC_ARGS_MIN_SIZE 32u

typedef struct ddh_alloc_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* DDH_RESOURCE_EXHAUSTED: no memory; the message names tag, bytes and `name`. The caller owns *out. [any] */
  ddh_rc (*allocate)(void* h, const ddh_alloc_args* args, void** out, ddh_err* err) DDH_NX;
  /* Frees a block that no queued work uses any more (ddh/service/stream.h). NULL is ignored. [any] */
  void (*release)(void* h, void* p) DDH_NX;
  /* Counts memory that another allocator holds for this rank (LibTorch's activations): bytes may be negative. [any] */
  void (*account)(void* h, int32_t tag, int64_t bytes) DDH_NX;
} ddh_alloc_api;
#define DDH_ALLOC_API_MIN_SIZE 32u

#endif
