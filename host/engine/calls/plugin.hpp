// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/plugin.hpp: a plugin that the engine can use: loaded, negotiated and checked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "ddh/abi.h"

namespace ddhost {

// One plugin of a library. Everything it points to is static, so copies are cheap and never dangle.
struct Plugin {
  const ddh_module* module = nullptr;
  const ddh_desc* desc = nullptr;
  std::filesystem::path file;

  [[nodiscard]] std::string id() const { return desc->id; }
  [[nodiscard]] bool has_cap(uint64_t cap) const { return (desc->caps & cap) != 0; }
};

// "strategy" for DDH_KIND_STRATEGY; "kind 9" for an unknown one.
std::string kind_name(int32_t kind);
// DDH_KIND_STRATEGY for "strategy", 0 for an unknown word.
int32_t kind_number(std::string_view name);

}  // namespace ddhost
