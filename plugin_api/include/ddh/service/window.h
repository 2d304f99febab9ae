/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/window.h: "ddh.window/1", how shards become visible to all ranks and how gradients are summed.
 *
 * A WINDOW is a flat buffer of one segment per rank of a group. Each rank writes its own segment, and all ranks can
 * read the whole. If ranks share pages (DDH_COMM_SHARED_VIEW), the full view always exists, once per machine, and open
 * copies nothing. Otherwise open gathers it into a buffer.
 *
 * An EXCHANGE is its counterpart for gradients: every rank has a full-size buffer, and reduce gives a rank the sum over
 * ranks of its segment. If ranks share pages, they read each other's buffers in place.
 *
 * The window epoch e is the number of commits of a window before a write; the generation g is the number of fills of an
 * exchange before it. Each object has its own. The table shows writers, readers, and the marks that synchronize them.
 * All waits are for marks of peers; there is no barrier.
 *
 *   | memory                     | writer             | readers    | the write waits for        | the read waits for       |
 *   |----------------------------|--------------------|------------|----------------------------|--------------------------|
 *   | window, segment r          | r: write_begin to  | all: open  | closed(e) of every rank    | committed(e+1) of every  |
 *   |                            | commit             | to close   | (write_begin)              | rank (open)              |
 *   | exchange buffer of rank p, | p: write_begin to  | r: reduce  | done(g) of every rank      | ready(g+1) of every rank |
 *   | segment r                  | ready              |            | (write_begin)              | (reduce)                 |
 *   | the same, after a          | r, into every p    | p: wait to | ready(g+1) of every rank   | done(g+1) of every rank  |
 *   | reduce with TO_ALL         |                    | write_begin| (reduce)                   | (wait)                   |
 *
 * If no rank has an open view when ddh.optim decide returns, decide also counts as closed(e) of all windows, and
 * write_begin does not wait.
 *
 * On a device without DDH_CAP_HOST_MEMORY pages are never shared: segments and buffers are in device memory. If the
 * transport does not support device memory, open and reduce use staging memory of the host (DDH_MEM_PINNED, tag comm)
 * and wait for the stream. The window orders calls on different streams: open sees what the stream of the commit has
 * written, and write_begin waits for the streams of the closes.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_WINDOW_H
#define DDH_SERVICE_WINDOW_H

#include "ddh/abi.h"
#include "ddh/service/comm.h"
#include "ddh/service/optim.h"

#define DDH_WINDOW_IFACE "ddh.window/1"

typedef struct ddh_window ddh_window;
typedef struct ddh_exchange ddh_exchange;

#define DDH_WINDOW_PERMANENT 1u /* the full view stays allocated; open needs no backing on any transport */

typedef struct ddh_window_args {
  uint32_t struct_size;
  int32_t dtype;
  ddh_group* group;              /* NULL = all ranks */
  const uint64_t* segment_numel; /* one per rank of the group; may be uneven or 0 */
  const char* name;              /* "h.3": for messages and counters */
  int32_t tag;                   /* DDH_TAG_PARAM in every known strategy */
  uint32_t flags;                /* DDH_WINDOW_* */
} ddh_window_args;
#define DDH_WINDOW_ARGS_MIN_SIZE 40u

typedef struct ddh_exchange_args {
  uint32_t struct_size;
  uint32_t reserved0;
  ddh_group* group;
  uint64_t numel; /* capacity of each rank's buffer, fp32 */
  const char* name;
} ddh_exchange_args;
#define DDH_EXCHANGE_ARGS_MIN_SIZE 32u

#define DDH_REDUCE_ADD 1u    /* further micro-batches: the sum starts from dst, which is not NULL */
#define DDH_REDUCE_NORM 2u   /* the result is final: its squares are added to this step's norm */
#define DDH_REDUCE_TO_ALL 4u /* the result is also written to every rank's exchange buffer (all_reduce) */
/* With DDH_COMM_LATER the host may compute the result after the call. It is ready, and in the norm, when write_begin or wait of
 * this exchange, a collective of ddh.comm, or ddh.optim decide or decide_in has returned; it also returns errors of the sum.
 * Until then the caller does not read, write or free dst or the buffer. Without DDH_COMM_LATER the flag has no effect. */
#define DDH_REDUCE_LATER 8u

