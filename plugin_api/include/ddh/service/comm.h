/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/comm.h: "ddh.comm/1", collectives between the ranks of a group, on any transport.
 *
 * In a group, calls are matched by their order: every rank makes the same calls with the same counts. A rank makes one
 * call at a time, including calls of ddh.window, ddh.optim and ddh.params. Any of its threads may make it ([serial]:
 * autograd's backward runs on its own threads). A second call at the same time gets DDH_FAILED_PRECONDITION. A plugin's
 * collectives must have returned before the host's call into the plugin returns. If the transport has
 * DDH_COMM_ORDERED_SUM, a sum is a left fold in rank order over blocks of ddh_attach_args.reduce_block ranks: acc =
 * ((initial + block_0) + block_1) + ..., and inside a block also in rank order. A group of group_create is one block.
 * Equal inputs then give equal bits on every rank and in every run. Without that capability a transport may sum in any
 * order, and equal bits are not guaranteed. Buffers are host memory or blocks of the device. If a transport does not
 * support device memory, it gets a copy in staging memory of the host (DDH_MEM_PINNED, tag comm). The copy is made in
 * the order of `stream`, and the call waits for it. The args struct is the same one that a transport plugin gets
 * (ddh/kind/comm.h).
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_COMM_H
#define DDH_SERVICE_COMM_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_COMM_IFACE "ddh.comm/1"

typedef struct ddh_group ddh_group; /* an ordered set of ranks */

/* Reductions. */
#define DDH_SUM 1
#define DDH_MAX 2
#define DDH_MIN 3

/* Capabilities of a transport for a group. */
#define DDH_COMM_SHARED_VIEW 1u /* ranks map the same pages: windows need no copies, gradients are read in place */
#define DDH_COMM_ORDERED_SUM 2u /* sums are taken in rank order */
#define DDH_COMM_INITIAL 4u     /* supports ddh_coll.initial; else a call with it is refused */
#define DDH_COMM_LATER 8u       /* DDH_REDUCE_LATER has an effect; only ddh.window caps has it */

/* One collective. In place is allowed: all_reduce with send == recv; reduce_scatter with recv inside send at this
 * rank's piece; all_gather with send inside recv at this rank's piece. Other overlaps are not allowed.
 *   all_reduce      send, recv: count elements
 *   reduce_scatter  send: all pieces in rank order; recv: this rank's piece
 *   all_gather      send: this rank's piece; recv: all pieces in rank order
 *   broadcast       send (read at root only), recv: count elements
 *   all_to_all      send: a piece for each rank, in rank order; recv: a piece from each rank, in rank order
 *   send, recv      one buffer of count elements, peer = root
 * A piece has `count` elements, or counts[rank] if `counts` is given (uneven or empty pieces). For all_to_all `counts`
 * has the pieces that this rank sends and `recv_counts` those that it receives: both are given, or neither. The counts
 * of sender and receiver must agree; otherwise the transport refuses the call and names both ranks. */
typedef struct ddh_coll {
  uint32_t struct_size;
  int32_t dtype; /* sums: F32, F64, BF16 (added in fp32, the result rounded to nearest even), I32, I64; moves: all */
  int32_t op;    /* DDH_SUM, DDH_MAX, DDH_MIN */
  int32_t root;
  const void* send;
  void* recv;
  uint64_t count;
  const uint64_t* counts; /* one per rank of the group, or NULL */
  ddh_group* group;       /* NULL = all ranks */
  ddh_stream* stream;
  const char* label;           /* for messages and traces: "zero3 gather h.3"; may be NULL */
  const uint64_t* recv_counts; /* all_to_all: one per rank of the group, or NULL */
  /* For sums of F32: the value from which the fold starts; NULL: the first contribution. It has as many elements as
   * `recv`, and may be `recv`. Either all ranks of the group give one, or none. For all_reduce it is equal on every rank. */
  const void* initial;
} ddh_coll;
#define DDH_COLL_MIN_SIZE 88u

typedef struct ddh_comm_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The group of a mesh dimension: "world", or "dp" (data parallel; the same ranks today). Owned by the host. A model
   * gets its own group, so its collectives never mix with the strategy's. Its first call here, or its first collective
   * with a NULL group, is [collective]. [main] */
  ddh_rc (*group)(void* h, const char* dimension, ddh_group** out, ddh_err* err) DDH_NX;
  /* A group of the given world ranks, ascending. Only its members call. Owned by the host. [main] [collective] */
  ddh_rc (*group_create)(void* h, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out,
                         ddh_err* err) DDH_NX;
  /* This rank's index in the group, the group's size and its DDH_COMM_*; NULL group = all ranks. [any] */
  ddh_rc (*group_info)(void* h, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err* err) DDH_NX;
  /* Each: DDH_UNAVAILABLE: a peer is gone; the message names it. DDH_ABORTED: another rank ended the run.
   * [serial] [collective] [stream-ordered] [may-block] */
  ddh_rc (*all_reduce)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*reduce_scatter)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_gather)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*broadcast)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_to_all)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  /* Each is point to point: the two peers call, in the same order. [serial] [stream-ordered] [may-block] */
  ddh_rc (*send)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*recv)(void* h, const ddh_coll* args, ddh_err* err) DDH_NX;
  /* Returns when every rank of the group has called. [serial] [collective] [may-block] */
  ddh_rc (*barrier)(void* h, ddh_group* group, ddh_err* err) DDH_NX;
} ddh_comm_api;
#define DDH_COMM_API_MIN_SIZE 96u

#endif
