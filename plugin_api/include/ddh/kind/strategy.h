/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/strategy.h: "ddh.strategy/1": where parameters, gradients and optimizer state are stored, and when they are
 * communicated.
 *
 *   created --attach--> attached --materialize--> ready --(step_begin, {acquire, release, grads_ready}*, step)*--> destroyed
 *                          \--plan, at any time
 *
 * A strategy sees parameters as flat ranges and communicates through host services. It does not know the model's
 * computation, the transport or the device. These rules make every strategy give the same bits (docs/numerics.md):
 *   - Layout: parameters start on 64-element boundaries of a flat space; padding is zero and stays zero; shards begin
 *     and end on the 64-element grid.
 *   - The gradient of a (unit, micro-batch) is complete before it is summed. DDH_RANK_FIRST: after each
 *     micro-batch, the gradients of the ranks are added to the accumulated gradient in rank order; with reduce_block
 *     = B > 1, the sum of each B neighbours is added as a whole. DDH_MICRO_FIRST: each rank makes one addition per use
 *     and micro-batch, and then the ranks are summed.
 *   - Strategies only SUM. ddh.optim's decide and update apply scale, clip, skip and learning rate.
 * To be frozen at 1.0. */
#ifndef DDH_KIND_STRATEGY_H
#define DDH_KIND_STRATEGY_H

#include "ddh/abi.h"
#include "ddh/kind/model.h"
#include "ddh/service/comm.h"

#define DDH_STRATEGY_IFACE "ddh.strategy/1"

/* ddh_desc.caps of strategies. */
#define DDH_CAP_SHARDS_OPTIM (UINT64_C(1) << 16)
#define DDH_CAP_SHARDS_GRAD (UINT64_C(1) << 17)
#define DDH_CAP_SHARDS_PARAM (UINT64_C(1) << 18)
#define DDH_CAP_OFFLOADS (UINT64_C(1) << 19)
#define DDH_CAP_DRY_ATTACH (UINT64_C(1) << 20) /* takes DDH_ATTACH_DRY */

#define DDH_RANK_FIRST 1
#define DDH_MICRO_FIRST 2

/* One use of a unit in a micro-batch: the host calls acquire, the model's forward or backward, and release. */
#define DDH_OP_GRADS_READY 1u     /* grads_ready follows: the gradients of the unit's own parameters are complete */
#define DDH_OP_RECOMPUTED 2u      /* this forward runs again before its backward */
#define DDH_OP_FORWARD_ONLY 4u    /* in a training program: no backward follows, the unit keeps no activations */
#define DDH_OP_INPUT_GRAD_ONLY 8u /* this backward computes only the gradient of the unit's input */
typedef struct ddh_op {
  uint32_t struct_size;
  int32_t unit;
  int32_t position; /* in the program's unit list */
  int32_t phase;    /* DDH_PHASE_* */
  uint32_t flags;   /* DDH_OP_* */
  uint32_t reserved0;
} ddh_op;
#define DDH_OP_MIN_SIZE 24u

/* A program of this run. The list defines the order of calls; plugins must not compute an order themselves. */
typedef struct ddh_run_program {
  uint32_t struct_size;
  int32_t program;    /* index in ddh_model_desc.programs */
  const ddh_op* ops;  /* ops of one micro-batch, in the order of the calls */
  uint64_t op_stride; /* bytes between two ops */
  uint32_t n_ops;
  uint32_t micro_batches; /* micro-batches per step of a training program; 1 for other programs */
  const uint8_t* trains;  /* one per parameter of the model, 1 = trained by this program; NULL: trains nothing */
} ddh_run_program;
#define DDH_RUN_PROGRAM_MIN_SIZE 40u

/* Only attach, plan and destroy are called, for a rank of a run that does not exist. In attach and plan of ddh.comm only
 * group, group_create and group_info work, and of ddh.window only caps: there are no peers. ddh.params has no values.
 * Nothing is allocated. */
#define DDH_ATTACH_DRY 1u

/* The state of all programs in the list exists from materialize to destroy. Programs that are not in it are never run
 * and need no state. */
