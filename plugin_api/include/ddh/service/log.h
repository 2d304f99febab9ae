/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/log.h: "ddh.log/1", the run's log. Plugins never print.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_LOG_H
#define DDH_SERVICE_LOG_H

#include "ddh/abi.h"

#define DDH_LOG_IFACE "ddh.log/1"

#define DDH_LOG_DEBUG 1
#define DDH_LOG_INFO 2
#define DDH_LOG_WARN 3
#define DDH_LOG_ERROR 4

typedef struct ddh_log_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Writes one line, prefixed with rank and plugin. `text` is copied. [any] */
  void (*write)(void* h, int32_t level, const char* text) DDH_NX;
} ddh_log_api;
#define DDH_LOG_API_MIN_SIZE 16u

#endif
