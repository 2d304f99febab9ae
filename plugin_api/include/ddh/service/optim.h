/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/optim.h: "ddh.optim/1", the run's optimizers as a strategy sees them, and the scalars of a step.
 *
 * A run has one or more optimizer instances. A program names the instance that updates its trained parameters. A
 * strategy sees a single list of slots of all instances (slot, slot_used), and stores every slot that a parameter uses.
 * The host passes the instance of the step's program its own slots, and counts the updates of each parameter for each
 * instance. The host also applies a parameter's learning-rate factor (ddh_param_desc.lr_scale): it calls the optimizer
 * once for each factor, so strategies and optimizers need no code for it.
 *
 * A step has two phases. Phase 1: the strategy reduces gradients and calls decide, which computes norm, clip factor and
 * skip over all ranks. The squares are summed by ddh/service/window.h during the reduction, or by add_gradient. Phase
 * 2: the strategy calls update on its shards. The host determines learning rate, step counts and skip.
 *
 * Optimizers that need the norm of a whole parameter (DDH_NEEDS_PARAM_NORM) get it between the phases:
 *
 *   decide --> prepare on each shard --> sum_norms, once --> update on each shard
 *
 * A strategy may always make these calls. For other optimizers they do nothing and send nothing. The host refuses an
 * update if the optimizer needs norms and they were not computed.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_OPTIM_H
#define DDH_SERVICE_OPTIM_H

#include "ddh/abi.h"
#include "ddh/service/comm.h"
#include "ddh/service/stream.h"

#define DDH_OPTIM_IFACE "ddh.optim/1"

/* A piece of one parameter inside a flat buffer of a strategy. It never extends beyond the parameter's end. Frozen for
 * ever because it is passed in arrays, so it has no struct_size. */
typedef struct ddh_range {
  int32_t param; /* index in ddh_model_desc.params */
  uint32_t reserved0;
  uint64_t param_offset; /* first element, counted from the parameter's start; a multiple of 64 */
  uint64_t flat_offset;  /* first element, counted from the start of the buffers */
  uint64_t numel;
} ddh_range;

/* The scalars of a step. The host owns it; decide fills it. */
typedef struct ddh_step_block {
  uint32_t struct_size;
  int32_t skip; /* 1: a gradient is not finite and train.skip_nonfinite is set; update does nothing */
  int64_t step; /* counts from 1 */
  double lr;
  double loss_scale;    /* 1 without loss scaling */
  double seed_scale;    /* the seed of backward: a power of two */
  double inv_scale;     /* a gradient times this is the gradient of the mean loss over the targets of all ranks */
  double clip_factor;   /* at most 1 */
  double grad_norm;     /* norm of the mean loss's gradient, before clipping; NaN or infinite if a gradient is */
  double clip_value;    /* each element of the mean gradient is clamped to [-clip_value, clip_value]; 0: not clamped */
  double rank_targets;  /* targets of this rank in this step, all micro-batches */
  double group_targets; /* of the group that decided: the world, or that of decide_in */
} ddh_step_block;
#define DDH_STEP_BLOCK_MIN_SIZE 88u

/* No message leaves the group. Metrics and requests of such steps reach other ranks with the next decision that is not quiet.
 * In any case norm, clip factor, skip and inv_scale are the group's, and updates are counted in skipped steps too. */
#define DDH_DECIDE_QUIET 1u
typedef struct ddh_decide_args {
  uint32_t struct_size;
  uint32_t flags;   /* DDH_DECIDE_* */
  ddh_group* group; /* of ddh.comm; holds this rank; NULL: this rank alone */
} ddh_decide_args;
#define DDH_DECIDE_ARGS_MIN_SIZE 16u

/* One state array of an optimizer. */
#define DDH_SLOT_PER_ELEMENT 1 /* as many elements as the parameter */
/* One element for each block of DDH_GRID elements of the parameter, the last block rounded up. That of the block at
 * flat_offset f is element f / DDH_GRID of the slot. */
#define DDH_SLOT_PER_BLOCK 3
/* slot_numel elements for a whole parameter, which must need DDH_NEEDS_WHOLE_PARAM. The slots of a call's ranges follow one
 * another in the order of the ranges, each rounded up to DDH_GRID elements. */
#define DDH_SLOT_SIZED 4
typedef struct ddh_slot_desc {
  uint32_t struct_size;
  int32_t dtype;
  const char*
      name;       /* "exp_avg"; further instances add their section: "kg.exp_avg". Part of the names in a checkpoint */
  int32_t extent; /* DDH_SLOT_* */
  uint32_t reserved0;
} ddh_slot_desc;
#define DDH_SLOT_DESC_MIN_SIZE 24u

/* How a parameter may be sharded for an optimizer; see docs/numerics.md. */
#define DDH_NEEDS_NOTHING 0     /* element-wise: any sharding */
#define DDH_NEEDS_PARAM_NORM 1  /* norms of the whole parameter, in two passes */
#define DDH_NEEDS_WHOLE_PARAM 2 /* the whole parameter in one range */

