// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/collective.hpp: the arguments of a collective, so that each place sets only what it needs.
#pragma once

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The rest is 0 or NULL. `label` lives as long as the struct; it may be NULL.
inline ddh_coll collective(int32_t dtype, const char* label) {
  ddh_coll c{};
  c.struct_size = sizeof c;
  c.dtype = dtype;
  c.label = label;
  return c;
}

// recv = the sum of `send` (numel) over the ranks of a group; `initial`: see ddh_coll. [collective]
inline void sum_to_all(const Host& host, ddh_group* group, const float* send, float* recv, const float* initial,
                       uint64_t numel, const char* label) {
  ddh_coll c = collective(DDH_F32, label);
  c.op = DDH_SUM;
  c.send = send;
  c.recv = recv;
  c.initial = initial;
  c.count = numel;
  c.group = group;
  call(host.comm->all_reduce, host.h, &c);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
