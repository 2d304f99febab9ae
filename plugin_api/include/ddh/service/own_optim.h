/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/own_optim.h: "ddh.own_optim/0", optimizers that a strategy makes for tensors of its own, beside the run's.
 * DiLoCo's outer Nesterov step is the shipped sgd on averaged differences. The strategy gives the scalars and the memory of
 * the slots, and lists them as DDH_STATE_OWN entries.
 * Draft: it may still change after 1.0. */
#ifndef DDH_SERVICE_OWN_OPTIM_H
#define DDH_SERVICE_OWN_OPTIM_H

#include "ddh/abi.h"
#include "ddh/service/optim.h"

#define DDH_OWN_OPTIM_IFACE "ddh.own_optim/0"

typedef struct ddh_own_optim ddh_own_optim; /* the host's; destroyed with the strategy */

typedef struct ddh_own_optim_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Makes an instance of optimizer `id` for the model's parameters. options: JSON of an object, as in the section "optimizer";
   * "" or NULL: the defaults. Its section in messages is `section`, such as "strategy.outer". DDH_NOT_FOUND: no such
   * optimizer. DDH_FAILED_PRECONDITION: it needs norms (DDH_NEEDS_PARAM_NORM). Called in attach. [main] */
  ddh_rc (*create)(void* h, const char* id, const char* section, const char* options, ddh_own_optim** out,
                   ddh_err* err) DDH_NX;
  uint32_t (*slot_count)(void* h, const ddh_own_optim* optim) DDH_NX; /* [any] */
  ddh_rc (*slot)(void* h, const ddh_own_optim* optim, uint32_t index, ddh_slot_desc* out,
                 ddh_err* err) DDH_NX;                                         /* [any] */
  int32_t (*needs)(void* h, const ddh_own_optim* optim, int32_t param) DDH_NX; /* [any] */
  /* One update in host memory, when the call returns it is done. block: step, lr, inv_scale and clip_factor are the
   * strategy's. [step] */
  ddh_rc (*update)(void* h, ddh_own_optim* optim, const ddh_optim_shard* shard, const ddh_step_block* block,
                   ddh_err* err) DDH_NX;
} ddh_own_optim_api;
#define DDH_OWN_OPTIM_API_MIN_SIZE 48u

#endif
