/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/stream.h: "ddh.stream/0", in-order queues of work and the events between them.
 *
 * A NULL stream is the rank's default stream. On the CPU device every stream runs inline: work is done when
 * the call returns, events are always complete, and the calls below cost nothing. On other devices:
 *
 *   work on a stream          sees what was queued on that stream before it, and nothing of other streams but what is
 *                             behind an event that the stream waited for, or behind a synchronize
 *   the caller itself         may touch memory that queued work touches only after a synchronize of its stream; memory
 *                             of the device (DDH_MEM_DEVICE) never, but through copy, flatops and run
 *   what a caller queues      sees what the caller wrote before the call
 *   release of a block        waits for nothing: the caller has synchronized with all work on it
 *
 * A device may check these rules; then a call that breaks one returns DDH_FAILED_PRECONDITION, and the sentence names
 * the memory, both pieces of work and their streams.
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_STREAM_H
#define DDH_SERVICE_STREAM_H

#include "ddh/abi.h"

#define DDH_STREAM_IFACE "ddh.stream/0"

typedef struct ddh_stream ddh_stream;
typedef struct ddh_event ddh_event;

/* A place that a piece of work touches. Frozen for ever (it comes in arrays), so it has no struct_size. */
#define DDH_ACCESS_READ 1u
#define DDH_ACCESS_WRITE 2u
typedef struct ddh_access {
  const void* data;
  uint64_t bytes;
  uint32_t mode; /* DDH_ACCESS_* */
  uint32_t reserved0;
} ddh_access;

/* Work of the host on a stream. It may run on a thread of the device, calls no service of the host, and returns like
 * every call. */
typedef ddh_rc (*ddh_stream_fn)(void* arg, ddh_err* err) DDH_NX;

typedef struct ddh_stream_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The caller owns *out and destroys it before the instance ends. [main] */
  ddh_rc (*create)(void* h, const char* name, ddh_stream** out, ddh_err* err) DDH_NX;
  /* Waits for the work queued so far, then ends the stream. NULL is ignored. [main] [may-block] */
  void (*destroy)(void* h, ddh_stream* stream) DDH_NX;
  /* An event that counts as complete until it is recorded. The caller owns *out. [main] */
  ddh_rc (*event_create)(void* h, ddh_event** out, ddh_err* err) DDH_NX;
  /* Waits that are queued keep what they need. NULL is ignored. [main] */
  void (*event_destroy)(void* h, ddh_event* event) DDH_NX;
  /* The event completes when the work queued on `stream` so far is done. [serial] [stream-ordered] */
  ddh_rc (*record)(void* h, ddh_event* event, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Work queued on `stream` after this call waits for the event as it was recorded last; one that never was is
   * complete. [main] [stream-ordered] */
  ddh_rc (*wait)(void* h, ddh_stream* stream, ddh_event* event, ddh_err* err) DDH_NX;
  /* Waits on the host until the stream is empty; errors of its work appear here. [serial] [may-block] */
  ddh_rc (*synchronize)(void* h, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* The runtime's own handle (cudaStream_t) or NULL where there is none. [any] */
  void* (*native)(void* h, ddh_stream* stream)DDH_NX;
  /* Calls fn(arg) on the host in the order of `stream`, and later work on the stream waits for its end. `accesses` are
   * all places of DDH_MEM_DEVICE and DDH_MEM_PINNED that fn touches, and other memory that queued work shares with it;
   * the array is read during the call, `arg` lives until fn has returned. `name` says what it is in messages. What
   * fn returns is an error of the stream's work. After DDH_OK fn is called exactly once, or was (inline streams); after
   * an error never, but where fn itself returned it (inline streams). DDH_UNIMPLEMENTED: a place lies in memory of the
   * device that the host can't reach. [main] [stream-ordered] */
  ddh_rc (*run)(void* h, ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses,
                uint32_t n_accesses, const char* name, ddh_err* err) DDH_NX;
  /* Says that the caller itself is about to touch these places of host memory, and nothing else: a device that checks
   * refuses when queued work may still be using them. Others answer DDH_OK. [serial] */
  ddh_rc (*touch)(void* h, const ddh_access* accesses, uint32_t n_accesses, const char* name, ddh_err* err) DDH_NX;
} ddh_stream_api;
#define DDH_STREAM_API_MIN_SIZE 88u

#endif