/* Flat buffers of one shard: element i of every buffer belongs to flat_offset i of the ranges. */
typedef struct ddh_optim_shard {
  uint32_t struct_size;
  uint32_t n_ranges;
  const ddh_range* ranges;
  float* master;      /* fp32 parameters, read and written */
  void* lowp;         /* low-precision copy to write, or NULL */
  int32_t lowp_dtype; /* DDH_BF16, DDH_F16; 0 with lowp == NULL */
  uint32_t n_grads;   /* gradient sources; their sum in order is the gradient */
  const float* const* grads;
  void* const* slots; /* one per slot of the optimizer, element 0 at flat_offset 0; NULL: see slot_used */
  uint32_t n_slots;
  uint32_t reserved0;
} ddh_optim_shard;
#define DDH_OPTIM_SHARD_MIN_SIZE 64u

typedef struct ddh_optim_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The number of state arrays of all instances. The strategy allocates them, zero-filled, for its shards. [main] */
  uint32_t (*slot_count)(void* h) DDH_NX;
  /* Describes slot `index`. DDH_OUT_OF_RANGE: no such slot. Its name lives as long as the run. [main] */
  ddh_rc (*slot)(void* h, uint32_t index, ddh_slot_desc* out, ddh_err* err) DDH_NX;
  /* DDH_NEEDS_* of a parameter, the strongest of all instances. Called before the layout is made. [main] */
  int32_t (*needs)(void* h, int32_t param) DDH_NX;
  /* Adds reduced gradients to the norm of this step. Exactly one rank adds each 64-element block of the model. Also
   * records the first non-finite value and its parameter. The ranges' flat_offset indexes `grad`. On a device the
   * values are those that the default stream has written so far. [step] [may-block] */
  ddh_rc (*add_gradient)(void* h, const float* grad, const ddh_range* ranges, uint32_t n_ranges, ddh_err* err) DDH_NX;
  /* Ends phase 1: sums the squares over ranks exactly, then computes norm, clip factor and skip, equal on every rank.
   * The block stays valid until the next step begins. A strategy calls it exactly once per step, from `step`. The host
   * refuses a step without it, and returns DDH_FAILED_PRECONDITION for a second call and for a call before the last
   * backward. [step] [collective] [may-block] */
  ddh_rc (*decide)(void* h, const ddh_step_block** out, ddh_err* err) DDH_NX;
  /* Phase 2 on one shard: unscale, clip, update, cast. Does nothing if the step is skipped. DDH_FAILED_PRECONDITION:
   * called before decide, or the optimizer needs whole parameters or norms and did not get them. [step]
   * [stream-ordered] */
  ddh_rc (*update)(void* h, const ddh_optim_shard* shard, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* The part of the update before the norms, and this shard's part of the norms. Called on each shard with the
   * arguments of update. Writes slots but never the master. If several ranks hold the same shard, replica_index and
   * replica_count say which replica this is, so that each element counts once; else 0 and 1. Does nothing if the step
   * is skipped. DDH_FAILED_PRECONDITION: called before decide. [step] [stream-ordered] */
  ddh_rc (*prepare)(void* h, const ddh_optim_shard* shard, int32_t replica_index, int32_t replica_count,
                    ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Called once, after the last prepare. Computes exact sums over all ranks for all parameters, equal on every rank for
   * any sharding. DDH_FAILED_PRECONDITION: the shards don't make up a whole parameter; the message names it. [step]
   * [collective] [may-block] */
  ddh_rc (*sum_norms)(void* h, ddh_err* err) DDH_NX;
  /* 0: no later step of an instance uses slot `index` of this parameter; else 1. A shard that holds only such
   * parameters may pass NULL for the slot. After materialize it changes only when programs have had their last step;
   * trains_later (ddh/kind/strategy.h) tells the strategy, if it has that function. [main] */
  int32_t (*slot_used)(void* h, uint32_t index, int32_t param) DDH_NX;
  /* Elements of slot `index` that a strategy stores for the whole parameter, by the slot's extent; 0 where slot_used is 0.
   * At most 2^40. [main] */
  uint64_t (*slot_numel)(void* h, uint32_t index, int32_t param) DDH_NX;
  /* Like decide, in a group, in which add_gradient counts each element once. A strategy calls decide or decide_in once per
   * step, and decide or decide_in without DDH_DECIDE_QUIET in every step that is a multiple of its rhythm, ddh/kind/strategy.h.
   * DDH_FAILED_PRECONDITION: quiet in such a step, or loss scaling is on. [step] [collective] [may-block] */
  ddh_rc (*decide_in)(void* h, const ddh_decide_args* args, const ddh_step_block** out, ddh_err* err) DDH_NX;
} ddh_optim_api;
#define DDH_OPTIM_API_MIN_SIZE 96u

#endif
