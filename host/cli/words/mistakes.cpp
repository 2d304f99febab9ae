// SPDX-License-Identifier: Apache-2.0
#include "cli/words/mistakes.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.hpp"
#include "cli/words/parser_flags.hpp"
#include "cli/words/usage.hpp"

namespace ddhost {
namespace {

// The first flag that the command does not have, or the first word that is one too many.
std::string extra_word_text(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<CommandWords> commands = words_of(app);
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const CommandWords& one) { return one.name == arguments.front(); });
  const std::vector<std::string> extra = app.remaining(/*recurse=*/true);
  for (const std::string& word : extra) {
    if (!word.starts_with('-') || command == commands.end()) continue;
    const auto at = std::find(arguments.begin(), arguments.end(), word);
    const bool has_next = at != arguments.end() && at + 1 != arguments.end() && !(at + 1)->starts_with('-');
    return unknown_flag(word, has_next ? *(at + 1) : "", *command, arguments.size() > 1 ? arguments[1] : "");
  }
  return "'" + plain_text(extra.empty() ? "" : extra.front(), kShownValue) + "' is a word too many for `ddhost " +
         arguments.front() + "`; leave it out";
}

// The parser calls a flag by its long name.
std::string as_given(const CLI::App& command, const std::vector<std::string>& arguments, std::string text) {
  const auto is_given = [&](const std::string& flag) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const std::string& word) { return word.starts_with(flag); });
  };
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    for (const std::string& letter : option->get_snames())
      if (text.starts_with(name + ":") && is_given("-" + letter) && !is_given(name))
        text.replace(0, name.size(), "-" + letter);
  }
  return text;
}

}  // namespace

std::string mistake_text(const CLI::App& app, const std::vector<std::string>& arguments, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return extra_word_text(app, arguments);
  if (app.get_subcommands().empty()) return with_cure(error.get_name(), error.what(), "");
  const CLI::App* last = app.get_subcommands().front();
  std::string name = last->get_name();
  for (const CommandWords& command : words_of(app))
    if (command.name == name && !command.actions.empty() && last->get_subcommands().empty()) return no_action(command);
  if (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    name += " " + last->get_name();
  }
  return with_cure(error.get_name(), as_given(*last, arguments, error.what()), name);
}

}  // namespace ddhost
