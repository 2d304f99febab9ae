// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/given_values.hpp: the values of another program's file by the names of its table: other names are
// replaced, "auto" is filled in, types and ranges are checked.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/foreign/translation.hpp"

namespace ddhost {

struct GivenValue {
  Json value;
  ForeignOrigin from;
  bool is_guess = false;  // "auto", and nothing of the user's says what it is
  bool is_bad = false;    // it was refused
};

struct GivenValues {
  std::map<std::string, GivenValue> values;  // by the table's names
  std::vector<Translation::Refusal> refused;
  std::string file;

  [[nodiscard]] const GivenValue* find(const std::string& name) const {
    const auto at = values.find(name);
    return at == values.end() ? nullptr : &at->second;
  }
  void set(const std::string& name, GivenValue value) { values.insert_or_assign(name, std::move(value)); }
  void erase(const std::string& name) { values.erase(name); }
};

// Error: the file can't be read.
GivenValues given_values(const ForeignTable& table, const std::filesystem::path& file, const ForeignContext& context);

// What is wrong with a value of a key; "": nothing. A text that may stand for a number or a truth value becomes one.
std::string misfit(const ForeignKey& key, Json& value);

}  // namespace ddhost
