// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/translation.hpp: what became of another program's configuration file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "config/foreign/table.hpp"
#include "config/foreign/text.hpp"

namespace ddhost {

// Where a value comes from.
struct ForeignOrigin {
  // In the file; "auto" in the file; not in the file: by other keys of it, or the default.
  enum class Kind { given, automatic, derived, preset };
  std::string key;  // as the file has it: "zero_optimization.cpu_offload"
  Json value;
  Kind kind = Kind::given;
  std::string file;
  size_t line = 0;  // 0: none
  std::string program;

  [[nodiscard]] const char* kind_text() const {
    switch (kind) {
      case Kind::given:
        return "given";
      case Kind::automatic:
        return "auto";
      case Kind::derived:
        return "derived";
      case Kind::preset:
        break;
    }
    return "default";
  }
};

struct Translation {
  struct Line {
    std::string key;  // ours
    Json value;
    ForeignOrigin from;
  };
  struct Idle {
    ForeignOrigin from;
    std::string reason;
  };
  struct Same {  // several keys say together what ours say
    ForeignOrigin from;
    std::vector<std::string> keys;
  };
  struct Refusal {
    ForeignOrigin from;
    std::string sentence;
  };
  const ForeignTable* table = nullptr;
  std::string file, version;
  std::vector<Line> lines;
  std::vector<Same> same;
  std::vector<Idle> idle;
  std::vector<Refusal> refused;

  // Our configuration, nested.
  [[nodiscard]] Json config() const;
};

// What a translation has to know of the run.
struct ForeignContext {
  std::function<int64_t()> ranks;                                    // of the run
  std::function<std::optional<Json>(const std::string& key)> given;  // the user's value of a key of ours
  std::string version;                                               // of the other program; empty: the newest
  // The user's value on the command line, which wins over the file. It may be empty.
  std::function<std::optional<Json>(const std::string& key)> on_command_line;
};

// The table of the program that such a file is for; nullptr: none.
const ForeignTable* table_of_file(const std::filesystem::path& file);

// Error: the file, which no table knows, can't be read in the form that its name says.
void require_readable(const std::filesystem::path& file);

// The table of a format reads the file. Error: one sentence, if the file can't be read at all. What the table refuses is in
// the result.
Translation translate_file(const ForeignTable& table, const std::filesystem::path& file, const ForeignContext& context);

// Error, if something is refused.
void require_accepted(const Translation& translation);

}  // namespace ddhost