typedef struct ddh_attach_args {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  uint32_t grad_accum_steps;
  const ddh_model_desc* model; /* lives longer than the instance */
  ddh_group* group;            /* the data-parallel group */
  int32_t reduce_order;        /* DDH_RANK_FIRST, DDH_MICRO_FIRST */
  int32_t compute_dtype;       /* dtype of views, unless a parameter has its own compute_dtype */
  const ddh_run_program*
      programs;            /* lives longer than the instance; training programs first, in the order of their turns */
  uint64_t program_stride; /* bytes between two of them */
  uint32_t n_programs;
  uint32_t reduce_block;  /* consecutive ranks in a block of the ordered sum; at least 1 */
  int32_t node;           /* node of this rank; a node has consecutive ranks */
  int32_t local_rank;     /* rank within its node */
  int32_t ranks_per_node; /* 0: there is one node, or nodes differ in their number of ranks */
  uint32_t flags;         /* DDH_ATTACH_* */
  const int32_t* node_of; /* of each rank, ascending; lives longer than the instance */
  uint32_t n_nodes;       /* at least 1 */
  uint32_t reserved0;
  int64_t total_steps; /* of the run, counted from step 1; 0: not known */
} ddh_attach_args;
#define DDH_ATTACH_ARGS_MIN_SIZE 104u

/* The i-th program of the run, and the i-th op of a program. */
static inline const ddh_run_program* ddh_attach_program(const ddh_attach_args* args, uint32_t i) {
  return (const ddh_run_program*)(const void*)((const char*)(const void*)args->programs + args->program_stride * i);
}
static inline const ddh_op* ddh_program_op(const ddh_run_program* program, uint32_t i) {
  return (const ddh_op*)(const void*)((const char*)(const void*)program->ops + program->op_stride * i);
}

/* The exact peak memory of a rank in a step, counting addressable bytes; and its communication in one step of the run's
 * first program (logical calls, all micro-batches). Messages that are not sent in every step, such as a publish every
 * 100 steps, count as if they were sent in this one. */
typedef struct ddh_plan {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t param_bytes;
  uint64_t grad_bytes;
  uint64_t optim_bytes;
  uint64_t comm_bytes;
  uint64_t reduce_calls;  /* exchange_reduce, reduce_scatter, all_reduce */
  uint64_t publish_calls; /* window commits, all_gather */
  uint64_t file_bytes;    /* in files, not in memory */
  uint64_t shared_bytes;  /* of param_bytes: in pages of other ranks of the machine, which count them too */
  uint64_t pinned_bytes;  /* of the bytes in memory: DDH_MEM_PINNED, which is the host's; the rest is the device's */
  /* To other ranks in this step, and of these to ranks on other nodes. A byte counts once for each rank that needs it: a
   * piece of a reduce_scatter, and a segment that is published or gathered. An all_reduce counts as a reduce_scatter and
   * an all_gather. A publish counts also where ranks share pages; a gather counts only where a rank makes a copy, because
   * a view of shared pages moves nothing. Both are DDH_PLAN_UNKNOWN before the call: a strategy that does not know them
   * leaves them so. */
  uint64_t sent_bytes;
  uint64_t sent_between_nodes_bytes;
  /* One entry for each parameter of the model, zeros; the host's memory, valid during the call. NULL: it does not ask. The
   * strategy writes 1 where a rank has the gradient only in blocks of rows (ddh_param_desc.grad_block), never whole. */
  uint8_t* grad_in_blocks;
} ddh_plan;
#define DDH_PLAN_MIN_SIZE 104u
#define DDH_PLAN_UNKNOWN UINT64_MAX

/* One use of a unit. `next` lists the units that the host will acquire after it, nearest first, until the end of the
 * training step or of the evaluation's micro-batch: the candidates for prefetching. */
typedef struct ddh_unit_use {
  uint32_t struct_size;
  int32_t program;
  int32_t unit;
  int32_t position;
  int32_t micro_batch;
  int32_t phase; /* DDH_PHASE_* */
  const int32_t* next;
  uint32_t n_next;
  uint32_t flags; /* DDH_OP_* */
  ddh_stream* stream;
} ddh_unit_use;
#define DDH_UNIT_USE_MIN_SIZE 48u

