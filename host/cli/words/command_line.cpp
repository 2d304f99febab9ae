// SPDX-License-Identifier: Apache-2.0
//
// cli/words/command_line.cpp: flags and commands on CLI11.
#include "cli/words/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.hpp"
#include "cli/words/ckpt_words.hpp"
#include "cli/words/foreign_words.hpp"
#include "cli/words/mistakes.hpp"
#include "cli/words/parser_flags.hpp"
#include "cli/words/usage.hpp"
#include "config/host_schema.hpp"
#include "config/launchers.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

// Commands that a flag belongs to.
constexpr unsigned kTrains = 1, kEvaluates = 2, kGenerates = 4, kPlans = 8, kCompares = 16, kSmokes = 32, kAll = 63;
constexpr unsigned kOneStrategy = kAll & ~kCompares;

constexpr const char* kAutomaticSteps = "auto";  // of --profile without a value

struct Flag {
  const char* name;
  const char* key;  // of the config
  const char* help;
  unsigned commands = kAll;
};

constexpr std::array<Flag, 31> kFlags = {{
    {"--strategy", "strategy.plugin", "strategy: a name (ddhost list), a path, or path.so:id", kOneStrategy},
    {"--model", "model.plugin", "model, as above"},
    {"--optimizer", "optimizer.plugin", "optimizer, as above", kTrains | kPlans | kCompares | kSmokes},
    {"--schedule", "schedule.type", "learning-rate schedule, as above", kTrains | kPlans | kCompares | kSmokes},
    {"--codec", "codec.plugin", "codec that compresses gradients between ranks: none, or as above",
     kTrains | kPlans | kCompares | kSmokes},
    {"--comm", "comm.plugin", "transport between the ranks, as above"},
    {"--device", "device.plugin", "device of the ranks: auto (devices that are present, or the CPU), or as above"},
    {"--monitor", "monitor.plugins", "monitors that record the run, separated by commas", kTrains | kSmokes},
    {"--page", "monitor.page", "show the run while it goes on at this address and port: 127.0.0.1:0", kTrains},
    {"--nproc", "run.nproc", "number of ranks; default: one for each device that is present, or 2"},
    {"--ranks-per-node", "run.ranks_per_node", "simulate nodes with this number of ranks each"},
    {"--hostfile", "launch.hostfile", "start ranks over SSH on the hosts in this file: node1 slots=4"},
    {"--include", "launch.include", "hosts of the hostfile that take part: node1@node2:0,2"},
    {"--exclude", "launch.exclude", "hosts of the hostfile that do not take part"},
    {"--num-nodes", "launch.num_nodes", "number of hosts of the hostfile that take part"},
    {"--nproc-per-node", "launch.nproc_per_node", "ranks on each host of the hostfile; default: its slots"},
    {"--master-addr", "launch.interface", "address or interface of this host for the other hosts"},
    {"--master-port", "launch.ports", "port, or range of ports, on which the run listens for its other hosts"},
    {"--ssh-config", "launch.ssh_config", "configuration file for ssh"},
    {"--export", "launch.export", "further environment variables for the other hosts, separated by commas"},
    {"--resume", "run.resume",
     "resume from a checkpoint: auto (newest in run.dir), its folder, a run's folder, or none", kTrains},
    {"--resume-allow", "run.resume_allow",
     "options that may differ from the checkpoint's, separated by commas: optimizer.lr,train.steps", kTrains},
    {"--save-final", "train.save_final", "write the final weights to this safetensors file", kTrains},
    {"--weights", "train.init_from", "trained weights: a safetensors file, or the folder of a checkpoint or of a run",
     kEvaluates | kGenerates},
    {"--prompt", "run.sample_prompt", "text that the samples begin with", kGenerates},
    {"--length", "run.sample_tokens", "number of items to generate after the prompt", kGenerates},
    {"--temperature", "run.sample_temperature", "divides the logits; 0: always the most likely item", kGenerates},
    {"--top-k", "run.sample_top_k", "draw from the k most likely items; 0: from all items", kGenerates},
    {"--condition", "run.sample_condition", "index of the evaluation sample to generate for", kGenerates},
    {"--seed", "run.seed", "seed of initial weights and order; of the first sample, and each further sample adds 1",
     kTrains | kGenerates},
    {"--samples", "run.sample_count", "number of samples", kGenerates},
}};

[[noreturn]] void end_with_usage_error(const std::string& sentence) {
  print_sentence(plain_text(sentence) + (sentence.ends_with('?') ? "" : "; see `ddhost --help`"));
  throw CommandLineExit{2};
}

