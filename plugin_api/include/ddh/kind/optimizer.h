/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/optimizer.h: "ddh.optimizer/1", the update of flat ranges.
 *
 *   created --attach--> attached --(update | prepare* update)*--> destroyed
 *
 * Its config schema has a number option "lr", from which the host computes each step's learning rate
 * (ddh_step_block.lr). A run may have several instances, each with its own section of options (ddh_create.section) and
 * its own slots. Strategies call it through ddh.optim; it does not know how parameters are sharded. An element's result
 * does not depend on the range in which it is passed.
 *
 * An optimizer that scales by the norm of a whole parameter (LAMB) declares DDH_NEEDS_PARAM_NORM and works in two
 * passes. prepare writes the values whose squares it needs. The host squares and sums them over all ranks without
 * rounding. update reads the sums.
 * To be frozen at 1.0. */
#ifndef DDH_KIND_OPTIMIZER_H
#define DDH_KIND_OPTIMIZER_H

#include "ddh/abi.h"
#include "ddh/kind/model.h"
#include "ddh/service/optim.h"

#define DDH_OPTIMIZER_IFACE "ddh.optimizer/1"

/* ddh_desc.caps of optimizers. The optimizer clamps the gradient to ddh_step_block.clip_value. Without this bit the
 * host refuses train.clip_value. */
#define DDH_CAP_CLIP_VALUE (UINT64_C(1) << 16)
/* On a device that runs kernels (ddh/service/kernels.h), update and prepare queue kernels on ddh_update_args.stream. The
 * host then calls them on [main], with memory of the device in the shard and in ddh_prepare_args.values. Without this
 * bit the optimizer computes on the host. Of the host's services update and prepare then call only kernels->find,
 * kernels->launch, and the stream's record and wait. They allocate nothing and wait for nothing.
 * Draft: it may still change after 1.0. */
#define DDH_CAP_KERNELS (UINT64_C(1) << 17)

/* It follows another optimizer: a name in train.followers. Its update comes after that of the step's optimizer, without
 * gradients (n_grads is 0), and may read the master but not write it. Its slots are in the strategies' list. */
#define DDH_CAP_FOLLOWS (UINT64_C(1) << 18)

/* A number of the optimizer's state, equal on all ranks, which a checkpoint saves. */
typedef struct ddh_optimizer_number {
  uint32_t struct_size;
  uint32_t reserved0;
  const char* name; /* unique in the instance; both pointers stay valid until destroy */
  double* value;    /* finite. The host reads it between steps, and writes it when it loads a checkpoint */
} ddh_optimizer_number;
#define DDH_OPTIMIZER_NUMBER_MIN_SIZE 24u

typedef struct ddh_update_args {
  uint32_t struct_size;
  uint32_t reserved0;
  const ddh_optim_shard* shard;
  const ddh_step_block* block; /* gradient = inv_scale * clip_factor * (sum of the sources), clamped to clip_value */
  const int64_t* param_steps;  /* per parameter of the model: updates by this instance, including this one */
  ddh_stream* stream;
  /* Sums over whole parameters, sum_count for each parameter of the model. NULL in prepare, and if sum_count is 0. */
  const double* param_sums;
} ddh_update_args;
#define DDH_UPDATE_ARGS_MIN_SIZE 48u

typedef struct ddh_prepare_args {
  uint32_t struct_size;
  uint32_t sum_count;            /* arrays in `values` */
  const ddh_update_args* update; /* the arguments of update, but for one range on the 64-element grid */
  /* Arrays to fill: element i belongs to element i of the range. In host memory without DDH_CAP_KERNELS; with it in
   * memory of the device. */
  float* const* values;
} ddh_prepare_args;
#define DDH_PREPARE_ARGS_MIN_SIZE 24u

typedef struct ddh_optimizer_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Gives the parameters (names, shapes, attributes), before the layout is made. `model` outlives the instance.
   * [main] */
  ddh_rc (*attach)(ddh_inst* self, const ddh_model_desc* model, ddh_err* err) DDH_NX;
  uint32_t (*slot_count)(ddh_inst* self) DDH_NX;                                           /* [any] */
  ddh_rc (*slot)(ddh_inst* self, uint32_t index, ddh_slot_desc* out, ddh_err* err) DDH_NX; /* [any] */
  int32_t (*needs)(ddh_inst* self, int32_t param) DDH_NX;                                  /* DDH_NEEDS_*. [any] */
  /* In one pass: sums the gradients' sources, unscales, clips by norm and value, updates master weights and slots, and
   * writes the low-precision copy. Does nothing when block->skip.
   * Elements between ranges are not touched. Without DDH_CAP_KERNELS, on a device with queues, it runs on the stream's
   * thread, concurrently with the main thread: it calls no service of the host, and accesses only the arguments and the
   * instance. With DDH_CAP_KERNELS, on a device that runs kernels, it runs on the main thread and queues kernels; what
   * it calls is said there. The same holds for prepare. [step] [stream-ordered] */
  ddh_rc (*update)(ddh_inst* self, const ddh_update_args* args, ddh_err* err) DDH_NX;
  /* Number of sums of squares over a parameter that update needs; NULL = 0. [any] */
  uint32_t (*sum_count)(ddh_inst* self) DDH_NX;
  /* Computes the part of the update before the norms. Called once before update for every element of every parameter
   * with DDH_NEEDS_PARAM_NORM. May write slots but not the master. Not called if sum_count is 0 or the step is skipped.
   * [step] [stream-ordered] */
  ddh_rc (*prepare)(ddh_inst* self, const ddh_prepare_args* args, ddh_err* err) DDH_NX;
  /* 0: no call accesses slot `index` of this parameter, so it need not be allocated; else 1. NULL = all 1. [any] */
  int32_t (*slot_used)(ddh_inst* self, uint32_t index, int32_t param) DDH_NX;
  /* Elements of a slot with DDH_SLOT_SIZED for this parameter: 1 to 2^40. NULL: there is no such slot. [any] */
  uint64_t (*slot_numel)(ddh_inst* self, uint32_t index, int32_t param) DDH_NX;
  /* The values that evaluation and files of weights take instead of the master: writes them to `dst`, laid out as the shard's
   * master. Changes nothing of the shard, which has no gradients; all of it is in host memory. The host calls it between
   * steps, and restores the bits of the masters afterwards. NULL: the master. [main] */
  ddh_rc (*show)(ddh_inst* self, const ddh_optim_shard* shard, float* dst, ddh_err* err) DDH_NX;
  /* State variables; NULL = 0. A step that is not skipped begins with an update of no ranges, which sets them. [main] */
  uint32_t (*number_count)(ddh_inst* self) DDH_NX;
  /* State variable `index`. NULL if number_count is NULL. [main] */
  ddh_rc (*number)(ddh_inst* self, uint32_t index, ddh_optimizer_number* out, ddh_err* err) DDH_NX;
} ddh_optimizer_api;
#define DDH_OPTIMIZER_API_MIN_SIZE 104u

#endif
