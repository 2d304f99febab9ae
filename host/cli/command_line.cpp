// SPDX-License-Identifier: Apache-2.0
//
// cli/command_line.cpp: flags and commands on CLI11.
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/host_schema.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct Flag {
  const char* name;
  const char* key;  // of the config
  const char* help;
};

constexpr std::array<Flag, 10> kFlags = {{
    {"--strategy", "strategy.plugin", "strategy: a name such as zero3, a path, or path.so:id"},
    {"--model", "model.plugin", "model, as above"},
    {"--optimizer", "optimizer.plugin", "optimizer, as above"},
    {"--schedule", "schedule.type", "learning-rate schedule, as above"},
    {"--comm", "comm.plugin", "transport between the ranks, as above"},
    {"--device", "device.plugin", "device of the ranks: cpu, or as above"},
    {"--monitor", "monitor.plugins", "monitors that record the run, separated by commas: jsonl,tensorboard"},
    {"--nproc", "run.nproc", "number of ranks; without it the number of GPUs, else 2"},
    {"--ranks-per-node", "run.ranks_per_node", "simulate nodes of this many ranks each"},
    {"--save-final", "train.save_final", "write the final weights to this safetensors file"},
}};

constexpr const char* kFooter = R"(Commands:
  ddhost [train] [flags] [key=value ...]   train; the default
  ddhost list                              plugins in the search folders
  ddhost inspect FILE.so                   kind, needs and options of a plugin

Every key of the configuration can be given as key=value: train.steps=100 optimizer.lr=3e-4 run.dir=runs/first
`ddhost --dry-run` prints them all with their values, `ddhost train --help` the flags.)";

// `train` may be left out.
std::vector<std::string> with_command(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::array<std::string, 6> first = {"train", "list", "inspect", "-h", "--help", "--version"};
  if (words.empty() || std::find(first.begin(), first.end(), words[0]) == first.end())
    words.insert(words.begin(), "train");
  return words;
}

[[noreturn]] void end_with_usage_error(const std::string& sentence) {
  std::cerr << "ddhost: " << sentence << "; see `ddhost --help`\n";
  throw CommandLineExit{2};
}

// Text of other encodings can't be kept in the run's configuration, which is JSON.
void check_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    end_with_usage_error("'" + text.substr(0, text.find('=')) + "' has a value that is not UTF-8; give it as UTF-8");
  }
}

// A flag without a value takes the next word, which is more often an option of the configuration than a file name.
void check_flag_value(const std::string& flag, const std::string& value) {
  const size_t dot = value.find('.'), equals = value.find('=');
  const std::vector<Section> sections = host_sections();
  const bool is_option =
      dot < equals && equals != std::string::npos &&
      std::any_of(sections.begin(), sections.end(), [&](const Section& s) { return s.name == value.substr(0, dot); });
  if (value.empty() || is_option)
    ddh::fail(DDH_INVALID_ARGUMENT, flag, " has no value", is_option ? " before '" + value + "'" : "", "; give one");
}

// The value of a flag in the form of its option: a list is given with commas.
std::string option_text(const Flag& flag, const std::string& value) {
  if (std::string_view(flag.key) != "monitor.plugins") return value;
  Json list = Json::array();
  std::istringstream items(value);
  for (std::string item; std::getline(items, item, ',');) list.push_back(item);
  return list.dump();
}

std::vector<Override> collect(const std::array<std::string, kFlags.size()>& values, const CLI::App& train,
                              const std::vector<std::string>& words) {
  std::vector<Override> overrides;
  for (const std::string& word : words) {
    check_utf8(word);
    overrides.push_back(parse_override(word));
  }
  // Flags win over key=value arguments.
  for (size_t i = 0; i < kFlags.size(); ++i) {
    if (train.count(kFlags[i].name) == 0) continue;
    check_flag_value(kFlags[i].name, values[i]);
    overrides.push_back({kFlags[i].key, option_text(kFlags[i], values[i]), kFlags[i].name});
  }
  return overrides;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app("ddhost trains a model on several ranks; strategy, model, optimizer and transport are plugins.",
               "ddhost");
  app.footer(kFooter);
  app.set_version_flag("--version", "ddhost " DDHOST_VERSION);
  app.require_subcommand(1);

  CLI::App* train = app.add_subcommand("train", "train a model (the default command)");
  train->footer(kFooter);
  std::vector<std::string> words;
  std::array<std::string, kFlags.size()> values;
  std::string config_file;
  train->add_option("--config", config_file, "configuration file (JSON, comments allowed)");
  for (size_t i = 0; i < kFlags.size(); ++i) train->add_option(kFlags[i].name, values[i], kFlags[i].help);
  train->add_flag("--dry-run", line.dry_run, "print the effective configuration and stop");
  train->add_option("key=value", words, "options of the configuration");
  CLI::App* list = app.add_subcommand("list", "list the plugins that are found");
  CLI::App* inspect = app.add_subcommand("inspect", "describe a plugin: its kind, needs and options");
  inspect->add_option("file", line.inspect_file, "path or name of the plugin")->required();

  std::vector<std::string> arguments = with_command(argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads them from the back
  try {
    app.parse(arguments);
    line.overrides = collect(values, *train, words);
  } catch (const CLI::Success& wish) {
    throw CommandLineExit{app.exit(wish)};  // --help, --version
  } catch (const CLI::ParseError& error) {
    end_with_usage_error(error.what());
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
  if (train->count("--config") > 0 && (config_file.empty() || config_file.find('=') != std::string::npos))
    end_with_usage_error("--config has no file");
  line.config_file = config_file;
  if (list->parsed()) line.command = Command::kList;
  if (inspect->parsed()) line.command = Command::kInspect;
  return line;
}

}  // namespace ddhost