// Text of other encodings can't be kept in the run's configuration, which is JSON.
void check_utf8(const std::string& name, const std::string& text) {
  if (is_utf8(text)) return;
  end_with_usage_error(
      "'" + name + "' has the value '" + plain_text(text, kShownValue) +
      "', which is not UTF-8, so the run's configuration can't hold it; rename the file or give UTF-8");
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

bool takes_list(const Flag& flag) {
  const std::string_view key = flag.key;
  return key == "monitor.plugins" || key == "run.resume_allow" || key == "launch.export";
}

// Converts a flag's value to the form of its option: a list is given with commas.
std::string option_text(const Flag& flag, const std::string& given) {
  if (!takes_list(flag)) return given;
  std::string value = given;  // of a flag that is given twice, one line for each
  std::replace(value.begin(), value.end(), '\n', ',');
  if (value.starts_with('[')) return value;  // a list in JSON, perhaps an empty one
  Json list = Json::array();
  std::istringstream items(value);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t begin = item.find_first_not_of(" \t"), end = item.find_last_not_of(" \t");
    if (begin == std::string::npos)
      ddh::fail(DDH_INVALID_ARGUMENT, flag.name, " '", plain_text(value, kShownValue),
                "' has an empty name; give names separated by commas, or [] for none");
    list.push_back(item.substr(begin, end - begin + 1));
  }
  return list.dump();
}

// Receives the arguments of a command that runs a model.
struct RunWords {
  std::array<std::string, kFlags.size()> values;
  std::vector<std::string> words;
  std::string config_file;
  std::string profile;  // steps; "": the flag is not given
};

CLI::App* add_run_command(CLI::App& app, const char* name, const char* help, unsigned command, RunWords& to,
                          CommandLine& line) {
  CLI::App* added = app.add_subcommand(name, help);
  added->footer(kFooter);
  added->add_option("--config", to.config_file, "configuration file (JSON, comments allowed)");
  for (size_t i = 0; i < kFlags.size(); ++i)
    if ((kFlags[i].commands & command) != 0) {
      CLI::Option* const option = added->add_option(kFlags[i].name, to.values[i], kFlags[i].help);
      takes_list(kFlags[i]) ? option->join() : option->take_last();
    }
  if (command != kPlans && command != kCompares && command != kSmokes)
    added->add_flag("--dry-run", line.dry_run, "print the effective configuration and stop");
  if (command == kTrains)
    added->add_flag(ddh::str("--profile{", kAutomaticSteps, "}"), to.profile,
                    "measure five steps by part, unit and collective, with a trace; --profile=20-25 measures those");
  if (command == kTrains)
    added->add_flag("--fit", line.fit,
                    "if the run does not fit into memory, take the nearest change with which it does");
  added->add_option("key=value", to.words, "options of the configuration");
  return added;
}

// `given_for`: see CommandLine. Messages name what the user wrote.
std::vector<Override> collect(const RunWords& given, const CLI::App& command,
                              const std::map<std::string, std::string>& given_for) {
  std::vector<Override> overrides;
  for (const std::string& word : given.words) {
    check_utf8(word.substr(0, word.find('=')), word);
    overrides.push_back(parse_override(word));
    if (const auto at = given_for.find(word); at != given_for.end()) overrides.back().source = at->second;
  }
  const auto names_steps = [](const Override& one) { return one.key == "profile.steps"; };
  const bool are_named = std::any_of(overrides.begin(), overrides.end(), names_steps);
  if (!given.profile.empty() && (given.profile != kAutomaticSteps || !are_named)) {
    check_utf8("--profile", given.profile);
    overrides.push_back({"profile.steps", given.profile, "--profile"});
  }
  // Flags win over key=value arguments.
  for (size_t i = 0; i < kFlags.size(); ++i) {
    const CLI::Option* const option = command.get_option_no_throw(kFlags[i].name);
    const bool is_it =
        option != nullptr && option->get_description() == kFlags[i].help;  // else one of the command's own
    if (!is_it || option->count() == 0) continue;
    check_flag_value(kFlags[i].name, given.values[i]);
    check_utf8(kFlags[i].name, given.values[i]);
    const auto at = given_for.find(kFlags[i].name);
    const std::string source = at == given_for.end() ? kFlags[i].name : at->second;
    overrides.push_back({kFlags[i].key, option_text(kFlags[i], given.values[i]), source});
  }
  return overrides;
}