typedef struct ddh_reduce_args {
  uint32_t struct_size;
  uint32_t flags;                /* DDH_REDUCE_* */
  const uint64_t* segment_numel; /* segment sizes of the buffer, one per rank; their sum is at most the capacity */
  float* dst;              /* this rank's segment, in device or host memory; NULL = its range of the exchange buffer */
  const ddh_range* ranges; /* the segment's parameters, flat_offset from its start; used to name a non-finite value */
  uint32_t n_ranges;
  uint32_t reserved0;
} ddh_reduce_args;
#define DDH_REDUCE_ARGS_MIN_SIZE 40u

typedef struct ddh_window_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Creates a window, zero-filled, at window epoch 0 (nothing committed). Its memory counts under `tag`: the segment, and the
   * rest of the view while it is open (always, if PERMANENT). The caller owns *out. [main] [collective] [may-block] */
  ddh_rc (*create)(void* h, const ddh_window_args* args, ddh_window** out, ddh_err* err) DDH_NX;
  /* Every rank destroys its handle. No rank may use the window afterwards. NULL is ignored. [main] */
  void (*destroy)(void* h, ddh_window* w) DDH_NX;
  /* This rank's segment. Write only between write_begin and commit; read at any time. Valid until destroy. [main] */
  void* (*segment)(void* h, ddh_window* w)DDH_NX;
  /* Waits until every rank has closed the current window epoch. [main] [may-block] */
  ddh_rc (*write_begin)(void* h, ddh_window* w, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Publishes this rank's segment of the next window epoch. A mark, not a barrier. [main] [stream-ordered] */
  ddh_rc (*commit)(void* h, ddh_window* w, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Waits until every rank has committed as often as this rank, and gives the full view in *view, valid on
   * `stream` until close. On transports that copy, `backing` receives all segments. It is ignored (may be NULL) if
   * pages are shared or the window is PERMANENT. Calls may be nested. [main] [may-block] [collective] unless SHARED_VIEW */
  ddh_rc (*open)(void* h, ddh_window* w, void* backing, ddh_stream* stream, void** view, ddh_err* err) DDH_NX;
  /* This rank no longer reads this window epoch. [main] [stream-ordered] */
  ddh_rc (*close)(void* h, ddh_window* w, ddh_stream* stream, ddh_err* err) DDH_NX;

  /* Creates an exchange. Each rank's buffer is zero-filled and counts under DDH_TAG_GRAD. [main] [collective]
   * [may-block] */
  ddh_rc (*exchange_create)(void* h, const ddh_exchange_args* args, ddh_exchange** out, ddh_err* err) DDH_NX;
  /* Every rank destroys its handle, after its last reduce and wait. NULL is ignored. [main] */
  void (*exchange_destroy)(void* h, ddh_exchange* x) DDH_NX;
  /* This rank's buffer. Valid until destroy. [main] */
  float* (*exchange_buffer)(void* h, ddh_exchange* x)DDH_NX;
  /* Waits until no rank reads the buffer any more. Its content is then undefined. [main] [may-block] */
  ddh_rc (*exchange_write_begin)(void* h, ddh_exchange* x, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* This rank's buffer is complete. A mark, not a barrier. [main] [stream-ordered] */
  ddh_rc (*exchange_ready)(void* h, ddh_exchange* x, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Sums this rank's segment over the ranks, in the order of ddh/service/comm.h. With DDH_REDUCE_ADD the fold starts
   * from the values in dst. With precision.reduce_dtype=bf16 contributions are rounded, but the values in dst are not.
   * Called once per generation. [main] [collective] [stream-ordered] [may-block] */
  ddh_rc (*exchange_reduce)(void* h, ddh_exchange* x, const ddh_reduce_args* args, ddh_stream* stream,
                            ddh_err* err) DDH_NX;
  /* After a reduce with TO_ALL: returns when the whole buffer holds the sums. [main] [may-block] */
  ddh_rc (*exchange_wait)(void* h, ddh_exchange* x, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* DDH_COMM_* of the group as windows see them: SHARED_VIEW also depends on comm.windows. [main] */
  uint32_t (*caps)(void* h, ddh_group* group) DDH_NX;
} ddh_window_api;
#define DDH_WINDOW_API_MIN_SIZE 128u

#endif
