// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/plugin.hpp"

#include <array>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::array<const char*, 8> kKinds = {"strategy", "model",    "optimizer", "comm",
                                               "device",   "schedule", "monitor",   "format"};

}  // namespace

std::string kind_name(int32_t kind) {
  if (kind < 1 || kind > static_cast<int32_t>(kKinds.size())) return ddh::str("kind ", kind);
  return kKinds[static_cast<size_t>(kind - 1)];
}

int32_t kind_number(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (name == kKinds[i]) return static_cast<int32_t>(i + 1);
  return 0;
}

}  // namespace ddhost
