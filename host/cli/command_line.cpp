// SPDX-License-Identifier: Apache-2.0
//
// cli/command_line.cpp: flags and commands on CLI11.
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.hpp"
#include "cli/foreign_words.hpp"
#include "config/host_schema.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

// Commands that a flag belongs to.
constexpr unsigned kTrains = 1, kEvaluates = 2, kGenerates = 4, kPlans = 8, kAll = 15;

struct Flag {
  const char* name;
  const char* key;  // of the config
  const char* help;
  unsigned commands = kAll;
};

constexpr std::array<Flag, 20> kFlags = {{
    {"--strategy", "strategy.plugin", "strategy: a name (ddhost list), a path, or path.so:id"},
    {"--model", "model.plugin", "model, as above"},
    {"--optimizer", "optimizer.plugin", "optimizer, as above", kTrains | kPlans},
    {"--schedule", "schedule.type", "learning-rate schedule, as above", kTrains | kPlans},
    {"--comm", "comm.plugin", "transport between the ranks, as above"},
    {"--device", "device.plugin", "device of the ranks: auto (devices that are present, or the CPU), or as above"},
    {"--monitor", "monitor.plugins", "monitors that record the run, separated by commas", kTrains},
    {"--nproc", "run.nproc", "number of ranks; default: one for each device that is present, or 2"},
    {"--ranks-per-node", "run.ranks_per_node", "simulate nodes with this number of ranks each"},
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

constexpr const char* kFooter = R"(Commands:
  ddhost [train] [flags] [key=value ...]   train a model (the default command)
  ddhost eval --weights FILE [...]         print the metrics of a trained model over all samples
  ddhost generate --weights FILE [...]     print text or other samples of a trained model
  ddhost plan [flags] [key=value ...]      print the memory that a training will take, without starting it
  ddhost list                              list the available plugins
  ddhost inspect FILE.so                   describe a plugin: its kind, needs and options
  ddhost inspect --markdown                print all options of the host and of all plugins
  ddhost ckpt ACTION                       ls, show, verify, diff, prune or import checkpoints (ddhost ckpt --help)
  ddhost convert FILE                      print what a configuration file of another program means here
  ddhost export CHECKPOINT FOLDER          write the weights of a checkpoint as safetensors files

Every key of the configuration can be given as key=value: train.steps=100 optimizer.lr=3e-4 run.dir=runs/first
`ddhost --dry-run` prints all keys with their values, and `ddhost train --help` prints the flags.)";

// `train` may be left out.
std::vector<std::string> with_command(std::vector<std::string> words) {
  const std::array<std::string, 12> first = {"train", "eval",   "generate", "plan", "list",   "inspect",
                                             "ckpt",  "export", "convert",  "-h",   "--help", "--version"};
  if (words.empty() || std::find(first.begin(), first.end(), words[0]) == first.end())
    words.insert(words.begin(), "train");
  return words;
}

[[noreturn]] void end_with_usage_error(const std::string& sentence) {
  print_sentence(plain_text(sentence) + "; see `ddhost --help`");
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

// Whether a command has the flag that `word` is, or with which it begins before '='.
bool is_flag(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const auto options = command.get_options();
  return name.starts_with("--") && std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
           return option->check_lname(name.substr(2));
         });
}

// The parser takes any word as the value of a flag, also the next flag. A file of such a name can be given as ./--name.
void require_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (!option->get_lnames().empty() && option->get_expected_min() > 0 && is_flag(app, value))
        ddh::fail(DDH_INVALID_ARGUMENT, "--", option->get_lnames().front(), " has no value before '", value,
                  "'; give one");
  for (const CLI::App* command : app.get_subcommands()) require_values(*command);
}

bool takes_list(const Flag& flag) {
  const std::string_view key = flag.key;
  return key == "monitor.plugins" || key == "run.resume_allow";
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
  if (command != kPlans) added->add_flag("--dry-run", line.dry_run, "print the effective configuration and stop");
  if (command == kTrains)
    added->add_flag("--fit", line.fit,
                    "if the run does not fit into memory, take the nearest change with which it does");
  added->add_option("key=value", to.words, "options of the configuration");
  return added;
}

std::vector<Override> collect(const RunWords& given, const CLI::App& command) {
  std::vector<Override> overrides;
  for (const std::string& word : given.words) {
    check_utf8(word.substr(0, word.find('=')), word);
    overrides.push_back(parse_override(word));
  }
  // Flags win over key=value arguments.
  for (size_t i = 0; i < kFlags.size(); ++i) {
    if (command.get_option_no_throw(kFlags[i].name) == nullptr || command.count(kFlags[i].name) == 0) continue;
    check_flag_value(kFlags[i].name, given.values[i]);
    check_utf8(kFlags[i].name, given.values[i]);
    overrides.push_back({kFlags[i].key, option_text(kFlags[i], given.values[i]), kFlags[i].name});
  }
  return overrides;
}

