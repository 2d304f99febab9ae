// SPDX-License-Identifier: Apache-2.0
#include "cli/words/parser_flags.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Whether a command has the flag that `word` is, or with which it begins before '='.
bool is_flag(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const auto options = command.get_options();
  return name.starts_with("--") && std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
           return option->check_lname(name.substr(2));
         });
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "--strategy", each once.
void add_flags(const CLI::App& command, std::vector<std::string>& flags) {
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      if (std::find(flags.begin(), flags.end(), "--" + name) == flags.end()) flags.push_back("--" + name);
}

}  // namespace

void require_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (!option->get_lnames().empty() && option->get_expected_min() > 0 && is_flag(app, value))
        ddh::fail(DDH_INVALID_ARGUMENT, "--", option->get_lnames().front(), " has no value before '", value,
                  "'; give one");
  for (const CLI::App* command : app.get_subcommands()) require_values(*command);
}

void let_last_flag_count(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty() && option->get_items_expected_max() == 1 &&
        option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->take_last();
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) let_last_flag_count(*command);
}

std::vector<CommandWords> words_of(const CLI::App& app) {
  std::vector<CommandWords> out;
  for (const CLI::App* command : commands_of(app)) {
    CommandWords& words = out.emplace_back();
    words.name = command->get_name();
    add_flags(*command, words.flags);
    for (const CLI::App* action : commands_of(*command)) {
      words.actions.push_back(action->get_name());
      add_flags(*action, words.flags);
      add_flags(*action, words.flags_of_action[action->get_name()]);
    }
  }
  return out;
}

std::vector<std::string> switches_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* command : commands_of(app))
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        if (option->get_items_expected_max() == 0) out.push_back("--" + name);
  return out;
}

}  // namespace ddhost
