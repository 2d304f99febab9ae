/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/optimizer.h: "ddh.optimizer/1", the update of flat ranges.
 *
 *   created --attach--> attached --(update | prepare* update)*--> destroyed
 *
 * Its config schema has a number option "lr": the host makes a step's learning rate from it (ddh_step_block.lr). A run
 * may have several instances, each with a section of options and slots of its own (ddh_create.section).
 * Strategies call it through ddh.optim; it never learns how parameters are cut. The same elements get the same bits
 * whatever ranges they come in.
 *
 * An optimizer that scales by the norm of a whole parameter (LAMB) says DDH_NEEDS_PARAM_NORM and works in two passes:
 * prepare writes the values whose squares it wants summed; the host squares and sums them over all ranks without
 * rounding; update reads the sums.
 * To be frozen at 1.0. */
#ifndef DDH_KIND_OPTIMIZER_H
#define DDH_KIND_OPTIMIZER_H

#include "ddh/abi.h"
#include "ddh/kind/model.h"
#include "ddh/service/optim.h"

#define DDH_OPTIMIZER_IFACE "ddh.optimizer/1"

/* ddh_desc.caps of optimizers. Holds elements of the gradient to ddh_step_block.clip_value; without it the host refuses
 * train.clip_value. */
#define DDH_CAP_CLIP_VALUE (UINT64_C(1) << 16)

typedef struct ddh_update_args {
  uint32_t struct_size;
  uint32_t reserved0;
  const ddh_optim_shard* shard;
  const ddh_step_block* block; /* the gradient is inv_scale * clip_factor * (sum of the sources), held to clip_value */
  const int64_t* param_steps; /* per parameter of the model: updates by this instance, this one included (1 at first) */
  ddh_stream* stream;
  /* Sums over whole parameters, sum_count for each parameter of the model; NULL in prepare and without sums. */
  const double* param_sums;
} ddh_update_args;
#define DDH_UPDATE_ARGS_MIN_SIZE 48u

typedef struct ddh_prepare_args {
  uint32_t struct_size;
  uint32_t sum_count;            /* arrays in `values` */
  const ddh_update_args* update; /* as update will get it, but cut into pieces: one range on the 64-element grid */
  float* const* values;          /* the host's, to fill: element i of each belongs to element i of the range */
} ddh_prepare_args;
#define DDH_PREPARE_ARGS_MIN_SIZE 24u

typedef struct ddh_optimizer_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Learns the parameters (names, shapes, attributes) before the layout is made. `model` outlives the instance. [main] */
  ddh_rc (*attach)(ddh_inst* self, const ddh_model_desc* model, ddh_err* err) DDH_NX;
  uint32_t (*slot_count)(ddh_inst* self) DDH_NX;                                           /* [any] */
  ddh_rc (*slot)(ddh_inst* self, uint32_t index, ddh_slot_desc* out, ddh_err* err) DDH_NX; /* [any] */
  int32_t (*needs)(ddh_inst* self, int32_t param) DDH_NX;                                  /* DDH_NEEDS_*. [any] */
  /* One pass: sum of sources, unscale, clip, bound, update, master, low-precision copy. Does nothing when block->skip.
   * Elements between ranges are not touched. On a device with queues it runs on the stream's thread, beside the main one:
   * it calls no service of the host, and touches only what args name and the instance owns. So does prepare. [step]
   * [stream-ordered] */
  ddh_rc (*update)(ddh_inst* self, const ddh_update_args* args, ddh_err* err) DDH_NX;
  /* How many sums of squares over a parameter update needs; NULL = 0. [any] */
  uint32_t (*sum_count)(ddh_inst* self) DDH_NX;
  /* On every element of every parameter with DDH_NEEDS_PARAM_NORM, once before its update: the update up to the norms.
   * May write slots, not the master. Not called when sum_count is 0 or the step is skipped. [step] [stream-ordered] */
  ddh_rc (*prepare)(ddh_inst* self, const ddh_prepare_args* args, ddh_err* err) DDH_NX;
  /* 0: no call reads or writes slot `index` of this parameter, so that it need not exist; else 1. NULL = all 1. [any] */
  int32_t (*slot_used)(ddh_inst* self, uint32_t index, int32_t param) DDH_NX;
} ddh_optimizer_api;
#define DDH_OPTIMIZER_API_MIN_SIZE 72u

#endif
