/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/host/stream.h: "ddh.stream/1", in-order queues of work and the events between them.
 *
 * A NULL stream is the rank's default stream. On the CPU device every stream runs inline: work is done when
 * the call returns, events are always complete, and the calls below cost nothing. */
#ifndef DDH_HOST_STREAM_H
#define DDH_HOST_STREAM_H

#include "ddh/abi.h"

#define DDH_STREAM_IFACE "ddh.stream/1"

typedef struct ddh_stream_t ddh_stream_t;
typedef struct ddh_event_t ddh_event_t;

typedef struct ddh_stream {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The caller owns *out and destroys it before the instance ends. [main] */
  ddh_rc (*create)(void* h, const char* name, ddh_stream_t** out, ddh_err* err) DDH_NX;
  /* Waits for the work queued so far, then ends the stream. NULL is ignored. [main] [may-block] */
  void (*destroy)(void* h, ddh_stream_t* stream) DDH_NX;
  /* An event that counts as complete until it is recorded. The caller owns *out. [main] */
  ddh_rc (*event_create)(void* h, ddh_event_t** out, ddh_err* err) DDH_NX;
  /* Waits that are queued keep what they need. NULL is ignored. [main] */
  void (*event_destroy)(void* h, ddh_event_t* event) DDH_NX;
  /* The event completes when the work queued on `stream` so far is done. [main] [stream-ordered] */
  ddh_rc (*record)(void* h, ddh_event_t* event, ddh_stream_t* stream, ddh_err* err) DDH_NX;
  /* Work queued on `stream` after this call waits for the event. [main] [stream-ordered] */
  ddh_rc (*wait)(void* h, ddh_stream_t* stream, ddh_event_t* event, ddh_err* err) DDH_NX;
  /* Waits on the host until the stream is empty; errors of its work appear here. [main] [may-block] */
  ddh_rc (*synchronize)(void* h, ddh_stream_t* stream, ddh_err* err) DDH_NX;
  /* The runtime's own handle (cudaStream_t) or NULL for an inline stream. [any] */
  void* (*native)(void* h, ddh_stream_t* stream)DDH_NX;
} ddh_stream;
#define DDH_STREAM_MIN_SIZE 72u

#endif
