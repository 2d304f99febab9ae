// SPDX-License-Identifier: Apache-2.0
#include "cli/words/usage.hpp"

#include <algorithm>
#include <sstream>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "config/host_schema.hpp"
#include "config/words.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Whether a word is a key of the configuration, as far as its section says.
bool is_key(const std::string& word) {
  const size_t dot = word.find('.');
  const std::vector<Section> sections = host_sections();
  return dot != std::string::npos && std::any_of(sections.begin(), sections.end(), [&](const Section& section) {
           return section.name == word.substr(0, dot);
         });
}

}  // namespace

std::string unknown_command(const std::string& word, const std::vector<std::string>& commands) {
  const std::string shown = "there is no command '" + plain_text(word, kShownValue) + "'";
  const std::string ours = our_command(word), near = nearest(word, commands);
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  if (!ours.empty()) return shown + "; here it is `ddhost " + ours + "`";
  if (is_key(word)) return shown + "; give a value to the option: " + plain_text(word, kShownValue) + "=VALUE";
  return shown + "; neither is it a flag nor key=value, such as train.steps=100";
}

std::string unknown_flag(const std::string& word, const std::string& value, const CommandWords& command) {
  const size_t equals = word.find('=');
  const std::string flag = word.substr(0, equals);
  const std::string given = equals == std::string::npos ? value : word.substr(equals + 1);
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const std::string shown = "there is no flag '" + plain_text(flag, kShownValue) + "' of `ddhost " + command.name + "`";
  const std::string near = nearest(flag, command.flags), ours = our_option(name, given);
  if (!near.empty() && edit_distance(flag, near) <= 2) return shown + "; did you mean '" + near + "'?";
  if (!ours.empty()) return shown + "; here it is " + ours;
  if (is_key(name))
    return shown + "; an option of the configuration has no dashes: " + plain_text(name, kShownValue) + "=" +
           (given.empty() ? "VALUE" : plain_text(given, kShownValue));
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  return shown + "; `ddhost help " + command.name + "` prints its flags";
}

std::string fitted_help(const std::string& help) {
  constexpr size_t kWidth = 80, kLeast = 4, kMost = 50;
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    // The second column of a list begins after two blanks or more.
    const size_t first = line.find_first_not_of(' ');
    const size_t gap = first == std::string::npos || first == 0 ? std::string::npos : line.find("  ", first);
    const size_t second = gap == std::string::npos ? std::string::npos : line.find_first_not_of(' ', gap);
    out += wrapped(line, kWidth, second == std::string::npos || second > kMost ? kLeast : second) + '\n';
  }
  return out;
}

}  // namespace ddhost
