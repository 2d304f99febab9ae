/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/kv.h: "ddh.kv/1", the key-value store through which ranks find each other. It is for small values. The
 * host prefixes keys with the plugin's section and id, so plugins don't collide.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_KV_H
#define DDH_SERVICE_KV_H

#include "ddh/abi.h"

#define DDH_KV_IFACE "ddh.kv/1"

typedef struct ddh_kv_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Stores `bytes` of value (at most 1 MiB), replacing an older one. [any] */
  ddh_rc (*set)(void* h, const char* key, const void* value, uint64_t bytes, ddh_err* err) DDH_NX;
  /* Waits for the key and copies its value; timeout_ms 0: it does not wait. *bytes: in the capacity, out the size.
   * DDH_DEADLINE_EXCEEDED: timeout_ms passed. DDH_OUT_OF_RANGE: the capacity is too small. [any] [may-block] */
  ddh_rc (*get)(void* h, const char* key, void* value, uint64_t* bytes, uint32_t timeout_ms, ddh_err* err) DDH_NX;
  /* Adds `delta` to a counter, which is 0 before its first call, and gives its new value. All ranks see one order. The key
   * of a counter has no value for get. DDH_FAILED_PRECONDITION: the key has a value of set. [any] */
  ddh_rc (*add)(void* h, const char* key, int64_t delta, int64_t* value, ddh_err* err) DDH_NX;
  /* Removes a value or a counter; no error if there is none. [any] */
  ddh_rc (*erase)(void* h, const char* key, ddh_err* err) DDH_NX;
} ddh_kv_api;
#define DDH_KV_API_MIN_SIZE 40u

#endif
