/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/optim.h: "ddh.optim/1", the run's optimizers as a strategy sees them, and the scalars of a step.
 *
 * A run has one or more optimizer instances; a program names the one that updates what it trains. A strategy sees a
 * single list of slots over all instances (slot, slot_used): it keeps every slot that a parameter uses. The host hands
 * the instance of the step's program its own slots, and counts the updates of each parameter for each instance.
 * A parameter's own factor on the learning rate (ddh_param_desc.lr_scale) is the host's: it calls the optimizer once for
 * each factor, so neither strategies nor optimizers know of it.
 *
 * A step has two phases. Phase 1: the strategy reduces gradients (ddh/service/window.h does the squares on the way,
 * or add_gradient does) and calls decide, which agrees over all ranks on norm, clip factor and skip. Phase 2: the
 * strategy calls update on what it owns. Learning rate, step counts and skip are the host's.
 *
 * Optimizers that need the norm of a whole parameter (DDH_NEEDS_PARAM_NORM) get it between the phases:
 *
 *   decide --> prepare on each shard --> sum_norms, once --> update on each shard
 *
 * A strategy may always make these calls: for other optimizers they do nothing and send nothing. The host refuses
 * an update whose needs were not met.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_OPTIM_H
#define DDH_SERVICE_OPTIM_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_OPTIM_IFACE "ddh.optim/1"

/* A piece of one parameter inside a flat buffer of a strategy. numel never crosses the parameter's end.
 * Frozen for ever (it comes in arrays), so it has no struct_size. */
typedef struct ddh_range {
  int32_t param; /* index in ddh_model_desc.params */
  uint32_t reserved0;
  uint64_t param_offset; /* first element, counted from the parameter's start; a multiple of 64 */
  uint64_t flat_offset;  /* first element, counted from the start of the buffers it comes with */
  uint64_t numel;
} ddh_range;

/* The scalars of a step. The host owns it; decide fills it. */
typedef struct ddh_step_block {
  uint32_t struct_size;
  int32_t skip; /* 1: a gradient is not finite and train.skip_nonfinite holds; update does nothing */
  int64_t step; /* counts from 1 */
  double lr;
  double loss_scale;  /* 1 without loss scaling */
  double seed_scale;  /* what backward was seeded with: a power of two */
  double inv_scale;   /* a gradient times this is the gradient of the mean loss over the targets of all ranks */
  double clip_factor; /* at most 1 */
  double grad_norm;   /* of the mean loss's gradient, before clipping; NaN or infinite where a gradient is */
  double clip_value;  /* each element of the mean gradient is held in [-clip_value, clip_value]; 0: no bound */
} ddh_step_block;
#define DDH_STEP_BLOCK_MIN_SIZE 72u

/* One state array of an optimizer. */
#define DDH_SLOT_PER_ELEMENT 1 /* as many elements as the parameter */
typedef struct ddh_slot_desc {
  uint32_t struct_size;
  int32_t dtype;
  const char*
      name; /* "exp_avg"; of further instances "kg.exp_avg", by their section: part of the names in a checkpoint */
  int32_t extent; /* DDH_SLOT_* */
  uint32_t reserved0;
} ddh_slot_desc;
#define DDH_SLOT_DESC_MIN_SIZE 24u

/* How a parameter may be cut for an optimizer; docs/numerics.md. */
#define DDH_NEEDS_NOTHING 0     /* element by element: any cut is right */
#define DDH_NEEDS_PARAM_NORM 1  /* scalars over the whole parameter, in phases */
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
  void* const* slots; /* one per slot of the optimizer, PER_ELEMENT ones at flat_offset 0; NULL: see slot_used */
  uint32_t n_slots;
  uint32_t reserved0;
} ddh_optim_shard;
#define DDH_OPTIM_SHARD_MIN_SIZE 64u

typedef struct ddh_optim_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* The state arrays, of all instances, that the strategy allocates (zero-filled) for what it owns. [main] */
  uint32_t (*slot_count)(void* h) DDH_NX;
  /* Describes slot `index`. DDH_OUT_OF_RANGE: there are fewer. Its name lives as long as the run. [main] */
  ddh_rc (*slot)(void* h, uint32_t index, ddh_slot_desc* out, ddh_err* err) DDH_NX;
  /* DDH_NEEDS_* of a parameter, the strongest of all instances; asked before the layout is made. [main] */
  int32_t (*needs)(void* h, int32_t param) DDH_NX;
  /* Adds reduced gradients to the norm of this step: each 64-element block of the model by exactly one rank. Also
   * notes the first non-finite value and its parameter. `grad` is indexed by the ranges' flat_offset; on the device,
   * what the default stream has written there so far. [step] [may-block] */
  ddh_rc (*add_gradient)(void* h, const float* grad, const ddh_range* ranges, uint32_t n_ranges, ddh_err* err) DDH_NX;
  /* Ends phase 1: exact sum of the squares over ranks, then norm, clip factor and skip, equal on every rank. The block
   * stays valid until the next step begins. Every step of a strategy calls it exactly once, from `step`: the host refuses
   * a step without it, and answers DDH_FAILED_PRECONDITION to a second call and to one before the last backward.
   * [step] [collective] [may-block] */
  ddh_rc (*decide)(void* h, const ddh_step_block** out, ddh_err* err) DDH_NX;
  /* Phase 2 on one shard: unscale, clip, update, cast. Obeys skip. DDH_FAILED_PRECONDITION: before decide, or a
   * parameter comes in pieces or without its norms although the optimizer needs them. [step] [stream-ordered] */
  ddh_rc (*update)(void* h, const ddh_optim_shard* shard, ddh_stream* stream, ddh_err* err) DDH_NX;
  /* On each shard that update will get, as update will get it: the part of the update before the norms, which writes
   * slots and never the master, and this shard's share of them. Where other ranks hold the same shard, replica_index of
   * replica_count tells which of them this is, so that each element counts once; else 0 of 1. Obeys skip.
   * DDH_FAILED_PRECONDITION: before decide. [step] [stream-ordered] */
  ddh_rc (*prepare)(void* h, const ddh_optim_shard* shard, int32_t replica_index, int32_t replica_count,
                    ddh_stream* stream, ddh_err* err) DDH_NX;
  /* Once, after the last prepare: exact sums over all ranks for all parameters, equal on every rank whatever the cut.
   * DDH_FAILED_PRECONDITION: the ranks' shares don't make up a whole parameter; names it.
   * [step] [collective] [may-block] */
  ddh_rc (*sum_norms)(void* h, ddh_err* err) DDH_NX;
  /* 0: the parameter does without slot `index` (no instance that trains it has a use for it), which may be NULL in a
   * shard of such parameters alone; else 1. [main] */
  int32_t (*slot_used)(void* h, uint32_t index, int32_t param) DDH_NX;
} ddh_optim_api;
#define DDH_OPTIM_API_MIN_SIZE 80u

#endif
