/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/comm.h: "ddh.comm_backend/0", a transport; and "ddh.comm_shared/0", the shared memory of a transport whose
 * ranks are on one machine. The host implements windows, exchanges and counters on these.
 *
 *   created --init--> ready --(collectives)*--> finalize --> destroyed
 *
 * A wait ends when a peer dies: the call returns DDH_UNAVAILABLE and names the peer. Every waiting call returns within a
 * second after abort, and after the death of a peer's process. A machine that is cut off is the launcher's duty: it ends
 * the ranks of all machines. The conformance test is `DDHOST_COMM=./mine.so build/tests/bin/collectives`.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_COMM_H
#define DDH_KIND_COMM_H

#include "ddh/abi.h"
#include "ddh/kind/device.h"
#include "ddh/service/comm.h"

#define DDH_COMM_BACKEND_IFACE "ddh.comm_backend/0"
#define DDH_COMM_SHARED_IFACE "ddh.comm_shared/0"

/* ddh_desc.caps of transports. */
#define DDH_CAP_RANKS_ARE_THREADS (UINT64_C(1) << 16) /* all ranks share one process (loop); else one process each */
#define DDH_CAP_SINGLE_HOST (UINT64_C(1) << 17)       /* ranks must share a machine */
/* Buffers are in memory of the device (DDH_MEM_DEVICE or DDH_MEM_PINNED), and collectives are queued on their stream.
 * Collectives of host memory and barriers go to a second transport, which the host adds (comm.host). */
#define DDH_CAP_DEVICE_BUFFERS (UINT64_C(1) << 18)

typedef struct ddh_comm_init {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  uint32_t reduce_block;         /* ranks per block of the ordered sum; at least 1 */
  uint64_t run_id;               /* the same on all ranks, different for every run */
  int32_t node;                  /* node of this rank; a node has consecutive ranks */
  int32_t local_rank;            /* rank within its node */
  int32_t ranks_per_node;        /* 0: there is one node, or nodes differ in their number of ranks */
  uint32_t n_nodes;              /* at least 1 */
  const ddh_device_info* device; /* this rank's device */
  const int32_t* node_of;        /* of each rank, ascending; world_size */
  /* The IP addresses at which this rank's node and every node (n_nodes) is reached by the others. A transport listens on
   * this one alone. NULL: all ranks are on one machine. */
  const char* address;
  const char* const* addresses;
  uint32_t timeout_ms; /* init and group_create wait at most so long for the other ranks */
  /* The rank in the run of this instance's rank 0; messages to people add it to each rank. Not 0 if the instance connects
   * only the ranks of one node. */
  int32_t first_rank;
} ddh_comm_init;
#define DDH_COMM_INIT_MIN_SIZE 80u

/* A group of `n_ranks` ranks of a run, before it exists. */
typedef struct ddh_comm_plan {
  uint32_t struct_size;
  uint32_t caps;  /* DDH_COMM_* */
  uint64_t bytes; /* that it takes on each rank, tag comm */
} ddh_comm_plan;
#define DDH_COMM_PLAN_MIN_SIZE 16u

