// SPDX-License-Identifier: Apache-2.0
//
// config/schema.hpp: the options of one config section, read from a JSON Schema (the subset of docs/configuration.md),
// and the check of one value against them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"

namespace ddhost {

// One option of a section. Options of nested objects have dotted names: "betas.first".
struct Option {
  std::string name;                // without the section
  std::vector<std::string> types;  // "integer", "number", "string", "boolean", "array", "object", "null"; never empty
  Json legal;                      // array of the legal values, or null: any
  Json preset;                     // the default; null: none, required unless it takes null
  std::optional<double> minimum, maximum, above;  // above = exclusiveMinimum
  std::optional<uint64_t> min_items, max_items;
  std::string item_type;  // of an array's items; empty: any
  std::string unit;       // x-unit: "bytes"
  std::string description;
  bool is_path = false;  // x-path: made absolute
  std::string sets;      // x-sets: the key of another section that this option sets; it has no value of its own
  Json spellings;        // x-spellings: other names for values, also for "null"; or null
  std::string idle;      // x-idle: why the option has no effect; empty: it has one

  // Another program's option (config/compat). It is checked, has no effect, and is not in the effective configuration.
  bool foreign = false;
  std::string repeats;  // of a foreign option: the option of the section that it must equal if given

  [[nodiscard]] bool takes(std::string_view type) const;
  [[nodiscard]] std::string type_text() const;   // "integer or null"
  [[nodiscard]] std::string legal_text() const;  // "0 to 10", "one of fp32, bf16", "" = any
};

// Another name of an option, perhaps in another unit: DeepSpeed counts elements where ddhost counts bytes.
struct Alias {
  std::string name;  // "reduce_bucket_size"
  std::string key;   // "reduce_bucket_bytes"
  double scale = 1;  // value of key = scale * value of name
  Json defaults;     // of options of the section, where this name is given; null: none
};

struct Schema {
  std::vector<Option> options;  // in the order of the schema
  std::vector<Alias> aliases;

  [[nodiscard]] const Option* find(std::string_view name) const;
  [[nodiscard]] const Alias* find_alias(std::string_view name) const;
};

// Reads a schema; `owner` names it in errors ("strategy 'zero1'"). nullptr or "" gives an empty schema.
Schema parse_schema(const char* text, const std::string& owner);

// `value` converted for the option (2e3 becomes the integer 2000), or an Error that names `key` and `where` it was
// given ("on the command line"). `written`: the value as the user wrote it; empty: it is shown as JSON.
Json checked_value(const Option& option, Json value, const std::string& key, const std::string& where,
                   const std::string& written = "");

}  // namespace ddhost
