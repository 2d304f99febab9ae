// SPDX-License-Identifier: Apache-2.0
//
// ops/sizes.hpp: the known sizes of a model (model.size) and the options that override single values of one.
#pragma once

#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ops {

// The row of `sizes` that model.size names. A row has a member `name`.
template <class Sizes>
const auto& size_of(const ddh::Host& host, const Sizes& sizes) {
  const std::string name = host.text("model.size");
  for (const auto& size : sizes) {
    if (size.name == name) return size;
  }
  ddh::fail(DDH_NOT_FOUND, "model.size '", name, "' is unknown");  // the schema lists the names
}

// The option `key`, or the value of the size if the option is 0. A size without it (custom) needs the option.
inline int64_t given_or(const ddh::Host& host, const char* key, int64_t from_size) {
  const int64_t given = host.i64(key);
  if (given == 0 && from_size == 0) ddh::fail(DDH_INVALID_ARGUMENT, "model.size=custom needs ", key, "; give it");
  return given > 0 ? given : from_size;
}

// Refuses a width that the heads cannot divide. `width_key`: the option that sets it.
inline void require_whole_heads(int64_t width, int64_t n_head, const char* width_key) {
  if (width % n_head != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, width_key, "=", width, " is not a multiple of model.n_head=", n_head,
              "; change one of them");
}

}  // namespace ops
