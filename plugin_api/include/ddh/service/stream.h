/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/stream.h: "ddh.stream/0", in-order queues of work and the events between them.
 *
 * A NULL stream is the rank's default stream. On the CPU device every stream runs inline: work is done when
 * the call returns, events are always complete, and the calls below cost nothing. On other devices:
 *
 *   work on a stream          sees the results of earlier work on that stream; results of other streams only after an
 *                             event that the stream waited for, or after a synchronize
 *   the caller itself         may access memory that queued work uses only after a synchronize of that stream; it
 *                             accesses DDH_MEM_DEVICE only through copy, flatops and run
 *   work that is queued       sees what the caller wrote before the call
 *   release of a block        waits for nothing: the caller must have synchronized with all work on the block
 *
 * A device may check these rules. A call that breaks one then returns DDH_FAILED_PRECONDITION, and the message names
 * the memory, both pieces of work and their streams.
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_STREAM_H
#define DDH_SERVICE_STREAM_H

#include "ddh/abi.h"

#define DDH_STREAM_IFACE "ddh.stream/0"

typedef struct ddh_stream ddh_stream;
typedef struct ddh_event ddh_event;
typedef struct ddh_graph ddh_graph;

/* A range of memory that a piece of work accesses. Frozen for ever because it is passed in arrays, so it has no
 * struct_size. */
#define DDH_ACCESS_READ 1u
#define DDH_ACCESS_WRITE 2u
typedef struct ddh_access {
  const void* data;
  uint64_t bytes;
  uint32_t mode; /* DDH_ACCESS_* */
  uint32_t reserved0;
} ddh_access;

/* A host function on a stream. It may run on a thread of the device. It must not call services of the host, and returns
 * a result code like every call. */
typedef ddh_rc (*ddh_stream_fn)(void* arg, ddh_err* err) DDH_NX;

typedef struct ddh_stream_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The caller owns *out and destroys it before the instance ends. [main] */
  ddh_rc (*create)(void* h, const char* name, ddh_stream** out, ddh_err* err) DDH_NX;
  /* Waits for the work queued so far, then ends the stream. NULL is ignored. [main] [may-block] */
  void (*destroy)(void* h, ddh_stream* stream) DDH_NX;
  /* Creates an event, which counts as complete until it is recorded. The caller owns *out. [main] */
  ddh_rc (*event_create)(void* h, ddh_event** out, ddh_err* err) DDH_NX;
  /* Destroys an event. Queued waits stay valid. NULL is ignored. [main] */
  void (*event_destroy)(void* h, ddh_event* event) DDH_NX;
  /* The event completes when the work queued on `stream` so far is done. [serial] [stream-ordered] */
  ddh_rc (*record)(void* h, ddh_event* event, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Work queued on `stream` after this call waits for the last recording of the event. An event that was never recorded
   * is complete. [main] [stream-ordered] */
  ddh_rc (*wait)(void* h, ddh_stream* stream, ddh_event* event, ddh_err* err) DDH_NX;
  /* Blocks the caller until the stream is empty. Returns errors of its work. [serial] [may-block] */
  ddh_rc (*synchronize)(void* h, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* The runtime's own handle (cudaStream_t); NULL: there is none. native(NULL) is that of the default stream. [any] */
  void* (*native)(void* h, ddh_stream* stream)DDH_NX;
  /* Calls fn(arg) on the host in the order of `stream`; later work on the stream waits for it. `accesses` lists all
   * ranges of DDH_MEM_DEVICE and DDH_MEM_PINNED that fn accesses, and other memory that it shares with queued work. The
   * array is read during the call. `arg` must live until fn has returned. `name` is for messages. An error that fn
   * returns is an error of the stream's work. After DDH_OK fn is called exactly once; an inline stream has called it
   * already. After an error fn is not called, unless fn itself returned the error on an inline stream.
   * DDH_UNIMPLEMENTED: a range is in memory of the device that the host can't access. [main] [stream-ordered] */
  ddh_rc (*run)(void* h, ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses,
                uint32_t n_accesses, const char* name, ddh_err* err) DDH_NX;
  /* Declares that the caller itself is about to access these ranges of host memory. A device that checks the rules
   * refuses if queued work may still be using them. Other devices return DDH_OK. [serial] */
  ddh_rc (*touch)(void* h, const ddh_access* accesses, uint32_t n_accesses, const char* name, ddh_err* err) DDH_NX;
  /* From here on, kernels, flat operations and copies that are queued on `stream` are recorded and don't run, until
   * capture_end. Until then the thread queues nothing on other streams. Its calls that wait, allocate, run a host
   * function, create a stream or an event, record or wait for an event, launch a graph, find a kernel that was not found
   * before, or copy from or to DDH_MEM_HOST return DDH_FAILED_PRECONDITION; the message names the call and `name`. What
   * it releases or destroys is freed at capture_end. Other threads are not concerned. Arguments of kernels are recorded
   * as they are: memory that they name must stay where it is. A copy from DDH_MEM_PINNED is recorded too: each launch
   * copies what the memory holds then. DDH_UNIMPLEMENTED: the device has no graphs, or the run does not use them
   * (device.graphs). NULL: the device has none. [main] */
  ddh_rc (*capture_begin)(void* h, ddh_stream* stream, const char* name, ddh_err* err) DDH_NX;
  /* Ends the recording, also if it fails: then nothing was recorded, and *out is unchanged. The caller owns *out and
   * destroys it before the instance ends. out == NULL discards the recording, and its errors are not returned. [main] */
  ddh_rc (*capture_end)(void* h, ddh_stream* stream, ddh_graph** out, ddh_err* err) DDH_NX;
  /* Queues the recorded work once more, on the recorded stream or on another one. The launches of one graph run one
   * after the other. [main] [stream-ordered] */
  ddh_rc (*graph_launch)(void* h, ddh_graph* graph, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Destroys a graph whose queued work is done. NULL is ignored. [main] */
  void (*graph_destroy)(void* h, ddh_graph* graph) DDH_NX;
} ddh_stream_api;
#define DDH_STREAM_API_MIN_SIZE 120u

#endif
