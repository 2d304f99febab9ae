// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/params.h: initial values of parameters.
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

void init_range(RankServices& s, int32_t param, uint64_t offset, uint64_t numel, float* dst) {
  const InitialValues& params = required(s.params, "ddh.params");
  const uint64_t bytes = numel * sizeof(float);
  if (s.memory.is_host_memory(dst)) {
    s.device->touch(dst, bytes, DDH_ACCESS_WRITE, "first values of parameters");
    return params.init_range(param, offset, numel, dst);
  }
  void* const host = s.staging->begin(dst, bytes);
  params.init_range(param, offset, numel, static_cast<float*>(host));
  s.staging->store(dst, host, bytes, nullptr);
  s.device->synchronize(nullptr);
}

}  // namespace

const ddh_params_api kParamsTable = {
    sizeof(ddh_params_api),
    0,
    [](void* h, int32_t param, uint64_t offset, uint64_t numel, float* dst, ddh_err* err) noexcept {
      return guard(err,
                   [&] { init_range(services_of(h), param, offset, numel, numel == 0 ? dst : not_null(dst, "dst")); });
    },
};

}  // namespace ddhost::detail