typedef struct ddh_step_begin_args {
  uint32_t struct_size;
  int32_t program;
  int64_t step;
  uint32_t flags; /* DDH_STEP_* */
  uint32_t reserved0;
} ddh_step_begin_args;
#define DDH_STEP_BEGIN_ARGS_MIN_SIZE 24u
#define DDH_STEP_LAST 1u /* the last step of total_steps; a run that is stopped earlier has no step with it */

/* How often all ranks agree. */
typedef struct ddh_rhythm {
  uint32_t struct_size;
  /* In steps that are a multiple of it all ranks exchange metrics and requests, and then all replicas of shared state are
   * equal. In the steps between, decide_in may be quiet. At least 1. */
  uint32_t world_every;
} ddh_rhythm;
#define DDH_RHYTHM_MIN_SIZE 8u

/* A piece of state as a range of a logical tensor, for save, load, reshard, export and compare. A rank lists the state
 * that it updates itself: in each step that is not skipped, ddh.optim update on this rank updates exactly the elements
 * of trained parameters in its entries. The host checks this.
 * `data` and its values do not change until this rank's next step, state_write, state_commit, trains_later or destroy:
 * meanwhile the host copies them on another thread while forward and backward run. */
#define DDH_STATE_PARAM 1 /* the fp32 value (master) */
#define DDH_STATE_SLOT 2  /* an optimizer slot */
#define DDH_STATE_OWN 3   /* state of the strategy itself, with a name; param may be -1 */
/* ddh_state_entry.scope */
#define DDH_SCOPE_SHARED 0 /* replicas are equal on all ranks, at least after steps of the rhythm */
/* Each replica has values of its own and is saved. A run with another replica_count begins anew: an OWN entry with zeros, a
 * PARAM or SLOT entry with the values of replica 0, the first rank's. The log says which. */
#define DDH_SCOPE_RANK 1
typedef struct ddh_state_entry {
  uint32_t struct_size;
  int32_t param;
  int32_t kind; /* DDH_STATE_* */
  int32_t slot; /* index of the optimizer's slot */
  int32_t dtype;
  int32_t memory; /* DDH_MEM_* */
  /* Elements inside the parameter; multiples of DDH_GRID, but for the parameter's end. Also where the slot has one value per
   * block (DDH_SLOT_PER_BLOCK): `data` then begins with the value of block offset / DDH_GRID. */
  uint64_t offset, numel;
  void* data;            /* see above; NULL with DDH_MEM_FILE: see state_read */
  int32_t replica_index; /* the entry with 0 is saved; all replicas of an entry hold equal values */
  int32_t replica_count;
  /* DDH_STATE_OWN: unique among the strategy's own names, lower case, digits, '_' and '.'; part of the name in a checkpoint.
   * With param -1, offset and numel count in one array of that name. Else NULL. */
  const char* name;
  int32_t scope; /* DDH_SCOPE_* */
  uint32_t reserved0;
} ddh_state_entry;
#define DDH_STATE_ENTRY_MIN_SIZE 72u