typedef struct ddh_comm_backend_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Connects to all ranks; peers find each other through ddh.kv. [main] [collective] [may-block] */
  ddh_rc (*init)(ddh_inst* self, const ddh_comm_init* args, ddh_err* err) DDH_NX;
  /* The group of all ranks, after init. [any] */
  ddh_group* (*world)(ddh_inst* self)DDH_NX;
  /* Called by members only; ranks are ascending. Destroyed with the instance. [main] [collective] [may-block] */
  ddh_rc (*group_create)(ddh_inst* self, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out,
                         ddh_err* err) DDH_NX;
  /* This rank's index in a group, the group's size, and the group's DDH_COMM_*. [any] */
  ddh_rc (*group_info)(ddh_inst* self, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps,
                       ddh_err* err) DDH_NX;
  /* Each is as in ddh.comm/1, but `group` is never NULL. Of buffers in host memory `stream` has no meaning: the host has waited
   * for earlier work, and the call is done when it returns. all_gather, broadcast and barrier are required; without another
   * one the host refuses what needs it, by name. [serial] [collective] [stream-ordered] [may-block] */
  ddh_rc (*all_reduce)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*reduce_scatter)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_gather)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*broadcast)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*all_to_all)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*send)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*recv)(ddh_inst* self, const ddh_coll* args, ddh_err* err) DDH_NX;
  ddh_rc (*barrier)(ddh_inst* self, ddh_group* group, ddh_err* err) DDH_NX;
  /* This rank has failed: waits of all ranks end with DDH_ABORTED and this message. The host calls it from the thread
   * that failed, perhaps while another thread waits in a collective. The transport itself brings `reason` to its peers, for
   * example by ddh.kv `set` before it ends its waits: the host passes nothing on. [any] */
  void (*abort)(ddh_inst* self, const char* reason) DDH_NX;
  /* The orderly end. After it no peer accesses this rank's memory. [main] [collective] */
  ddh_rc (*finalize)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* A block of memory will be used in many collectives of the group, until buffer_unregister. Failures are not errors:
   * the transport then works without. NULL: the transport needs no such hint. [main] */
  void (*buffer_register)(ddh_inst* self, ddh_group* group, void* p, uint64_t bytes) DDH_NX;
  /* Called before the block is freed, when no queued work uses it any more. [main] */
  void (*buffer_unregister)(ddh_inst* self, ddh_group* group, void* p) DDH_NX;
  /* A block of the device's memory for the windows and exchanges of a group, of `bytes` on every rank of the group. It is
   * 256-byte aligned, which the host checks; its content is undefined. buffer_register is not called for it. *out NULL:
   * the transport has no memory of its own, and the host takes the device's. A transport has both this function and
   * buffer_release, or neither.
   * DDH_RESOURCE_EXHAUSTED: no memory. [main] [collective] [may-block] */
  ddh_rc (*buffer_allocate)(ddh_inst* self, ddh_group* group, uint64_t bytes, void** out, ddh_err* err) DDH_NX;
  /* Frees a block of buffer_allocate, which no queued work uses any more. [main] */
  void (*buffer_release)(ddh_inst* self, ddh_group* group, void* p) DDH_NX;
  /* Says whether queued collectives of all groups are done or can still be done. DDH_UNAVAILABLE, DDH_ABORTED: the
   * transport has given them up, and the message says why. A wait for the device then succeeds although their results are
   * undefined. So the host calls this after such waits, before it uses or stores what depends on collectives. It neither
   * waits nor sends. NULL: waits for the device fail themselves. [any] */
  ddh_rc (*poll)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* What init and group_create will give a group of `n_ranks` of these ranks; n_ranks = args->world_size: all ranks. It is
   * called instead of init and connects to nobody, so that `ddhost plan` needs no ranks. NULL: it is not known. [main] */
  ddh_rc (*plan)(ddh_inst* self, const ddh_comm_init* args, uint32_t n_ranks, ddh_comm_plan* out, ddh_err* err) DDH_NX;
} ddh_comm_backend_api;
#define DDH_COMM_BACKEND_API_MIN_SIZE 168u

typedef struct ddh_region ddh_region;

/* Memory that all ranks of a group share, and marks that synchronize its use. A mark is a counter that one rank raises
 * and others wait for. Raising is a release and a satisfied wait is an acquire, as in the C memory model. */
typedef struct ddh_comm_shared_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Maps one zero-filled region of `bytes`. Its pages are allocated at once, so a lack of memory gives
   * DDH_RESOURCE_EXHAUSTED here and never a fault later. *base is this rank's address of it, page-aligned. [main]
   * [collective] [may-block] */
  ddh_rc (*region_create)(ddh_inst* self, ddh_group* group, const char* name, uint64_t bytes, void** base,
                          ddh_region** out, ddh_err* err) DDH_NX;
  /* Ends this rank's mapping. The pages are freed when the last rank has called it. [main] */
  void (*region_destroy)(ddh_inst* self, ddh_region* region) DDH_NX;
  /* Reserves `n` marks per rank of the group, at 0. *first is the same on every rank. [main] [collective] */
  ddh_rc (*marks_create)(ddh_inst* self, ddh_group* group, uint32_t n, uint32_t* first, ddh_err* err) DDH_NX;
  /* Raises this rank's mark to `value`; it never decreases. [main] */
  void (*mark_set)(ddh_inst* self, ddh_group* group, uint32_t mark, uint64_t value) DDH_NX;
  /* Waits until the mark of group rank `peer` is at least `value`. `what` names the wait for the error text.
   * [main] [may-block] */
  ddh_rc (*mark_wait)(ddh_inst* self, ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what,
                      ddh_err* err) DDH_NX;
} ddh_comm_shared_api;
#define DDH_COMM_SHARED_API_MIN_SIZE 48u

#endif