// Blanks may separate the names of a list, so words behind it that have '=' are options of the configuration.
std::vector<std::string> names_of(std::vector<std::string> list, RunWords& given) {
  const auto is_option = [](const std::string& word) { return word.find('=') != std::string::npos; };
  std::copy_if(list.begin(), list.end(), std::back_inserter(given.words), is_option);
  list.erase(std::remove_if(list.begin(), list.end(), is_option), list.end());
  return list_of(list);
}

// Takes what `ddhost compare` varies out of the words of its runs.
void settle_compare(RunWords& given, const std::vector<std::string>& strategies, const std::vector<std::string>& sizes,
                    Command command, CompareArgs& args) {
  args.strategies = names_of(strategies, given);
  args.sizes = names_of(sizes, given);
  for (size_t i = 0; i < kFlags.size(); ++i)
    if (std::string_view(kFlags[i].key) == "model.plugin") args.models = list_of({given.values[i]});
  args.has_default_out = args.out.empty();
  if (args.has_default_out) args.out = command == Command::kCompare ? "runs/compare" : "runs/tune";
  if (command == Command::kTune && (args.models.size() > 1 || !args.sizes.empty()))
    ddh::fail(DDH_INVALID_ARGUMENT, "tune takes one model; give one --model, and its size as model.size=");
  if (command == Command::kCompare && args.strategies.size() < 2)
    ddh::fail(DDH_INVALID_ARGUMENT, "compare needs two strategies or more; give for example --strategies A,B; ",
              "`ddhost list` shows them");
}

// "strategy" for "strategies".
std::string kind_of_list(const std::string& text) {
  constexpr std::array kKinds = {"strategy", "model",   "optimizer", "comm", "device",
                                 "schedule", "monitor", "format",    "codec"};
  std::vector<std::string> names;
  for (const std::string kind : kKinds) {
    names.push_back(kind);
    names.push_back(kind.ends_with('y') ? kind.substr(0, kind.size() - 1) + "ies" : kind + "s");
    if (text == kind || text == names.back()) return kind;
  }
  if (text == "transport" || text == "transports") return "comm";
  const std::string near = nearest(text, names);
  ddh::fail(DDH_INVALID_ARGUMENT, "list has no '", plain_text(text, kShownValue), "'",
            near.empty() ? "" : " (did you mean '" + near + "'?)",
            "; it takes strategies, models, optimizers, transports, devices, schedules, monitors, formats or codecs");
}

// The commands that look things up.
struct Lookups {
  CLI::App *list, *inspect, *explain, *completion;
};

CLI::App* add_inspect(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("inspect", "describe a plugin: its kind, needs and options");
  command->add_option("file", line.inspect_files, "path of the library, or its file name without .so");
  command->add_flag("--markdown", line.markdown,
                    "print the options of the host and of these files, or of all plugins, as a page of Markdown");
  command->add_flag("--json", line.json, "print JSON");
  return command;
}

Lookups add_lookups(CLI::App& app, CommandLine& line) {
  Lookups out{app.add_subcommand("list", "list the available plugins"), add_inspect(app, line),
              app.add_subcommand("explain", "say what an option or a plugin means and costs"),
              app.add_subcommand("completion", "print a script that completes words in a shell")};
  out.list->add_option("kind", line.list_kind, "strategies, models, optimizers ...; all without it");
  for (CLI::App* command : {out.list, out.explain}) command->add_flag("--json", line.json, "print JSON");
  out.explain
      ->add_option("key|plugin", line.explained, "a key, such as train.recompute, a section or the name of a plugin")
      ->required();
  out.completion->add_option("shell", line.completion.shell, "bash, zsh or fish")->required();
  return out;
}

// `train` may be left out, and `help COMMAND` is `COMMAND --help`. Refuses a command that there is none of.
std::vector<std::string> with_command(std::vector<std::string> words, const std::vector<CommandWords>& commands,
                                      const KindOfPlugin& kind_of) {
  if (!words.empty() && words[0] == "help") {
    while (!words.empty() && words[0] == "help") words.erase(words.begin());
    words.insert(words.begin() + (words.empty() ? 0 : 1), "--help");
    if (words.size() == 1) return words;
  }
  // A command with one action has the flags of that.
  const bool asks_of_command = words.size() == 2 && words[1] == "--help";
  for (const CommandWords& one : commands) {
    if (words.empty() || one.name != words[0] || one.actions.empty()) continue;
    if (asks_of_command && one.actions.size() == 1) words.insert(words.begin() + 1, one.actions.front());
    const bool has_action = words.size() > 1 && !words[1].starts_with('-');
    if (has_action && std::find(one.actions.begin(), one.actions.end(), words[1]) == one.actions.end())
      end_with_usage_error(unknown_action(words[1], one));
  }
  const bool is_word = !words.empty() && !words[0].starts_with('-') && words[0].find('=') == std::string::npos;
  std::vector<std::string> names;
  for (const CommandWords& command : commands) names.push_back(command.name);
  const bool is_command = is_word && std::find(names.begin(), names.end(), words[0]) != names.end();
  if (is_word && !is_command) end_with_usage_error(unknown_command(words[0], names, kind_of));
  const std::array<std::string, 3> own = {"-h", "--help", "--version"};
  const bool is_of_program = !words.empty() && std::find(own.begin(), own.end(), words[0]) != own.end();
  if (!is_command && !is_of_program) words.insert(words.begin(), "train");
  return words;
}

