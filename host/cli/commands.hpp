// SPDX-License-Identifier: Apache-2.0
//
// cli/commands.hpp: the commands of ddhost, each in its own file. All return the exit code.
#pragma once

#include <chrono>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/words/command_line.hpp"
#include "launch/launch.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct PreparedRun;
struct RunPlace;

inline constexpr const char* kStdoutFailed =
    "can't write to stdout; it is closed, its reader has ended or its disk is full";

// The output of a command can't be written.
struct DDH_HIDDEN OutputError : ddh::Error {
  OutputError() : ddh::Error(DDH_RESOURCE_EXHAUSTED, kStdoutFailed) {}
};

// `ddhost agent`: the command line that the head of a run on several hosts sends to this one. Sets the environment and the
// current folder.
CommandLine agent_command_line(std::istream& in);

// The next order, of a run that starts again; nullopt: none comes. Waits at most this time. [blocks]
std::optional<CommandLine> next_order(const CommandLine& line, std::chrono::milliseconds patience);

// The same command, asked about this host before a run.
int answer_as_agent(const CommandLine& line, const Registry& registry, std::istream& in, std::ostream& out);

// `ddhost doctor`: measures the hosts of a run and the ways between them, and says what a run would choose. Returns 1 if a run
// would be refused.
int examine_hosts(const CommandLine& line, Registry& registry, std::ostream& out);

// `ddhost NAME` for a batch system of the tables: prints a script that starts the run as a job.
int print_batch_script(const CommandLine& line, const Registry& registry, std::ostream& out);

// `ddhost train`, `ddhost eval`, `ddhost generate`: run a model on the ranks. With --dry-run they only print the effective
// configuration.
int run_model(const CommandLine& line, Registry& registry, std::ostream& out);

// `ddhost plan`: prints the memory of a training by tag, for one strategy or for all, and what fits. It starts no rank and
// allocates no tensor. Returns 1 if no strategy could be planned.
int plan_run(const CommandLine& line, Registry& registry, std::ostream& out);

// The same table for one prepared training; a sentence if it can't be planned. Called in the loader.
std::string planned_memory(const PreparedRun& run);

// `ddhost list [KIND]`: one line for every plugin, or for those of a kind ("strategy"). Libraries that can't be loaded come
// last, with the reason. Runs no code of a library in this process.
int list_plugins(const Registry& registry, std::ostream& out, const std::string& kind = "", bool as_json = false);

// `ddhost explain KEY|PLUGIN`: what it means and costs, what other programs call it, and an example. Error: there is none.
int explain(const Registry& registry, const std::string& word, bool as_json, std::ostream& out);

// `ddhost completion SHELL`: a script that completes commands, flags, keys, their values and names of plugins.
int print_completion(const Registry& registry, const CompletionArgs& args, std::ostream& out);

// `ddhost inspect`: everything about one file. `choice`: a path, or the name of a file in a plugin folder without .so. Runs no
// code of the file in this process. Also describes a file that can't be loaded, and returns 1 if this host can't use it.
int inspect_plugin(const Registry& registry, const std::string& choice, std::ostream& out, bool as_json = false);

// The file of such a choice, or Error.
std::filesystem::path inspected_file(const Registry& registry, const std::string& choice);

// `ddhost inspect --markdown`: the options of the host and of the plugins in these files as a page of Markdown. Without a
// choice: of all plugins that `ddhost list` shows. Error: a file can't be used.
int print_options_page(const Registry& registry, const std::vector<std::string>& choices, std::ostream& out);

// `ddhost ckpt`: lists, shows, verifies, compares, removes or imports checkpoints. Returns 1 if a checkpoint is damaged
// (verify) or two differ (diff).
int inspect_checkpoints(const CkptArgs& args, const Registry& registry, std::ostream& out);

// `ddhost convert`: what a configuration file of another program means here, or ours for another program. Returns 2 if
// something of it is refused.
int convert_file(const CommandLine& line, const Registry& registry, std::ostream& out);

// `ddhost convert --keys FORMAT`: every key of the other program's file, and what it means here, as a page of Markdown.
int print_foreign_page(const std::string& format, std::ostream& out);

// `ddhost export`: writes the weights of a checkpoint and lists the files.
int export_weights(const ExportArgs& args, std::ostream& out);

// `ddhost compare`: runs a training with each strategy, in alternating rounds, and prints the tables. The runs are children
// of this process. Returns 1 if a case has no values, 130 or 143 after a signal.
int compare_strategies(const CommandLine& line, const Registry& registry, std::ostream& out);

// `ddhost tune`: finds the fastest strategy, each with the largest micro-batch that fits, at the same samples per step.
int tune_run(const CommandLine& line, std::ostream& out);

// `ddhost smoke`: tries everything that a long run will do in a short one. Returns 0, the exit code of the part that failed, or
// 130 or 143 after a signal.
int smoke_run(const CommandLine& line, std::ostream& out);

// `ddhost data peek`: prints samples of a training's data as its model gets them, and writes images into PNG files. Starts one
// rank, which makes batches and computes nothing.
int peek_data(const CommandLine& line, Registry& registry);

// `ddhost runs`: lists, shows, plots, compares or removes runs. Loads no plugin. Returns 1 if the values of two runs differ
// (diff), or a run was not removed (rm).
int runs_command(const RunsArgs& args, std::ostream& out);

}  // namespace ddhost
