// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/options.hpp: a plugin's options as a table, and the JSON schema that the host reads, made from it when the plugin
// is compiled.
//
//   constexpr ddh::Option kOptions[] = {
//       {"lr", "number", "1e-3", ddh::kAtLeast0, "Learning rate. The schedule multiplies it."},
//       {"nesterov", "boolean", "false", "", "Look ahead along the momentum."},
//   };
//   DDH_CXX_PLUGIN(..., ddh::kSchemaOf<kOptions>, ...);
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// One option. Texts hold neither " nor \, but for default_value and rules, which are JSON.
struct Option {
  std::string_view name;
  std::string_view type;           // of JSON: number, integer, boolean, string, array
  std::string_view default_value;  // JSON: 1e-3, [0.9, 0.999], true, "none"
  std::string_view rules;          // further members of the option's schema, or empty
  std::string_view description;    // what it means, and what a change costs
};

inline constexpr std::string_view kAtLeast0 = R"("minimum": 0)";
inline constexpr std::string_view kAbove0 = R"("exclusiveMinimum": 0)";

namespace detail {
inline constexpr std::string_view kNothingMore;

template <class Write>
constexpr void write_text(std::string_view text, Write&& write) {
  for (const char c : text)
    if (c == '"' || c == '\\') throw std::logic_error("a name or description holds a quote or a backslash");
  write("\"");
  write(text);
  write("\"");
}

template <class Options, class Write>
constexpr void write_schema(const Options& options, std::string_view more, Write&& write) {
  write(R"({"type": "object", "properties": {)");
  bool is_first = true;
  for (const Option& option : options) {
    if (!is_first) write(", ");
    is_first = false;
    write_text(option.name, write);
    write(R"(: {"type": )");
    write_text(option.type, write);
    if (!option.rules.empty()) write(", ");
    write(option.rules);
    write(R"(, "default": )");
    write(option.default_value);
    write(R"(, "description": )");
    write_text(option.description, write);
    write("}");
  }
  write("}");
  if (!more.empty()) write(", ");
  write(more);
  write("}");
}

template <const auto& kOptions, const std::string_view& kMore>
constexpr auto schema_text() {
  constexpr size_t kSize = [] {
    size_t size = 0;
    write_schema(kOptions, kMore, [&](std::string_view part) { size += part.size(); });
    return size;
  }();
  std::array<char, kSize + 1> out{};
  size_t at = 0;
  write_schema(kOptions, kMore, [&](std::string_view part) {
    for (const char c : part) out[at++] = c;
  });
  return out;
}
template <const auto& kOptions, const std::string_view& kMore>
inline constexpr auto kSchemaText = schema_text<kOptions, kMore>();
}  // namespace detail

// The schema of a table of options. `kMore`: further members of the schema, such as x-aliases, as JSON.
template <const auto& kOptions, const std::string_view& kMore = detail::kNothingMore>
inline constexpr const char* kSchemaOf = detail::kSchemaText<kOptions, kMore>.data();

}  // namespace DDH_HIDDEN
}  // namespace ddh
