/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/params.h: "ddh.params/1", the initial values of parameters, for any range, so that no rank needs the
 * whole model. Values depend only on (run.seed, parameter name, element), or are read from the file train.init_from.
 * They do not depend on rank or world size.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_PARAMS_H
#define DDH_SERVICE_PARAMS_H

#include "ddh/abi.h"

#define DDH_PARAMS_IFACE "ddh.params/1"

typedef struct ddh_params_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Writes `numel` fp32 values of parameter `param`, from element `offset` on. `dst` is host memory or memory of a
   * block or window of the device. The values are written when the call returns. [main] [may-block] */
  ddh_rc (*init_range)(void* h, int32_t param, uint64_t offset, uint64_t numel, float* dst, ddh_err* err) DDH_NX;
} ddh_params_api;
#define DDH_PARAMS_API_MIN_SIZE 16u

#endif
