// SPDX-License-Identifier: Apache-2.0
//
// ddh/service/alloc.h: tagged memory.
#include <spdlog/spdlog.h>

#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {

using ddh::guard;

const ddh_alloc_api kAllocTable = {
    sizeof(ddh_alloc_api),
    0,
    [](void* h, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const PartSpan span(services_of(h).clock, StepPart::memory, "allocate", args == nullptr ? nullptr : args->name);
        *not_null(out, "out") = services_of(h).memory.allocate(checked(args), seat_of(h).shown);
      });
    },
    [](void* h, void* p) noexcept {
      const PartSpan span(services_of(h).clock, StepPart::memory, "free");
      services_of(h).memory.release_for(seat_of(h).shown, p);
    },
    [](void* h, int32_t tag, int64_t bytes) noexcept {
      ddh::ErrorBuffer err;
      const ddh_rc rc = guard(err.get(), [&] { services_of(h).memory.account_for_plugin(tag, bytes); });
      if (rc != DDH_OK) services_of(h).log->warn("{}: {}", seat_of(h).name, err.text());
    },
};

}  // namespace ddhost::detail
