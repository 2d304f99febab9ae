/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/device.h: "ddh.device/0", memory, streams, copies and flat operations of an accelerator.
 *
 * The host's services ddh.alloc, ddh.stream, ddh.copy and ddh.flatops use one device per rank: number local_rank modulo
 * count. The CPU is built in and has the same table. A device plugin reports a missing device from open, never at load.
 *
 *   created --count, open--> open --(allocate, streams, copies, operations)*--> close --> destroyed
 *
 * The host opens the device before it creates any other plugin of the rank, and closes it after destroying them.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_DEVICE_H
#define DDH_KIND_DEVICE_H

#include "ddh/abi.h"
#include "ddh/service/alloc.h"
#include "ddh/service/copy.h"
#include "ddh/service/flatops.h"
#include "ddh/service/kernels.h"
#include "ddh/service/stream.h"

#define DDH_DEVICE_IFACE "ddh.device/0"

/* ddh_desc.caps of devices. */
/* Device memory is host memory and every stream runs inline: everyone may access all memory at any time (the CPU). */
#define DDH_CAP_HOST_MEMORY (UINT64_C(1) << 16)
/* Host functions on a stream (ddh_stream.run) can access device memory. Optimizers that compute on the
 * host (without DDH_CAP_KERNELS) need this or the bit above. */
#define DDH_CAP_HOST_REACHABLE (UINT64_C(1) << 17)

typedef struct ddh_device_info {
  uint32_t struct_size;
  int32_t index;        /* among this machine's devices of the kind */
  uint64_t total_bytes; /* size of its memory */
  uint64_t free_bytes;
  char name[64];
  char native_api[16]; /* as in ddh_desc.native_apis; "cuda": streams are CUstream, memory is addressed as by CUDA */
  uint8_t uuid[16];    /* the same for every rank that uses this device; all 0: not known */
} ddh_device_info;
#define DDH_DEVICE_INFO_MIN_SIZE 120u

/* What a device measures of itself. */
typedef struct ddh_device_usage {
  uint32_t struct_size;
  int32_t busy_percent; /* time with work on it, of the last second or less; -1: not known */
  int32_t celsius;      /* -1: not known */
  int32_t reserved0;
  uint64_t used_bytes; /* of its memory, by all processes */
} ddh_device_usage;
#define DDH_DEVICE_USAGE_MIN_SIZE 24u

/* The fastest arithmetic, which the summary of a run compares a model's speed with. */
typedef struct ddh_device_peak {
  uint32_t struct_size;
  int32_t dtype;      /* DDH_DTYPE_*, of the factors; sums are fp32 */
  double flops_per_s; /* operations per second, two for each multiply-add: of one thread of a device with
                       * DDH_CAP_HOST_MEMORY, of the whole device else */
} ddh_device_peak;
#define DDH_DEVICE_PEAK_MIN_SIZE 16u

/* The tables take the device's own `context` as their first argument `h`. Their headers have the contract. */
typedef struct ddh_device_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* How many devices this machine has. [any] */
  ddh_rc (*count)(ddh_inst* self, int32_t* out, ddh_err* err) DDH_NX;
  /* Opens device `index` for this rank. DDH_UNAVAILABLE: there is none; the message says why. [main] */
  ddh_rc (*open)(ddh_inst* self, int32_t index, void** context, ddh_err* err) DDH_NX;
  /* Describes the open device. [any] */
  ddh_rc (*info)(ddh_inst* self, void* context, ddh_device_info* out, ddh_err* err) DDH_NX;
  void (*close)(ddh_inst* self, void* context) DDH_NX; /* [main] */
  /* Allocates a block as ddh.alloc promises it, in DDH_MEM_DEVICE or DDH_MEM_PINNED, of at least one byte. The host
   * checks the tag and counts the memory. DDH_RESOURCE_EXHAUSTED: the message says why, and the host adds the purpose.
   * [any] */
  ddh_rc (*allocate)(void* context, const ddh_alloc_args* args, void** out, ddh_err* err) DDH_NX;
  /* Frees a block of allocate, with the same kind of memory. NULL is ignored. [any] */
  void (*release)(void* context, void* p, int32_t memory) DDH_NX;
  const ddh_stream_api* stream; /* constant tables, valid while the context is open */
  const ddh_copy_api* copy;
  const ddh_flatops_api* flatops;
  const ddh_kernels_api* kernels; /* NULL: the device runs no kernels of plugins */
  /* Measures the open device. NULL: it does not measure. [main] */
  ddh_rc (*usage)(void* context, ddh_device_usage* out, ddh_err* err) DDH_NX;
  /* What `count` will give in a run, from the system's files and the vendor's environment variables: it opens no driver and
   * takes milliseconds. The host calls it in a process of its own, on an instance whose host has ddh.config with the defaults,
   * and ddh.log. device.plugin=auto takes the plugin that has some devices. NULL: auto does not take this one. [main] */
  ddh_rc (*present)(ddh_inst* self, int32_t* out, ddh_err* err) DDH_NX;
  /* Measures the open device, in less than 0.1 s, for products of factors of `dtype`; out->dtype may be another, where the
   * device has no such instructions. NULL: it does not know. [main] */
  ddh_rc (*peak)(void* context, int32_t dtype, ddh_device_peak* out, ddh_err* err) DDH_NX;
  /* Names the instructions that kernels on this machine use, as they may change the order of sums: a checkpoint records the
   * text ("AuthenticAMD AVX-512"). `limit` is the environment variable DDHOST_CPU, "" where it is not set: nothing beyond it
   * is used. Called as `present` is. DDH_INVALID_ARGUMENT: a limit that it does not know; DDH_FAILED_PRECONDITION: the machine
   * lacks these instructions. *out is valid until the next call, or destroy. NULL: bits do not depend on it. [main] */
  ddh_rc (*instruction_set)(ddh_inst* self, const char* limit, const char** out, ddh_err* err) DDH_NX;
} ddh_device_api;
#define DDH_DEVICE_API_MIN_SIZE 120u

#endif
