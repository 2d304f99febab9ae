// SPDX-License-Identifier: Apache-2.0
//
// cli/completion.cpp: `ddhost completion`. The script holds all words, so that completing them starts no process.
#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <set>
#include <span>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/words/known_options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/step_count.hpp"

namespace ddhost {
namespace {

// Commands that take keys.
constexpr std::array<std::string_view, 8> kRunCommands = {"train",   "eval", "generate", "plan",
                                                          "compare", "tune", "smoke",    "data"};

// Commands that take names and folders alone.
constexpr const char* kWithoutKeys = "(ckpt|export|inspect|list|explain|runs|completion)";

// The command that may be left out.
constexpr std::array<std::string_view, 1> kTrain = {"train"};

// All that can be completed.
struct Words {
  std::set<std::string> keys;
  std::map<std::string, std::set<std::string>> values;  // of keys and of flags
  std::vector<CommandWords> commands;
};

// Only what no shell gives another meaning.
bool is_safe(const std::string& word) {
  return !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
                              std::string::npos;
}

Words words_of(const Registry& registry, const CompletionArgs& args) {
  const std::vector<PluginFacts> plugins = known_plugins(registry, registry.all_files());
  Words out;
  out.commands = args.commands;
  for (const KnownOption& known : known_options(plugins)) {
    if (!is_safe(known.key)) continue;
    out.keys.insert(known.key);
    if (known.option.takes("boolean")) out.values[known.key] = {"true", "false"};
    if (!known.option.legal.is_array()) continue;
    for (const Json& value : known.option.legal)
      if (const std::string text = value.is_string() ? value.get<std::string>() : value.dump(); is_safe(text))
        out.values[known.key].insert(text);
  }
  for (const PluginFacts& plugin : plugins) {
    if (!is_safe(plugin.id)) continue;
    const std::string kind = kind_name(plugin.kind);
    for (const std::string& key : {kind + ".plugin", kind + ".plugins", kind + ".type"})
      if (out.keys.contains(key)) out.values[key].insert(plugin.id);
    out.values["--" + kind].insert(plugin.id);
    if (plugin.kind == DDH_KIND_STRATEGY) out.values["--strategies"].insert(plugin.id);
    out.values["inspect"].insert(plugin.id);
    out.values["explain"].insert(plugin.id);
  }
  out.values["explain"].insert(out.keys.begin(), out.keys.end());
  out.values["list"] = {"strategies", "models",   "optimizers", "transports", "devices",
                        "schedules",  "monitors", "formats",    "codecs"};
  out.values["ckpt"] = {"ls", "show", "verify", "diff", "prune", "import"};
  out.values["runs"] = {"ls", "show", "tail", "plot", "diff", "rm"};
  out.values["data"] = {"peek"};
  out.values["completion"] = {"bash", "zsh", "fish"};
  for (const CommandWords& command : out.commands) out.values["help"].insert(command.name);
  return out;
}

template <class All>
std::string joined(const All& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// All commands except some, and `help`.
std::string command_names(const Words& words, std::span<const std::string_view> without = {}) {
  std::string out = "help";
  for (const CommandWords& command : words.commands)
    if (std::find(without.begin(), without.end(), command.name) == without.end()) out += " " + command.name;
  return out;
}

// Branches of a shell's `case`: "  zero1) words='...' ;;".
std::string branches(const Words& words) {
  std::string out;
  for (const auto& [name, values] : words.values) out += "    " + name + ") words='" + joined(values) + "' ;;\n";
  return out;
}
// Of "runs/plot", or of "runs/" and what is no action yet. A run needs no command.
std::string flag_branches(const Words& words) {
  std::string out, train;
  for (const CommandWords& command : words.commands) {
    for (const auto& [action, flags] : command.flags_of_action)
      out += "    " + command.name + "/" + action + ") words='" + joined(flags) + "' ;;\n";
    out += "    " + command.name + "/*) words='" + joined(command.flags) + "' ;;\n";
    if (command.name == kTrain[0]) train = joined(command.flags);
  }
  return out + "    *) words='" + train + "' ;;\n";
}

// The condition, in bash and zsh, that a word names a run: it follows an action of `ddhost runs` that takes one. `one_of`:
// what the shell has before alternatives.
std::string names_run(const std::string& command, const std::string& action, const std::string& one_of) {
  return "[[ " + command + " == runs && " + action + " == " + one_of +
         "(show|rm|tail|plot|diff) && $cur != -* && ($before != -* || $before == " + one_of +
         "(--yes|--html|--json|--log|-f|--follow|--all-files)) ]]";
}

// A function of bash and zsh that lists the runs below runs/, of which `folders` is the pattern.
std::string runs_function(const std::string& folders) {
  return "_ddhost_runs() {\n"
         "  local at name\n  words=''\n"
         "  for at in " +
         folders +
         "; do\n"
         "    name=${at#runs/}\n    name=${name%/}\n"
         "    if [[ -e runs/$name/" +
         std::string(kRunLock) +
         " && $name != *[!a-zA-Z0-9_.-]* ]]; then words+=\" $name\"; fi\n"
         "  done\n}\n";
}

// Bash divides words at '='.
void print_bash(const Words& words, std::ostream& out) {
  out << "# Completion of ddhost for bash, made by `ddhost completion bash`. Put it into\n"
         "# ~/.local/share/bash-completion/completions/ddhost, or source it.\n"
         "_ddhost_values() {\n  words=''\n  case $1 in\n"
      << branches(words) << "  esac\n}\n_ddhost_flags() {\n  words=''\n  case $1 in\n"
      << flag_branches(words) << "  esac\n}\n"
      << runs_function("runs/*/")
      << "_ddhost() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} key='' words=''\n"
         "  if ((COMP_CWORD > 2)) && "
      << names_run("${COMP_WORDS[1]}", "${COMP_WORDS[2]}", "@")
      << "; then\n"
         "    _ddhost_runs\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "    if ((!${#COMPREPLY[@]})); then COMPREPLY=($(compgen -d -- \"$cur\")); fi\n"
         "    return\n"
         "  fi\n"
         "  if [[ $cur == '=' ]]; then key=$before cur=''; fi\n"
         "  if [[ $before == '=' ]]; then key=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  if [[ -z $key && ($before == -* || $COMP_CWORD -eq 2) ]]; then key=$before; fi\n"
         "  if [[ -n $key && $cur != -* ]]; then _ddhost_values \"$key\"; fi\n"
         "  if [[ $key == @(--strategies|--model|--monitor) && $cur == *,* ]]; then\n"
         "    COMPREPLY=($(compgen -P \"${cur%,*},\" -W \"$words\" -- \"${cur##*,}\"))\n"
         "  elif [[ -n $words ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  elif [[ $cur == -* ]]; then\n"
         "    _ddhost_flags \"${COMP_WORDS[1]}/${COMP_WORDS[2]}\"\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  elif [[ $before == '=' || $COMP_WORDBREAKS != *=* && $cur == *=* || $before == -* || -z $cur && -n $key "
         "]]; then\n"
         "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "  elif ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[1]} == @"
      << kWithoutKeys
      << " ]]; then\n"
         "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -S = -W '"
      << joined(words.keys)
      << "' -- \"$cur\"))\n"
         "    if ((${#COMPREPLY[@]})); then compopt -o nospace 2>/dev/null; fi\n"
         "    if ((COMP_CWORD == 1)); then COMPREPLY+=($(compgen -W '"
      << command_names(words)
      << "' -- \"$cur\")); fi\n"
         "    if ((!${#COMPREPLY[@]})); then COMPREPLY=($(compgen -f -- \"$cur\")); fi\n"
         "  fi\n}\ncomplete -F _ddhost ddhost\n";
}

void print_zsh(const Words& words, std::ostream& out) {
  out << "#compdef ddhost\n"
         "# Completion of ddhost for zsh, made by `ddhost completion zsh`. Put it as _ddhost into a folder of $fpath.\n"
         "_ddhost_values() {\n  words=''\n  case $1 in\n"
      << branches(words) << "  esac\n}\n_ddhost_flags() {\n  words=''\n  case $1 in\n"
      << flag_branches(words) << "  esac\n}\n"
      << runs_function("runs/*(N/)")
      << "_ddhost() {\n"
         "  local cur=${words[CURRENT]} before=${words[CURRENT-1]} command=${words[2]} action=${words[3]}\n"
         "  local -i at=$CURRENT\n"
         "  local words=''\n"
         "  if (( at > 3 )) && "
      << names_run("$command", "$action", "")
      << "; then\n"
         "    _ddhost_runs\n"
         "    if [[ -n $words ]]; then compadd -- ${=words}; else _files -/; fi\n"
         "    return\n"
         "  fi\n"
         "  if [[ $cur == *=* ]]; then\n"
         "    _ddhost_values ${cur%%=*}\n"
         "    compset -P '*='\n"
         "    if [[ -n $words ]]; then compadd -- ${=words}; else _files; fi\n"
         "    return\n"
         "  fi\n"
         "  if [[ $cur != -* && ($before == -* || $at -eq 3) ]]; then\n"
         "    _ddhost_values $before\n"
         "    if [[ $before == (--strategies|--model|--monitor) ]]; then compset -P '*,'; fi\n"
         "    if [[ -n $words ]]; then compadd -- ${=words}; return; fi\n"
         "    if [[ $before == -* ]]; then _files; return; fi\n"
         "  fi\n"
         "  if [[ $cur == -* ]]; then _ddhost_flags \"$command/$action\"; compadd -- ${=words}; return; fi\n"
         "  if (( at > 3 )) && [[ $command == "
      << kWithoutKeys
      << " ]]; then _files; return; fi\n"
         "  if (( at == 2 )); then compadd -- "
      << command_names(words) << "; fi\n  compadd -S = -- " << joined(words.keys)
      << "\n}\n"
         "if [[ $funcstack[1] == _ddhost ]]; then _ddhost \"$@\"; else compdef _ddhost ddhost; fi\n";
}

// A flag that takes a list completes each of its names.
std::string values_of_fish(const std::string& flag, const std::set<std::string>& values) {
  const bool takes_list = flag == "--strategies" || flag == "--model" || flag == "--monitor";
  return takes_list ? "(__ddhost_list " + joined(values) + ")" : joined(values);
}

// A line of fish for each flag: where it is offered, and its values.
void print_fish_flags(const Words& words, const std::string& when, const std::vector<std::string>& flags,
                      std::ostream& out) {
  for (const std::string& flag : flags) {
    const auto values = words.values.find(flag);
    out << "complete -c ddhost -n '" << when << "' -l " << flag.substr(2)
        << (values == words.values.end() ? "" : " -x -a '" + values_of_fish(flag, values->second) + "'") << '\n';
  }
}

void print_fish(const Words& words, std::ostream& out) {
  const std::string seen = "__fish_seen_subcommand_from ";
  out << "# Completion of ddhost for fish, made by `ddhost completion fish`. Put it into\n"
         "# ~/.config/fish/completions/ddhost.fish.\n"
         "function __ddhost_list\n"
         "  set -l before (string replace -r '[^,]*$' '' -- (commandline -ct))\n"
         "  for name in $argv\n    echo $before$name\n  end\nend\n"
         "function __ddhost_runs\n"
         "  for at in runs/*/"
      << kRunLock << "\n    string split / -- $at | sed -n 2p\n  end\nend\n"
      << "complete -c ddhost -n '" << seen << "runs; and " << seen
      << "show rm tail plot diff' -f -a '(__ddhost_runs)'\n"
         "complete -c ddhost -n __fish_use_subcommand -f -a '"
      << command_names(words) << "'\n";
  for (const CommandWords& command : words.commands) {
    const auto own = words.values.find(command.name);
    const std::string before = command.actions.empty() ? "" : "; and not " + seen + joined(command.actions);
    if (own != words.values.end())
      out << "complete -c ddhost -n '" << seen << command.name << before << "' -f -a '" << joined(own->second) << "'\n";
    const std::string others = command_names(words, kTrain);
    if (command.actions.empty())
      print_fish_flags(words, command.name == kTrain[0] ? "not " + seen + others : seen + command.name, command.flags,
                       out);
    else
      print_fish_flags(words, seen + command.name + "; and not " + seen + joined(command.actions), command.flags, out);
    for (const auto& [action, flags] : command.flags_of_action)
      print_fish_flags(words, seen + command.name + "; and " + seen + action, flags, out);
  }
  for (const std::string& key : words.keys) {
    const auto values = words.values.find(key);
    std::string all;
    if (values != words.values.end())
      for (const std::string& value : values->second) all += (all.empty() ? "" : " ") + key + "=" + value;
    out << "complete -c ddhost -n 'not " << seen << command_names(words, kRunCommands) << "' -a '"
        << (all.empty() ? key + "=" : all) << "'\n";
  }
}

}  // namespace

int print_completion(const Registry& registry, const CompletionArgs& args, std::ostream& out) {
  const std::map<std::string, void (*)(const Words&, std::ostream&)> shells = {
      {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  const auto shell = shells.find(args.shell);
  if (shell == shells.end())
    ddh::fail(DDH_INVALID_ARGUMENT, "there is no completion for '", plain_text(args.shell, kShownValue),
              "'; choose bash, zsh or fish");
  shell->second(words_of(registry, args), out);
  return 0;
}

}  // namespace ddhost
