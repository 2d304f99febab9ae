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

// "ls, show or rm", or with another word before the last.
std::string in_words(const std::vector<std::string>& words, const std::string& before_last) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? before_last : ", ") + words[i];
  return out;
}

// "--model gpt"
std::string choice_of_plugin(const std::string& kind, const std::string& name) {
  return kind == "format" ? "run.format=" + name : "--" + kind + " " + name;
}

// The help with "N" for "UINT:INT in [1 - 1000000]", as the parser calls such a value, and what it says of it beside it.
std::vector<std::string> plain_lines(const std::string& help) {
  constexpr std::string_view kIn = " in [";
  std::istringstream text(help);
  std::vector<std::string> lines;
  size_t open = std::string::npos;  // the second column of a line that the next one continues
  for (std::string line; std::getline(text, line);) {
    const size_t second = line.find_first_not_of(' ');
    if (open != std::string::npos && second != std::string::npos && second > open) {
      lines.back() += std::string(second - open, ' ') + line.substr(second);
      open = std::string::npos;
      continue;
    }
    const size_t in = line.find(kIn);
    open = std::string::npos;
    if (line.starts_with("  -") && in != std::string::npos && line.ends_with(']')) {
      line = line.substr(0, line.rfind(' ', in - 1)) + " N";
      open = line.size();
    }
    lines.push_back(line);
  }
  return lines;
}

// What a command needs, where it is not given. `name`: as the help calls it.
std::string required_text(const std::string& name, const std::string& command) {
  if (name == "run") return command + " needs a run; give its name or its folder (`ddhost runs ls` lists runs)";
  if (name == "path")
    return command + " needs a folder; give " +
           (command == "ckpt import" ? "the one that the other program wrote" : "that of a checkpoint or of a run");
  if (name == "shell") return command + " needs the name of a shell; give bash, zsh or fish";
  if (name == "key|plugin")
    return command + " needs a word; give a key, such as train.recompute, a section or the name of a plugin";
  return (command.empty() ? "ddhost" : command) + " needs " + (name.starts_with('-') ? "" : "a ") + name + "; give it";
}

// Of "--width: Value 0 not in range 20 to 1000"; "": it is another text.
std::string out_of_range_text(const std::string& name, const std::string& text) {
  constexpr std::string_view kValue = ": Value ", kRange = " not in range ";
  const size_t value = text.find(kValue), range = text.find(kRange);
  if (value == std::string::npos || range == std::string::npos || range < value) return "";
  return ddh::str(name, " takes a number from ", text.substr(range + kRange.size()), ", and '",
                  text.substr(value + kValue.size(), range - value - kValue.size()), "' is none; give another value");
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

std::string unknown_command(const std::string& word, const std::vector<std::string>& commands,
                            const KindOfPlugin& kind_of) {
  const std::string shown = "there is no command '" + plain_text(word, kShownValue) + "'";
  const std::string ours = our_command(word), near = nearest(word, commands), kind = kind_of ? kind_of(word) : "";
  if (!kind.empty()) return shown + "; it is the name of " + with_article(kind) + ": " + choice_of_plugin(kind, word);
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  if (!ours.empty()) return shown + "; here it is `ddhost " + ours + "`";
  for (const char* key : {"strategy.plugin", "model.plugin"})
    if (const std::string value = our_value(key, word); !value.empty()) return shown + "; here it is " + value;
  if (is_key(word)) return shown + "; give a value to the option: " + plain_text(word, kShownValue) + "=VALUE";
  return shown + "; neither is it a flag nor key=value, such as train.steps=100";
}

std::string unknown_action(const std::string& word, const CommandWords& command) {
  const std::string near = nearest(word, command.actions);
  return "there is no action '" + plain_text(word, kShownValue) + "' of `ddhost " + command.name + "`; " +
         (near.empty() ? "it has: " + in_words(command.actions, ", ") : "did you mean '" + near + "'?");
}

std::string no_action(const CommandWords& command) {
  return command.name + " needs an action: " + in_words(command.actions, " or ");
}

std::string unknown_flag(const std::string& word, const std::string& value, const CommandWords& command,
                         const std::string& action) {
  const size_t equals = word.find('=');
  const std::string flag = word.substr(0, equals);
  const std::string given = equals == std::string::npos ? value : word.substr(equals + 1);
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const auto of_action = command.flags_of_action.find(action);
  const bool has_action = of_action != command.flags_of_action.end();
  const std::string called = command.name + (has_action ? " " + action : "");
  const std::vector<std::string>& flags = has_action ? of_action->second : command.flags;
  const std::string shown = "there is no flag '" + plain_text(flag, kShownValue) + "' of `ddhost " + called + "`";
  const std::string near = nearest(flag, flags), hint = hint_of_option(name, given);
  for (const auto& [other, theirs] : command.flags_of_action)
    if (has_action && std::find(theirs.begin(), theirs.end(), flag) != theirs.end())
      return shown + "; `ddhost " + command.name + " " + other + "` has it";
  if (!near.empty() && edit_distance(flag, near) <= 2) return shown + "; did you mean '" + near + "'?";
  if (!hint.empty() && !hint.starts_with("here it is " + name + "=")) return shown + "; " + hint;
  if (is_key(name))
    return shown + "; an option of the configuration has no dashes: " + plain_text(name, kShownValue) + "=" +
           (given.empty() ? "VALUE" : plain_text(given, kShownValue));
  if (const std::string theirs = nearest_option_word(name); !theirs.empty())
    return shown + "; if it means '" + theirs + "' of another program, here it is " + our_option(theirs, given);
  if (!near.empty()) return shown + "; did you mean '" + near + "'?";
  return shown + "; `ddhost help " + command.name + "` prints its flags";
}

std::string with_cure(const std::string& kind, const std::string& text, const std::string& command) {
  const std::string name = text.substr(0, text.find(": "));
  const bool is_missing = text.ends_with(" missing");
  if (kind == "ArgumentMismatch" && is_missing) return name + " has no value; give one";
  if (kind == "ArgumentMismatch" && command == "ckpt diff")
    return "ckpt diff compares two checkpoints; give two folders";
  if (kind == "ArgumentMismatch" && command == "runs diff")
    return "runs diff compares two runs; give two names or folders (`ddhost runs ls` lists runs)";
  constexpr std::string_view kMost = ": At Most ", kRequired = " required but received ";
  const size_t most = text.find(kMost), required = text.find(kRequired);
  if (kind == "ArgumentMismatch" && most != std::string::npos && required != std::string::npos)
    return ddh::str(name, " has ", text.substr(required + kRequired.size()), " values, and takes at most ",
                    text.substr(most + kMost.size(), required - most - kMost.size()), "; leave the others out");
  if (kind == "ArgumentMismatch") return text + "; give as many";
  if (kind == "RequiredError") return required_text(text.substr(0, text.find(" is required")), command);
  if (const std::string range = out_of_range_text(name, text); !range.empty()) return range;
  const bool has_cure = text.find("; ") != std::string::npos;
  if ((kind == "ValidationError" || kind == "ConversionError") && !has_cure) return text + "; give another value";
  return text;
}

std::string fitted_help(const std::string& help) {
  constexpr size_t kWidth = 80, kLeast = 4, kMost = 50;
  std::string out;
  for (std::string line : plain_lines(help)) {
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
