/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/comm.h: "ddh.comm_backend/0", a transport; and "ddh.comm_shared/0", what a transport offers whose ranks
 * see the same memory. The host puts windows, exchanges and counters on top.
 *
 *   created --init--> ready --(collectives)*--> finalize --> destroyed
 *
 * A wait never outlives a peer: when one is gone the call returns DDH_UNAVAILABLE and names it. The launcher ends the
 * ranks of a machine when one of them dies; a transport across machines notices a dead peer by its own means (a closed
 * connection, a heartbeat). tests/comm/collectives_test is a conformance test: DDHOST_COMM=./mine.so runs it.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_COMM_H
#define DDH_KIND_COMM_H

#include "ddh/abi.h"
#include "ddh/service/comm.h"

#define DDH_COMM_BACKEND_IFACE "ddh.comm_backend/0"
#define DDH_COMM_SHARED_IFACE "ddh.comm_shared/0"

/* ddh_desc.caps of transports. */
#define DDH_CAP_RANKS_ARE_THREADS (UINT64_C(1) << 16) /* all ranks live in one process (loop); else one process each */
#define DDH_CAP_SINGLE_HOST (UINT64_C(1) << 17)       /* ranks must share a machine */

typedef struct ddh_comm_init {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  uint32_t reduce_block;  /* ranks per block of the ordered sum; at least 1 */
  uint64_t run_id;        /* the same on all ranks, different for every run */
  int32_t node;           /* of this rank; nodes hold ranks_per_node consecutive ranks */
  int32_t local_rank;     /* in its node */
  int32_t ranks_per_node; /* 0: all ranks are on one node */
  uint32_t reserved0;
} ddh_comm_init;
#define DDH_COMM_INIT_MIN_SIZE 40u

typedef struct ddh_comm_backend_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Joins the world; peers find each other through ddh.kv. [main] [collective] [may-block] */
  ddh_rc (*init)(ddh_inst* self, const ddh_comm_init* args, ddh_err* err) DDH_NX;
  /* The group of all ranks, after init. [any] */
  ddh_group* (*world)(ddh_inst* self)DDH_NX;
  /* Members only, ranks ascending; destroyed with the instance. [main] [collective] [may-block] */
  ddh_rc (*group_create)(ddh_inst* self, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out,
                         ddh_err* err) DDH_NX;
  /* This rank's place in a group, its size, and its DDH_COMM_*. [any] */
  ddh_rc (*group_info)(ddh_inst* self, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps,
                       ddh_err* err) DDH_NX;
  /* Each as in ddh.comm/1; `group` is never NULL here. all_gather, broadcast and barrier are required; others may be
   * NULL, and the host then refuses what needs them by name. [serial] [collective] [stream-ordered] [may-block] */
  ddh_rc (*all_reduce)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*reduce_scatter)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_gather)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*broadcast)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_to_all)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*send)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*recv)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*barrier)(ddh_inst* self, ddh_group* group, ddh_err* err) DDH_NX;
  /* This rank has failed: waits of all ranks end with DDH_ABORTED and this sentence. The host calls it from the thread
   * that failed, perhaps while another one waits in a collective. [any] */
  void (*abort)(ddh_inst* self, const char* reason) DDH_NX;
  /* Orderly end: after it no peer touches this rank's memory. [main] [collective] */
  ddh_rc (*finalize)(ddh_inst* self, ddh_err* err) DDH_NX;
} ddh_comm_backend_api;
#define DDH_COMM_BACKEND_API_MIN_SIZE 120u

typedef struct ddh_region ddh_region;

/* Memory that all ranks of a group see, and marks to order its use. A mark is a counter that one rank raises and
 * others wait for; raising releases what was written before, a satisfied wait acquires it. */
typedef struct ddh_comm_shared_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* One zero-filled region of `bytes`, backed from the start (DDH_RESOURCE_EXHAUSTED now, never a fault later).
   * *base is this rank's address of it, page-aligned. [main] [collective] [may-block] */
  ddh_rc (*region_create)(ddh_inst* self, ddh_group* group, const char* name, uint64_t bytes, void** base,
                          ddh_region** out, ddh_err* err) DDH_NX;
  /* Ends this rank's mapping; the pages go when the last rank has. [main] */
  void (*region_destroy)(ddh_inst* self, ddh_region* region) DDH_NX;
  /* Reserves `n` marks per rank of the group, at 0; *first numbers them alike on every rank. [main] [collective] */
  ddh_rc (*marks_create)(ddh_inst* self, ddh_group* group, uint32_t n, uint32_t* first, ddh_err* err) DDH_NX;
  /* Raises my mark to `value`, never down. [main] */
  void (*mark_set)(ddh_inst* self, ddh_group* group, uint32_t mark, uint64_t value) DDH_NX;
  /* Waits until the mark of group rank `peer` is at least `value`. `what` names the wait for the error text.
   * [main] [may-block] */
  ddh_rc (*mark_wait)(ddh_inst* self, ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what,
                      ddh_err* err) DDH_NX;
} ddh_comm_shared_api;
#define DDH_COMM_SHARED_API_MIN_SIZE 48u

#endif
