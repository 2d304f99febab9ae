// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/text.hpp: reads the text of another program's configuration file, with the line of every key.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "base/json.hpp"

namespace ddhost {

// A file as values. Keys of `lines` are paths: "optimizer.params.lr", "passes[1]" is counted with its list.
struct ForeignText {
  Json root;
  std::map<std::string, size_t> lines;

  // 0: unknown.
  [[nodiscard]] size_t line_of(const std::string& path) const {
    const auto at = lines.find(path);
    return at == lines.end() ? 0 : at->second;
  }
};

// The error in such a text; `line` counts from 1, 0: unknown.
struct ForeignTextError : std::runtime_error {
  ForeignTextError(const std::string& reason, size_t error_line) : std::runtime_error(reason), line(error_line) {}
  size_t line;
};

// The bytes of the file. Error: it can't be read, is empty, too large, or not UTF-8.
std::string read_foreign_file(const std::filesystem::path& file);

// JSON as people write it by hand (Hjson): comments of three kinds, commas that are missing or too many, keys and texts
// without quotes, no braces around the whole. Throws ForeignTextError, also for a key that occurs twice in one object.
ForeignText read_relaxed_json(const std::string& text);

// YAML without tags, with few aliases. Throws ForeignTextError.
ForeignText read_yaml(const std::string& text);

}  // namespace ddhost
