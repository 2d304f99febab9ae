// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/plugin.hpp"

#include <array>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct Kind {
  int32_t number;
  const char* word;
};
#define DDH_KIND_ROW_(WORD, KIND, IFACE) Kind{KIND, #WORD},
constexpr std::array kKinds = {DDH_KINDS(DDH_KIND_ROW_)};
#undef DDH_KIND_ROW_

}  // namespace

std::string kind_name(int32_t kind) {
  for (const Kind& known : kKinds)
    if (kind == known.number) return known.word;
  return ddh::str("kind ", kind);
}

int32_t kind_number(std::string_view word) {
  for (const Kind& known : kKinds)
    if (word == known.word) return known.number;
  return 0;
}

}  // namespace ddhost
