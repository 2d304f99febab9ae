/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/kernels.h: "ddh.kernels/0", kernels of a plugin's own on the run's device, so that models and optimizers
 * need no runtime library of the device.
 *
 * A kernel belongs to an image: a constant of the plugin in the device's format. It takes one argument, a struct that
 * is copied when it is launched. The device loads an image at its first use and keeps it until it is closed.
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_KERNELS_H
#define DDH_SERVICE_KERNELS_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_KERNELS_IFACE "ddh.kernels/0"

typedef struct ddh_kernel ddh_kernel;

typedef struct ddh_kernels_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The format of images: "ptx", NUL-terminated text for NVIDIA GPUs. NULL: the device runs no kernels, and the calls
   * below return DDH_UNIMPLEMENTED. [any] */
  const char* (*format)(void* h)DDH_NX;
  /* Finds kernel `name` in an image, whose address stays valid while the device is open. `arg_bytes` is the size of its
   * argument: DDH_INVALID_ARGUMENT if the kernel's differs and the device can detect it. DDH_NOT_FOUND: no such kernel.
   * The device owns *out. [main] */
  ddh_rc (*find)(void* h, const void* image, const char* name, uint64_t arg_bytes, ddh_kernel** out,
                 ddh_err* err) DDH_NX;
  /* Queues a grid of `blocks` blocks of `threads` threads. `arg` is read during the call. `accesses` lists the memory
   * that the kernel accesses, for devices that check it; n_accesses may be 0. [main] [stream-ordered] */
  ddh_rc (*launch)(void* h, ddh_kernel* kernel, uint32_t blocks, uint32_t threads, const void* arg,
                   const ddh_access* accesses, uint32_t n_accesses, ddh_stream* stream, ddh_err* err) DDH_NX;
} ddh_kernels_api;
#define DDH_KERNELS_API_MIN_SIZE 32u

#endif