// A check of an option's text: an integer of 64 bits, `least` or more.
std::function<std::string(const std::string&)> at_least(int64_t least) {
  return [least](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return "'" + plain_text(text, kShownValue) + "' has more than 64 bits";
    if (error != std::errc{} || end != text.data() + text.size())
      return "'" + plain_text(text, kShownValue) + "' is no integer";
    return value < least ? ddh::str(value, " is less than ", least) : "";
  };
}

// The flags of `ddhost plan` that no run has.
void add_plan_flags(CLI::App& plan, std::string& memory, std::string& sizes, PlanArgs& args) {
  plan.add_flag("--all-strategies", args.all_strategies, "plan every strategy that `ddhost list` shows");
  plan.add_option("--sizes", sizes, "sizes of the model (model.size), separated by commas, or all");
  plan.add_option("--memory", memory, "memory of each rank: 80GiB; says which strategies fit");
  plan.add_flag("--json", args.json, "print the plan as JSON, in bytes");
}

// A number alone would be bytes, which nobody means here.
std::optional<uint64_t> memory_of(const std::string& text) {
  const std::optional<uint64_t> bytes = bytes_from_text(text);
  if (bytes && *bytes > 0 && text.find_first_not_of("0123456789.") != std::string::npos) return bytes;
  ddh::fail(DDH_INVALID_ARGUMENT, "--memory '", plain_text(text, kShownValue), "' is not a size with a unit; ",
            "give for example 80GiB, with KB, MB, GB, TB, KiB, MiB, GiB or TiB");
}

// Each once.
std::vector<std::string> sizes_of(const std::string& text) {
  std::vector<std::string> sizes;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t begin = item.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    item = item.substr(begin, item.find_last_not_of(' ') - begin + 1);
    if (std::find(sizes.begin(), sizes.end(), item) == sizes.end()) sizes.push_back(item);
  }
  const bool has_all = std::find(sizes.begin(), sizes.end(), "all") != sizes.end();
  if (sizes.empty() || (has_all && sizes.size() > 1))
    ddh::fail(DDH_INVALID_ARGUMENT, "--sizes '", plain_text(text, kShownValue),
              "' names no sizes; give names separated by commas, or all alone");
  return sizes;
}

CLI::App* add_inspect(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("inspect", "describe a plugin: its kind, needs and options");
  command->add_option("file", line.inspect_files, "path of the library, or its file name without .so");
  command->add_flag("--markdown", line.markdown,
                    "print the options of the host and of these files, or of all plugins, as a page of Markdown");
  return command;
}

