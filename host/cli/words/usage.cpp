// SPDX-License-Identifier: Apache-2.0
#include "cli/words/usage.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

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

const char* const kFooter = R"(Commands:
  ddhost [train] [flags] [key=value ...]  train a model (the default command)
  ddhost eval --weights FILE [...]        print the metrics of a trained model
  ddhost generate --weights FILE [...]    print samples of a trained model
  ddhost plan [flags] [key=value ...]     print the memory that a training takes
  ddhost list [strategies|models|...]     list the available plugins
  ddhost inspect FILE.so                  describe a plugin and its options
  ddhost inspect --markdown               print all options as a page
  ddhost explain KEY|PLUGIN               meaning, cost and example of an option
  ddhost ckpt ACTION                      show, verify, prune ... checkpoints
  ddhost export CHECKPOINT FOLDER         write weights as safetensors files
  ddhost convert FILE                     what a file of another program means
  ddhost compare --strategies A,B [...]   measure strategies side by side
  ddhost tune [flags] [key=value ...]     find the fastest strategy that fits
  ddhost smoke [flags] [key=value ...]    try all parts of a run in a short one
  ddhost data peek [flags] [key=value]    samples as the model gets them
  ddhost runs ACTION                      list, show, plot, diff ... runs
  ddhost doctor [--hostfile FILE] [...]   measure hosts, say what a run would do
  ddhost completion bash|zsh|fish         print a script that completes words
  ddhost help COMMAND                     print the flags of a command

Every key of the configuration can be given as key=value:
  train.steps=100 optimizer.lr=3e-4 run.dir=runs/first
`ddhost --dry-run` prints all keys with their values.)";

std::string unknown_command(const std::string& word, const std::vector<std::string>& commands) {
  const std::string shown = "there is no command '" + plain_text(word, kShownValue) + "'";
  const std::string ours = our_command(word), near = nearest(word, commands);
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  if (!ours.empty()) return shown + "; here it is `ddhost " + ours + "`";
  if (is_key(word)) return shown + "; give a value to the option: " + plain_text(word, kShownValue) + "=VALUE";
  return shown + "; neither is it a flag nor key=value, such as train.steps=100";
}

std::string unknown_action(const std::string& word, const CommandWords& command) {
  const std::string near = nearest(word, command.actions);
  std::string actions;
  for (const std::string& action : command.actions) actions += (actions.empty() ? "" : ", ") + action;
  return "there is no action '" + plain_text(word, kShownValue) + "' of `ddhost " + command.name + "`; " +
         (near.empty() ? "it has: " + actions : "did you mean '" + near + "'?");
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
  if (const std::string theirs = nearest_option_word(name); !theirs.empty())
    return shown + "; if it means '" + theirs + "' of another program, here it is " + our_option(theirs, given);
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  return shown + "; `ddhost help " + command.name + "` prints its flags";
}

std::string with_cure(const std::string& kind, const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  if (kind == "ArgumentMismatch" && text.ends_with(" missing")) return name + " has no value; give one";
  constexpr std::string_view kMost = ": At Most ", kRequired = " required but received ";
  const size_t most = text.find(kMost), required = text.find(kRequired);
  if (kind == "ArgumentMismatch" && most != std::string::npos && required != std::string::npos)
    return ddh::str(name, " has ", text.substr(required + kRequired.size()), " values, and takes at most ",
                    text.substr(most + kMost.size(), required - most - kMost.size()), "; leave the others out");
  if (kind == "ArgumentMismatch") return text + "; give as many";
  if (kind == "RequiredError") return text + "; give it";
  if (kind == "ExtrasError") return text + "; leave it out";
  const bool has_cure = text.find("; ") != std::string::npos;
  if ((kind == "ValidationError" || kind == "ConversionError") && !has_cure) return text + "; give another value";
  return text;
}

std::string fitted_help(const std::string& help) {
  constexpr size_t kWidth = 80, kLeast = 4, kMost = 50;
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    // The parser shows what a flag without a value stands for: --flag{value}.
    const size_t open = line.find('{'), close = line.find('}');
    if (line.starts_with("  --") && open < line.find(' ', 2) && close != std::string::npos)
      line.replace(open, close + 1 - open, close + 1 - open, ' ');
    // The second column of a list begins after two blanks or more.
    const size_t first = line.find_first_not_of(' ');
    const size_t gap = first == std::string::npos || first == 0 ? std::string::npos : line.find("  ", first);
    const size_t second = gap == std::string::npos ? std::string::npos : line.find_first_not_of(' ', gap);
    out += wrapped(line, kWidth, second == std::string::npos || second > kMost ? kLeast : second) + '\n';
  }
  return out;
}

}  // namespace ddhost