typedef struct ddh_strategy_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Gives model, ranks and settings; the strategy makes its layout and allocates nothing large.
   * DDH_FAILED_PRECONDITION: it can't support a setting, and the message says which. [main] [collective] [may-block] */
  ddh_rc (*attach)(ddh_inst* self, const ddh_attach_args* args, ddh_err* err) DDH_NX;
  /* Called after attach, before or after materialize. Allocates nothing. [main] */
  ddh_rc (*plan)(ddh_inst* self, ddh_plan* out, ddh_err* err) DDH_NX;
  /* Allocates memory, and initializes parameters through ddh.params. [main] [collective] [may-block] */
  ddh_rc (*materialize)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* A step of a training program begins; no gradient has been written. [main] [collective] */
  ddh_rc (*step_begin)(ddh_inst* self, const ddh_step_begin_args* args, ddh_err* err) DDH_NX;
  /* Makes a unit's full parameters available, and in DDH_PHASE_BACKWARD the destinations of its gradients. The view
   * (struct_size set by the caller) stays valid until the matching release. [step] [collective] [stream-ordered]
   * [may-block] */
  ddh_rc (*acquire)(ddh_inst* self, const ddh_unit_use* use, ddh_unit_view* out, ddh_err* err) DDH_NX;
  /* The view is not used any more. [step] [collective] [stream-ordered] */
  ddh_rc (*release)(ddh_inst* self, const ddh_unit_use* use, ddh_err* err) DDH_NX;
  /* The gradients of the parameters that this unit owns are complete for this micro-batch. Their memory belongs to the
   * strategy until the next acquire in backward. Called between the unit's backward and its release. [step]
   * [collective] [stream-ordered] [may-block] */
  ddh_rc (*grads_ready)(ddh_inst* self, const ddh_unit_use* use, ddh_err* err) DDH_NX;
  /* All micro-batches are done: finish the reduction, call ddh.optim decide once, update, publish.
   * [step] [collective] [may-block] */
  ddh_rc (*step)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Lists the pieces of state that this rank holds. The strategy has first waited for its own streams that access them.
   * *n is the capacity going in and the number coming out; entries == NULL asks for the number. An entry has `stride`
   * bytes. Ranks call it at different times, so it calls no collective; ddh.log, ddh.config, ddh.stream, and functions of other
   * services that only read may be called. [main] */
  ddh_rc (*state)(ddh_inst* self, ddh_state_entry* entries, uint64_t stride, uint32_t* n, ddh_err* err) DDH_NX;
  /* Entries were overwritten by a load: update all other copies. [main] [collective] */
  ddh_rc (*state_commit)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Copies elements [offset, offset + numel) of an entry without a pointer, given by its index in the last result of
   * state. May be NULL if every entry has a pointer. [main] */
  ddh_rc (*state_read)(ddh_inst* self, uint32_t entry, uint64_t offset, uint64_t numel, void* dst, ddh_err* err) DDH_NX;
  /* The reverse of state_read, for a load; state_commit follows. May be NULL as state_read. [main] */
  ddh_rc (*state_write)(ddh_inst* self, uint32_t entry, uint64_t offset, uint64_t numel, const void* src,
                        ddh_err* err) DDH_NX;
  /* Called between two steps, when a phase begins and programs of earlier phases have had their last step; also after a
   * load, if they had it before the checkpoint. slot_used of ddh.optim now says 0 for slots that no later step uses.
   * trains: one per parameter of the model, 1 = a later step trains it; valid during the call. The strategy may free
   * these slots, and the gradients of parameters with 0, after it has waited for its own streams. Freed slots are no
   * longer listed by `state`. It keeps the values (masters) of all parameters. NULL: it keeps everything.
   * [main] [collective] */
  ddh_rc (*trains_later)(ddh_inst* self, const uint8_t* trains, ddh_err* err) DDH_NX;
  /* Asked once, after attach. train.eval_every must be a multiple of world_every; checkpoints may fall between. NULL: 1.
   * [main] */
  ddh_rc (*rhythm)(ddh_inst* self, ddh_rhythm* out, ddh_err* err) DDH_NX;
  /* After the last step of total_steps, if world_every is above 1: finishes what is pending, so that all replicas are equal
   * and the values are final. Not called in a run that is stopped earlier: it goes on from its checkpoint. May be NULL.
   * [main] [collective] [may-block] */
  ddh_rc (*settle)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Called between a unit's backward and its grads_ready, if its view had parameters as DDH_GRAD_LATER, until out->param
   * is -1: the last block is complete, so its memory may be reduced and used again; give the next one. All ranks give the
   * same order, in which every block of these parameters comes once. NULL: the strategy never gives DDH_GRAD_LATER.
   * [step] [collective] [stream-ordered] [may-block] */
  ddh_rc (*next_block)(ddh_inst* self, const ddh_unit_use* use, ddh_grad_block* out, ddh_err* err) DDH_NX;
} ddh_strategy_api;
#define DDH_STRATEGY_API_MIN_SIZE 136u

#endif
