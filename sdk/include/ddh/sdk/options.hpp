// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/options.hpp: a plugin's options as a table. The JSON schema for the host is generated from it at compile
// time.
//
//   constexpr ddh::Option kOptions[] = {
//       {"lr", "number", "1e-3", ddh::kAtLeast0, "Learning rate. The schedule computes the rate of each step from it."},
//       {"nesterov", "boolean", "false", "", "Use Nesterov momentum."},
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

// One option. Texts contain neither " nor \, except default_value and rules, which are JSON.
struct Option {
  std::string_view name;           // offload_param.device is `device` of the object `offload_param`
  std::string_view type;           // of JSON: number, integer, boolean, string, array; integer|null: one of several
  std::string_view default_value;  // JSON: 1e-3, [0.9, 0.999], true, "none"; empty: the user must give a value
  std::string_view rules;          // further members of the option's schema, or empty
  std::string_view description;    // its meaning, and the cost of a change
};

inline constexpr std::string_view kAtLeast0 = R"("minimum": 0)";
inline constexpr std::string_view kAbove0 = R"("exclusiveMinimum": 0)";

// The options of several tables, in order.
template <size_t... N>
constexpr auto joined(const Option (&... tables)[N]) {
  std::array<Option, (N + ...)> out{};
  size_t at = 0;
  const auto append = [&](const auto& table) {
    for (const Option& option : table) out[at++] = option;
  };
  (append(tables), ...);
  return out;
}

// The same options, where `name` has another default. An unknown name does not compile.
template <size_t N>
consteval auto with_default(std::array<Option, N> options, std::string_view name, std::string_view default_value) {
  for (Option& option : options) {
    if (option.name != name) continue;
    option.default_value = default_value;
    return options;
  }
  throw std::logic_error("no option has this name");
}

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

// "integer", or ["integer", "null"] of integer|null.
template <class Write>
constexpr void write_type(std::string_view type, Write&& write) {
  const bool is_list = type.find('|') != std::string_view::npos;
  if (is_list) write("[");
  for (;;) {
    const size_t bar = type.find('|');
    write_text(type.substr(0, bar), write);
    if (bar == std::string_view::npos) break;
    write(", ");
    type.remove_prefix(bar + 1);
  }
  if (is_list) write("]");
}

// The options of one object must be adjacent.
template <class Options, class Write>
constexpr void write_schema(const Options& options, std::string_view more, Write&& write) {
  write(R"({"type": "object", "properties": {)");
  std::string_view object;  // the object that is open
  bool is_first = true;
  for (const Option& option : options) {
    const size_t dot = option.name.find('.');
    const std::string_view parent = dot == std::string_view::npos ? std::string_view() : option.name.substr(0, dot);
    if (!object.empty() && object != parent) write("}}");
    if (!is_first) write(", ");
    is_first = false;
    if (!parent.empty() && object != parent) {
      write_text(parent, write);
      write(R"(: {"type": "object", "properties": {)");
    }
    object = parent;
    write_text(dot == std::string_view::npos ? option.name : option.name.substr(dot + 1), write);
    write(R"(: {"type": )");
    write_type(option.type, write);
    if (!option.rules.empty()) write(", ");
    write(option.rules);
    if (!option.default_value.empty()) write(R"(, "default": )");
    write(option.default_value);
    write(R"(, "description": )");
    write_text(option.description, write);
    write("}");
  }
  write(object.empty() ? "}" : "}}}");
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
