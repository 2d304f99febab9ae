/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/metrics.h: "ddh.metrics/1", counters and time spans of this rank.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_METRICS_H
#define DDH_SERVICE_METRICS_H

#include "ddh/abi.h"

#define DDH_METRICS_IFACE "ddh.metrics/1"

/* The category of a span in the table of times that a run prints. */
#define DDH_SPAN_OTHER 0
#define DDH_SPAN_DATA 1
#define DDH_SPAN_FORWARD 2
#define DDH_SPAN_BACKWARD 3
#define DDH_SPAN_COMM 4
#define DDH_SPAN_OPTIM 5

typedef struct ddh_metrics_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Adds to a named counter, created at first use. The run's summary has its sum. [any] */
  void (*count)(void* h, const char* name, uint64_t add) DDH_NX;
  /* Each opens or closes a span. Spans nest, and time counts for the innermost. `kind` is DDH_SPAN_*. [main] */
  void (*span_begin)(void* h, int32_t kind, const char* name) DDH_NX;
  void (*span_end)(void* h) DDH_NX;
} ddh_metrics_api;
#define DDH_METRICS_API_MIN_SIZE 32u

#endif