void finish_lookups(const Lookups& lookups, const CLI::App& app, CommandLine& line) {
  if (lookups.list->parsed()) line.command = Command::kList;
  if (lookups.inspect->parsed()) line.command = Command::kInspect;
  if (lookups.explain->parsed()) line.command = Command::kExplain;
  if (lookups.completion->parsed()) line.command = Command::kCompletion;
  line.completion.commands = words_of(app);
  try {
    if (!line.list_kind.empty()) line.list_kind = kind_of_list(line.list_kind);
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
}

CLI::App* add_convert(CLI::App& app, ConvertArgs& args, std::string& file, RunWords& to) {
  CLI::App* command = app.add_subcommand("convert", "print what a configuration file of another program means here");
  command->add_option("file", file, "the file; with --to a configuration file of ours");
  command->add_flag("--json", args.json,
                    "print everything as JSON: what each key became, what has no effect, what is refused");
  command->add_option("--keys", args.keys,
                      "print every key of this format, and what it means here, as a page of Markdown");
  command->add_option("--to", args.to, "write our configuration file for another program: the name of its format");
  for (size_t i = 0; i < kFlags.size(); ++i)
    if (kFlags[i].key == std::string_view("run.nproc"))
      command->add_option(kFlags[i].name, to.values[i], kFlags[i].help);
  command->add_option("key=value", to.words, "options of the configuration, which fill in what the file leaves open");
  return command;
}

CLI::App* add_doctor(CLI::App& app, RunWords& given, CommandLine& line) {
  CLI::App* command = add_run_command(app, "doctor", "measure the hosts of a run, and say what a run would choose",
                                      kPlans, given, line);
  command->add_flag("--json", line.doctor_json, "print everything as JSON");
  return command;
}

// `ddhost data peek` takes what `ddhost plan` takes.
CLI::App* add_peek(CLI::App& data, RunWords& given, CommandLine& line) {
  data.require_subcommand(1);
  CLI::App* command =
      add_run_command(data, "peek", "show samples of the data exactly as the model gets them", kPlans, given, line);
  add_peek_flags(*command, line.peek);
  return command;
}

std::vector<CLI::App*> add_batch_systems(CLI::App& app, RunWords& given, CommandLine& line) {
  std::vector<CLI::App*> commands;
  for (const BatchSystem& system : batch_systems()) {
    CLI::App* command =
        commands.emplace_back(add_run_command(app, system.name.c_str(), system.help.c_str(), kTrains, given, line));
    command
        ->add_option(kDirective, line.batch.directives, "a further line for the batch system, such as --partition=gpu")
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
    command->add_option(kCoresPerRank, line.batch.cores_per_rank,
                        "cores that a job asks for, for each rank; default: 1");
  }
  return commands;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const KindOfPlugin& kind_of) {
  CommandLine line;
  line.words.assign(argv + std::min(argc, 1), argv + argc);
  CLI::App app("ddhost trains a model on several ranks; strategy, model, optimizer and transport are plugins.",
               "ddhost");
  app.footer(kFooter);
  app.set_version_flag("--version", "ddhost " DDHOST_VERSION);
  app.require_subcommand(1);

  RunWords given;
  CLI::App* const data = app.add_subcommand("data", "look at the data of a training");
  std::vector<std::pair<CLI::App*, Command>> runs = {
      {add_run_command(app, "train", "train a model (the default command)", kTrains, given, line), Command::kTrain},
      {add_run_command(app, "eval", "evaluate a trained model", kEvaluates, given, line), Command::kEval},
      {add_run_command(app, "generate", "generate samples with a trained model", kGenerates, given, line),
       Command::kGenerate},
      {add_run_command(app, "plan", "print the memory that a training will take, without starting it", kPlans, given,
                       line),
       Command::kPlan},
      {add_run_command(app, "compare", "measure strategies side by side: speed, memory, bytes sent, losses", kCompares,
                       given, line),
       Command::kCompare},
      {add_run_command(app, "tune", "find the fastest strategy and micro-batch that fit into memory", kCompares, given,
                       line),
       Command::kTune},
      {add_run_command(app, "smoke", "try in a short run everything that a long one will do", kSmokes, given, line),
       Command::kSmoke},
      {add_doctor(app, given, line), Command::kDoctor},
      {add_peek(*data, given, line), Command::kPeek},
  };
  for (CLI::App* command : add_batch_systems(app, given, line)) runs.emplace_back(command, Command::kBatch);
  std::string memory, sizes;
  std::vector<std::string> compared, compared_sizes;
  for (const auto& [command, kind] : runs) {
    if (kind == Command::kPlan) add_plan_flags(*command, memory, sizes, line.planning);
    if (kind == Command::kCompare || kind == Command::kTune)
      add_compare_flags(*command, line.compare, compared, compared_sizes);
    if (kind == Command::kSmoke) {
      command->add_option("--out", line.compare.out, "folder of the runs; default: runs/smoke");
      command->add_flag("--json", line.json, "print JSON at the end");
    }
    if (kind == Command::kEval) command->add_flag("--json", line.json, "print the values as JSON");
    if (kind == Command::kTune)
      command->add_option("--memory", memory, "memory of each rank; default: its share of what is free");
  }
  const Lookups lookups = add_lookups(app, line);
  const CLI::App* const ckpt = add_ckpt(app, line.ckpt);
  const CLI::App* const exporting = add_export(app, line.exporting);
  const CLI::App* const of_runs = add_runs(app, line.runs);

  std::string converted;
  const CLI::App* const converting = add_convert(app, line.converting, converted, given);

  bool has_config = false;
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  try {
    take_foreign_words(arguments, line, app);
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
  arguments = with_command(std::move(arguments), words_of(app), kind_of);
  if (!arguments.empty() && arguments.front() == "compare") join_list(arguments, "--model");
  let_last_flag_count(app);
  line.is_bare = argc <= 1;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 reads them from the back
    require_values(app);
    for (const auto& [command, kind] : runs) {
      if (!command->parsed()) continue;
      line.command = kind;
      if (kind == Command::kCompare || kind == Command::kTune)
        settle_compare(given, compared, compared_sizes, kind, line.compare);
      if (kind == Command::kSmoke && line.compare.out.empty()) line.compare.out = "runs/smoke";
      if (kind == Command::kTune && command->count("--memory") > 0)
        line.compare.memory_bytes = *memory_from_flag(memory);
      line.overrides = collect(given, *command, line.given_for);
      if (kind == Command::kBatch) line.batch.system = command->get_name();
      has_config = command->count("--config") > 0;
      if (kind == Command::kPlan && command->count("--memory") > 0)
        line.planning.memory_bytes = memory_from_flag(memory);
      if (kind == Command::kPlan && command->count("--sizes") > 0) line.planning.sizes = sizes_from_flag(sizes);
    }
    if (converting->parsed()) line.overrides = collect(given, *converting, line.given_for);
  } catch (const CLI::CallForHelp&) {
    std::cout << fitted_help(app.help());
    throw CommandLineExit{0};
  } catch (const CLI::Success& wish) {
    throw CommandLineExit{app.exit(wish)};  // --version
  } catch (const CLI::ParseError& error) {
    end_with_usage_error(mistake_text(app, arguments, error));
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
  if (has_config && (given.config_file.empty() || given.config_file.find('=') != std::string::npos))
    end_with_usage_error("--config needs a file");
  line.config_file = given.config_file;
  finish_lookups(lookups, app, line);
  if (lookups.inspect->parsed() && !line.markdown && line.inspect_files.size() != 1)
    end_with_usage_error(line.inspect_files.empty() ? "inspect needs the path of a library; `ddhost list` shows plugins"
                                                    : "inspect describes one library; give one, or add --markdown");
  if (ckpt->parsed()) line.command = Command::kCkpt;
  if (exporting->parsed()) line.command = Command::kExport;
  if (of_runs->parsed()) line.command = Command::kRuns;
  if (converting->parsed()) {
    line.command = Command::kConvert;
    line.config_file = converted;
    if (converted.empty() && line.converting.keys.empty()) end_with_usage_error("convert needs a file, or --keys");
  }
  return line;
}

}  // namespace ddhost
