// SPDX-License-Identifier: Apache-2.0
//
// engine/services/tables/kind_services.hpp: the one table of which kind of plugin gets which service. docs/compatibility.md
// shows it to authors.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddhost {

struct ServiceEntry {
  std::string_view id;
  const void* table;
  uint32_t kinds;  // bit k: kind k gets it

  [[nodiscard]] bool is_for(int32_t kind) const { return kind >= 0 && kind < 32 && (kinds >> kind & 1U) != 0; }
};

// nullptr: there is no such service.
const ServiceEntry* find_service(std::string_view id);

}  // namespace ddhost
