/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/device.h: "ddh.device/0", memory, streams, copies and flat operations of an accelerator.
 *
 * The host's services ddh.alloc, ddh.stream, ddh.copy and ddh.flatops stand on one device per rank: number local_rank
 * modulo count. The CPU is built in and has the same table. A device plugin says "no device" from open, never at load.
 *
 *   created --count, open--> open --(allocate, streams, copies, operations)*--> close --> destroyed
 *
 * The host opens the device before it makes any other plugin of the rank, and closes it after them.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_DEVICE_H
#define DDH_KIND_DEVICE_H

#include "ddh/abi.h"
#include "ddh/service/alloc.h"
#include "ddh/service/copy.h"
#include "ddh/service/flatops.h"
#include "ddh/service/stream.h"

#define DDH_DEVICE_IFACE "ddh.device/0"

/* ddh_desc.caps of devices. */
/* Its memory is the host's and every stream runs inline: everyone may touch everything at any time (the CPU). */
#define DDH_CAP_HOST_MEMORY (UINT64_C(1) << 16)
/* Host functions in the order of a stream (ddh_stream.run) reach its memory. Optimizers, which compute on the host, need
 * this or the bit above. */
#define DDH_CAP_HOST_REACHABLE (UINT64_C(1) << 17)

typedef struct ddh_device_info {
  uint32_t struct_size;
  int32_t index;        /* of this machine's devices of the kind */
  uint64_t total_bytes; /* of its memory */
  uint64_t free_bytes;
  char name[64];
} ddh_device_info;
#define DDH_DEVICE_INFO_MIN_SIZE 88u

/* The tables take the device's own `context` as their first argument `h`; their headers have the contract. */
typedef struct ddh_device_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* How many devices this machine has. [any] */
  ddh_rc (*count)(ddh_inst* self, int32_t* out, ddh_err* err) DDH_NX;
  /* Takes device `index` for this rank. DDH_UNAVAILABLE: there is none, and why. [main] */
  ddh_rc (*open)(ddh_inst* self, int32_t index, void** context, ddh_err* err) DDH_NX;
  /* What an open device is. [any] */
  ddh_rc (*info)(ddh_inst* self, void* context, ddh_device_info* out, ddh_err* err) DDH_NX;
  void (*close)(ddh_inst* self, void* context) DDH_NX; /* [main] */
  /* A block as ddh.alloc promises it, in DDH_MEM_DEVICE or DDH_MEM_PINNED, and at least one byte; the host checks the
   * tag and counts. DDH_RESOURCE_EXHAUSTED: the sentence says why; the host adds what for. [any] */
  ddh_rc (*allocate)(void* context, const ddh_alloc_args* args, void** out, ddh_err* err) DDH_NX;
  /* Takes back what allocate gave, with the same kind of memory. NULL is ignored. [any] */
  void (*release)(void* context, void* p, int32_t memory) DDH_NX;
  const ddh_stream_api* stream; /* constant tables, valid while the context is open */
  const ddh_copy_api* copy;
  const ddh_flatops_api* flatops;
} ddh_device_api;
#define DDH_DEVICE_API_MIN_SIZE 80u

#endif
