// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/table.hpp: what the keys of another program's configuration file mean here. The tables are
// plugins/names/files/*.json, which the build puts into the program; docs/foreign-files.md explains their form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

// What becomes of a key, if its conditions hold. The first rule that applies counts.
struct ForeignRule {
  Json when = Json::object();  // other keys, and their values
  std::optional<Json> is;      // the value of the key itself; nullopt: any
  bool only_given = false;     // not of a default
  std::string before;          // versions before this one alone
  // One of these, or `to` and `gives` together.
  std::string to;      // our key
  double factor = 1;   // our value = factor x theirs
  Json values;         // our value for a text of theirs
  Json gives, append;  // our keys with fixed values; an entry for our list
  Json part_of;        // our keys, which together say the same
  std::string no_effect, refuse;
  std::string hand_to, file_of;  // "format:key" of another table; the format of a file that the value names
};

struct ForeignKey {
  std::string name;                 // "zero_optimization.stage"
  std::vector<std::string> types;   // as in a JSON Schema; "open": an object whose values are not looked at
  std::vector<std::string> fields;  // the keys of such an object; empty: any
  std::vector<std::string> also;    // other names
  std::string stands_for;           // another key, with `stands_as` by value
  Json stands_as;
  Json preset;  // their default, or a list of {"before": version, "value"}
  Json words;   // legal texts, without regard to case if `folds`
  bool folds = false;
  Json min, above, max;
  uint64_t length = 0;      // of a list, of numbers; 0: any
  bool takes_text = false;  // numbers and truth values may be texts
  Json automatic;           // what "auto" means: {"from": our key, "else": value}
  Json line;                // our key whose value on the command line counts in its place: {"from", "values"}
  Json only;                // conditions without which the key must not be given
  std::string removed;      // the version that removed it
  std::vector<ForeignRule> rules;

  [[nodiscard]] Json preset_in(const std::string& version) const;
};

// Three keys of which the first is the product of the others and of the number of ranks.
struct ForeignProduct {
  std::string all, each, times;
  std::string refuse_none;
};

struct ForeignTable {
  std::string format;   // "deepspeed"
  std::string program;  // as sentences name it
  std::string is;       // "a configuration of ..."
  std::string newest;   // version
  bool is_yaml = false;
  Json known_by;                   // {"all": [...], "any": [...]}
  Json sections;                   // other names of objects
  std::vector<std::string> drops;  // objects in which "auto" means the default
  std::vector<std::string>
      script;  // objects that a script may have instead; another table that hands over values leaves them
  std::vector<ForeignKey> keys;
  std::vector<ForeignProduct> products;
  Json flags;                // of the command line
  Json words;                // key=value of the command line
  Json variables;            // of the environment
  Json lines;                // [what people type, our line] for the page of the table
  std::string command;       // of the command line; empty: none
  std::string default_file;  // of the command; empty: none

  [[nodiscard]] const ForeignKey* find(std::string_view name) const;
  // Whether there are keys below the object.
  [[nodiscard]] bool has_below(const std::string& name) const;
};

// Error: the text is ill-formed.
ForeignTable read_foreign_table(const std::string& file, const std::string& text);
const std::vector<ForeignTable>& foreign_tables();
const ForeignTable* foreign_table(std::string_view format);

// Whether version a ("0.18") comes before b.
bool is_before(const std::string& a, const std::string& b);

}  // namespace ddhost
