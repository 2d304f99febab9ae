// SPDX-License-Identifier: Apache-2.0
//
// cli/words/command_line.hpp: the parsed command line.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/words/plan_args.hpp"
#include "cli/words/report_args.hpp"
#include "config/user_config.hpp"
#include "launch/cluster/remote_agents.hpp"

namespace ddhost {

enum class Command {
  kTrain,
  kEval,
  kGenerate,
  kPlan,
  kList,
  kInspect,
  kExplain,
  kCkpt,
  kExport,
  kCompletion,
  kRuns,
  kCompare,
  kTune,
  kSmoke,
  kPeek,
  kConvert,
  kDoctor,
  kBatch,
  kAnswer
};

enum class CkptAction { kList, kShow, kVerify, kDiff, kPrune, kImport };
struct CkptArgs {
  CkptAction action = CkptAction::kList;
  std::vector<std::filesystem::path> paths;  // one, for diff two
  // Of prune.
  std::optional<int64_t> keep_last, after;
  int64_t keep_every = 0;
  // Of import.
  std::filesystem::path like, out;
  std::string format = "auto", convert_memory = "auto";
  double watchdog_abort = 300;  // seconds
  bool json = false;
};

struct ExportArgs {
  std::filesystem::path checkpoint, folder;
  std::string max_shard_size = "5GB";
  std::string layout = "model";  // or a layout of the model (ddh_layout_desc)
};

// A command with its flags, "--strategy". Those of its actions, as of `runs plot`, are among them.
struct CommandWords {
  std::string name;
  std::vector<std::string> flags, actions;
  std::map<std::string, std::vector<std::string>> flags_of_action;
};
struct CompletionArgs {
  std::string shell;  // "bash", "zsh", "fish"
  std::vector<CommandWords> commands;
};

// A configuration file of another program.
struct ForeignChoice {
  std::filesystem::path file;
  std::string format;   // of its table; empty: what the file itself shows
  std::string version;  // of the other program; empty: the newest
};

// A word that is off: no file may say the contrary.
struct DeniedValue {
  std::string word, key, value;  // "--bf16 False"; ours
};

struct ConvertArgs {
  bool json = false;
  std::string to;    // format; empty: ours
  std::string keys;  // format of which all keys are printed; empty: a file is converted
};

// A script for a batch system.
struct BatchArgs {
  std::string system;                   // its name in the tables
  std::vector<std::string> directives;  // further lines for it
  int cores_per_rank = 1;
};
// Flags of these commands that no run has.
inline constexpr const char *kDirective = "--directive", *kCoresPerRank = "--cores-per-rank";

struct CommandLine {
  Command command = Command::kTrain;
  std::filesystem::path config_file;       // "" = none
  std::vector<Override> overrides;         // flags and key=value; later ones win
  std::vector<std::string> inspect_files;  // one, but with `markdown` any number
  bool markdown = false;                   // of inspect
  std::string list_kind;                   // of list: "strategy"; "": all
  std::string explained;                   // of explain: a key or the name of a plugin
  CompletionArgs completion;
  bool json = false;     // of list, inspect, explain and smoke
  bool is_bare = false;  // nothing was given
  bool dry_run = false;
  bool fit = false;                       // of train: makes a run fit into memory
  std::vector<std::string> words;         // as given, for other hosts
  int restarts = 0;                       // of this run after failures
  std::optional<AgentOrder> agent_order;  // of a process that another host has started over SSH
  std::shared_ptr<const Fd> orders;       // of such a process: from here comes a further one
  std::string first_question;             // of a process that is asked about its host
  bool doctor_json = false;
  BatchArgs batch;
  PlanArgs planning;
  PeekArgs peek;
  std::vector<ForeignChoice> foreign;
  std::string compat_version;       // of the other program: "0.18"
  std::string compat_format;        // of that program's files; empty: no version is given
  std::vector<std::string> unused;  // sentences: words of other programs without effect
  std::vector<DeniedValue> denied;
  std::map<std::string, std::string> given_for;  // by word of ours, the flag of another program that stood for it
  ConvertArgs converting;
  CkptArgs ckpt;
  ExportArgs exporting;
  RunsArgs runs;
  CompareArgs compare;
};

// Thrown to end the program: --help and --version with exit code 0, a mistake with 2. The text is already printed.
struct CommandLineExit {
  int code;
};

// "model" for "gpt": the kind of the plugin of this name; "": there is none.
using KindOfPlugin = std::function<std::string(const std::string&)>;
// Throws CommandLineExit. `kind_of`: for the mistake of a plugin's name in place of a command.
CommandLine parse_command_line(int argc, const char* const* argv, const KindOfPlugin& kind_of = {});

}  // namespace ddhost