// `ddhost ckpt ...`; the action is set when its subcommand is parsed.
CLI::App* add_ckpt(CLI::App& app, CkptArgs& args) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "list, show, verify, compare, remove or import checkpoints");
  ckpt->require_subcommand(1);
  const auto add = [&](CkptAction action, const char* name, const char* help, const char* what, int paths) {
    CLI::App* sub = ckpt->add_subcommand(name, help);
    sub->add_option("path", args.paths, what)->required()->expected(paths);
    sub->callback([&args, action] { args.action = action; });
    return sub;
  };
  add(CkptAction::kList, "ls", "list the checkpoints of a run", "folder of the run", 1);
  add(CkptAction::kShow, "show", "show the contents of a checkpoint",
      "folder of a checkpoint, or of a run for its newest", 1);
  add(CkptAction::kVerify, "verify",
      "read every byte and compare the checksums; exit code 1 if a checkpoint is damaged, or holds values from which "
      "no "
      "run can go on",
      "folder of a checkpoint, or of a run", 1);
  add(CkptAction::kDiff, "diff",
      "show which tensors of two checkpoints differ, and by how much; exit code 1 if any does",
      "folders of checkpoints, or of runs for their newest", 2);
  CLI::App* prune = add(CkptAction::kPrune, "prune", "remove checkpoints of a run", "folder of the run", 1);
  prune->add_option("--keep-last", args.keep_last, "number of newest checkpoints to keep")->check(at_least(1));
  prune->add_option("--keep-every", args.keep_every, "also keep checkpoints whose step is a multiple of this")
      ->check(at_least(0));
  prune->add_option("--after", args.after, "remove those of later steps than this")->check(at_least(0));
  CLI::App* import =
      add(CkptAction::kImport, "import", "convert a checkpoint that another program wrote, with its optimizer state",
          "folder that the other program wrote", 1);
  import
      ->add_option(
          "--like", args.like,
          "checkpoint of the run to continue, or that run's folder; the new one is this with the imported values")
      ->required();
  import->add_option("--out", args.out, "folder of a run, in which the checkpoint is made")->required();
  import->add_option("--format", args.format, "plugin that reads the folder: auto, name, path or path:id");
  import->add_option("--convert-memory", args.convert_memory,
                     "most memory of the process that reads it: 8GiB; auto: a quarter of the machine's");
  import->add_option("--watchdog-abort", args.watchdog_abort, "longest call of the format, in seconds; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
  return ckpt;
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

CLI::App* add_export(CLI::App& app, ExportArgs& args) {
  CLI::App* command = app.add_subcommand("export", "write the weights of a checkpoint as safetensors files");
  command->add_option("checkpoint", args.checkpoint, "folder of a checkpoint, or of a run for its newest")->required();
  command->add_option("folder", args.folder, "where the files go")->required();
  command->add_option("--max-shard-size", args.max_shard_size, "largest file: 5GB, 500MiB");
  command->add_option("--layout", args.layout,
                      "how linear weights are stored: model, or as the program does that is to open them; "
                      "`ddhost ckpt show` lists the layouts of a checkpoint");
  return command;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app("ddhost trains a model on several ranks; strategy, model, optimizer and transport are plugins.",
               "ddhost");
  app.footer(kFooter);
  app.set_version_flag("--version", "ddhost " DDHOST_VERSION);
  app.require_subcommand(1);

  RunWords given;
  const std::array<std::pair<CLI::App*, Command>, 4> runs = {{
      {add_run_command(app, "train", "train a model (the default command)", kTrains, given, line), Command::kTrain},
      {add_run_command(app, "eval", "evaluate a trained model", kEvaluates, given, line), Command::kEval},
      {add_run_command(app, "generate", "generate samples with a trained model", kGenerates, given, line),
       Command::kGenerate},
      {add_run_command(app, "plan", "print the memory that a training will take, without starting it", kPlans, given,
                       line),
       Command::kPlan},
  }};
  std::string memory, sizes;
  add_plan_flags(*runs.back().first, memory, sizes, line.planning);
  CLI::App* list = app.add_subcommand("list", "list the available plugins");
  const CLI::App* const inspect = add_inspect(app, line);
  const CLI::App* const ckpt = add_ckpt(app, line.ckpt);
  const CLI::App* const exporting = add_export(app, line.exporting);
  std::string converted;
  const CLI::App* const converting = add_convert(app, line.converting, converted, given);

  bool has_config = false;
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  try {
    take_foreign_words(arguments, line);
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
  arguments = with_command(std::move(arguments));
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads them from the back
  try {
    app.parse(arguments);
    require_values(app);
    for (const auto& [command, kind] : runs) {
      if (!command->parsed()) continue;
      line.command = kind;
      line.overrides = collect(given, *command);
      has_config = command->count("--config") > 0;
      if (kind == Command::kPlan && command->count("--memory") > 0) line.planning.memory_bytes = memory_of(memory);
      if (kind == Command::kPlan && command->count("--sizes") > 0) line.planning.sizes = sizes_of(sizes);
    }
    if (converting->parsed()) line.overrides = collect(given, *converting);
  } catch (const CLI::Success& wish) {
    throw CommandLineExit{app.exit(wish)};  // --help, --version
  } catch (const CLI::ParseError& error) {
    if (ckpt->parsed() && ckpt->get_subcommands().empty())
      end_with_usage_error("ckpt needs an action: ls, show, verify, diff, prune or import");
    if (ckpt->parsed() && ckpt->get_subcommands().front()->get_name() == "diff" &&
        error.get_name() == "ArgumentMismatch")
      end_with_usage_error("ckpt diff compares two checkpoints; give two folders");
    end_with_usage_error(error.what());
  } catch (const ddh::Error& error) {
    end_with_usage_error(error.what());
  }
  if (has_config && (given.config_file.empty() || given.config_file.find('=') != std::string::npos))
    end_with_usage_error("--config needs a file");
  line.config_file = given.config_file;
  if (list->parsed()) line.command = Command::kList;
  if (inspect->parsed()) line.command = Command::kInspect;
  if (inspect->parsed() && !line.markdown && line.inspect_files.size() != 1)
    end_with_usage_error(line.inspect_files.empty() ? "inspect needs the path of a library; `ddhost list` shows plugins"
                                                    : "inspect describes one library; give one, or add --markdown");
  if (ckpt->parsed()) line.command = Command::kCkpt;
  if (exporting->parsed()) line.command = Command::kExport;
  if (converting->parsed()) {
    line.command = Command::kConvert;
    line.config_file = converted;
    if (converted.empty() && line.converting.keys.empty()) end_with_usage_error("convert needs a file, or --keys");
  }
  return line;
}

}  // namespace ddhost
