// SPDX-License-Identifier: Apache-2.0
//
// cli/batch_script.cpp: a script that starts a run as a job. The tables of other programs' names hold its lines.
#include <algorithm>
#include <filesystem>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/user_files.hpp"
#include "config/launchers.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/remote_agents.hpp"

namespace ddhost {
namespace {

void replace(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

// The words of the command line without the command and without those that place the job.
std::vector<std::string> words_of_run(const std::vector<std::string>& words) {
  const std::vector<std::string> flags = {kDirective, kCoresPerRank, "--nproc", "--num-nodes", "--nproc-per-node"};
  const std::vector<std::string> keys = {"run.nproc=", "launch.num_nodes=", "launch.nproc_per_node="};
  std::vector<std::string> out;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto begins = [&](const std::string& key) { return word.starts_with(key); };
    const bool has_value = word.find('=') != std::string::npos;
    if (std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) != flags.end())
      i += has_value ? 0 : 1;
    else if (word != "--dry-run" && std::none_of(keys.begin(), keys.end(), begins))  // the job itself trains
      out.push_back(word);
  }
  return out;
}

struct JobSize {
  int64_t hosts, ranks_per_host;
};

JobSize size_of_job(const Config& host) {
  const int64_t hosts = std::max<int64_t>(1, host.get<int64_t>("launch.num_nodes"));
  const int64_t per_host = host.get<int64_t>("launch.nproc_per_node");
  const Json given = host.find("run.nproc")->value;
  const int64_t ranks = !given.is_null() ? given.get<int64_t>() : hosts * std::max<int64_t>(1, per_host);
  if (ranks % hosts != 0 || (per_host > 0 && ranks != hosts * per_host))
    ddh::fail(DDH_INVALID_ARGUMENT, "--nproc ", ranks, " can't be divided equally among ", hosts,
              per_host > 0 ? ddh::str(" hosts with ", per_host, " ranks each") : " hosts", "; give a multiple of ",
              hosts, ", or leave it out");
  require_possible(ranks);
  return {hosts, ranks / hosts};
}

// The command of a job, for a shell. A job that is started again goes on.
std::string command_of_job(const CommandLine& line, const Config& host, const JobSize& size,
                           const std::string& run_dir) {
  std::string command = quoted(own_program());
  for (const std::string& word : words_of_run(line.words)) command += " " + quoted(word);
  command += ddh::str(" --nproc ", size.hosts * size.ranks_per_host);
  if (host.text("run.dir").empty() && host.text("run.name").empty()) command += " \"run.dir=" + run_dir + "\"";
  if (host.find("run.resume")->source == "default") command += " --resume auto";
  return command;
}

}  // namespace

int print_batch_script(const CommandLine& line, const Registry& registry, std::ostream& out) {
  const UserConfig user = read_user_files(line, line.overrides, registry).user;
  const Config host(user, run_sections(user), /*plugin_sections=*/false);
  if (!host.text("launch.hostfile").empty())
    ddh::fail(DDH_INVALID_ARGUMENT,
              "a job gets its hosts from the batch system; leave --hostfile out, and give --num-nodes");
  if (line.batch.cores_per_rank < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "--cores-per-rank is ", line.batch.cores_per_rank, "; give 1 or more");
  const JobSize size = size_of_job(host);
  if (host.get<int64_t>("checkpoint.every") == 0 && !host.get<bool>("checkpoint.on_exit"))
    print_sentence(
        "warning: the run saves no checkpoints, so a job that is started again begins anew; give checkpoint.every");
  for (const BatchSystem& system : batch_systems()) {
    if (system.name != line.batch.system) continue;
    for (const std::string& written : system.script) {
      const bool is_repeated = written.find("{directive}") != std::string::npos;
      for (size_t i = 0; i < (is_repeated ? line.batch.directives.size() : 1); ++i) {
        std::string text = written;
        if (is_repeated) replace(text, "{directive}", line.batch.directives[i]);
        replace(text, "{name}", host.text("run.name").empty() ? "ddhost" : host.text("run.name"));
        replace(text, "{folder}", std::filesystem::current_path().string());
        replace(text, "{hosts}", std::to_string(size.hosts));
        replace(text, "{cores}", std::to_string(size.ranks_per_host * line.batch.cores_per_rank));
        replace(text, "{command}", command_of_job(line, host, size, system.run_dir));
        out << text << '\n';
      }
    }
  }
  if (!out.flush()) throw OutputError();
  return 0;
}

}  // namespace ddhost
