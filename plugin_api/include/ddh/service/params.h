/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/params.h: "ddh.params/1", the first values of parameters, range by range, so that the full model
 * never has to fit on a rank. Values depend on (run.seed, parameter name, element) alone, or come from the
 * file that train.init_from names; neither rank nor world size changes them.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_PARAMS_H
#define DDH_SERVICE_PARAMS_H

#include "ddh/abi.h"

#define DDH_PARAMS_IFACE "ddh.params/1"

typedef struct ddh_params_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Writes `numel` fp32 values of parameter `param`, from element `offset` on. `dst` is the host's memory or lies in a
   * block or window of the device; the values are there when the call returns. [main] [may-block] */
  ddh_rc (*init_range)(void* h, int32_t param, uint64_t offset, uint64_t numel, float* dst, ddh_err* err) DDH_NX;
} ddh_params_api;
#define DDH_PARAMS_API_MIN_SIZE 16u

#endif
