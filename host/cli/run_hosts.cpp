// SPDX-License-Identifier: Apache-2.0
#include "cli/run_hosts.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <thread>

#include "base/terminal.hpp"
#include "config/launchers.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"
#include "plan/load_guard.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

void require_hostfile(const Config& host) {
  const auto refuse = [](const char* key) {
    print_sentence(ddh::str(key, " chooses hosts of a hostfile, and there is none; give --hostfile FILE too"));
    throw CommandLineExit{2};
  };
  for (const char* key : {"launch.include", "launch.exclude"})
    if (!host.text(key).empty()) refuse(key);
  if (host.get<int64_t>("launch.num_nodes") > 1) refuse("launch.num_nodes");
}

fs::path base_of(const UserConfig& user, const std::string& key) {
  const Wish* const wish = user.find(key);
  return wish == nullptr || wish->base.empty() ? fs::current_path() : wish->base;
}

// The files of plugins that the configuration names. What is not found is left to the preparation of the run, and what is
// linked into the program has no file.
std::vector<std::string> plugin_files(const UserConfig& user, const Config& host, const Registry& registry,
                                      size_t n_hosts) {
  struct Role {
    int32_t kind;
    const char* key;
  };
  const bool is_auto = host.text("comm.plugin") == kAutoComm;
  std::vector<std::string> out;
  const auto add = [&](int32_t kind, const std::string& choice, const fs::path& base) {
    try {
      const Choice parts = parse_choice(choice);
      std::vector<fs::path> files;
      if (parts.is_path)
        files = {registry.locate(parts.file, base)};
      else if (!choice.empty())
        files = registry.files_of(kind, choice);
      for (const fs::path& file : files)
        if (std::find(out.begin(), out.end(), file.string()) == out.end()) out.push_back(file.string());
    } catch (const ddh::Error&) {  // the preparation says why
      return;
    }
  };
  for (const Role& role :
       {Role{DDH_KIND_MODEL, "model.plugin"}, Role{DDH_KIND_STRATEGY, "strategy.plugin"},
        Role{DDH_KIND_OPTIMIZER, "optimizer.plugin"}, Role{DDH_KIND_SCHEDULE, "schedule.type"},
        Role{DDH_KIND_COMM, is_auto ? "comm.inside" : "comm.plugin"},
        Role{DDH_KIND_COMM, is_auto && n_hosts > 1 ? "comm.between" : ""}, Role{DDH_KIND_DEVICE, "device.plugin"}})
    if (const Config::Value* const value = host.find(role.key); value != nullptr && value->value.is_string())
      add(role.kind, value->value.get<std::string>(), base_of(user, role.key));
  for (const std::string& monitor : host.get<std::vector<std::string>>("monitor.plugins"))
    add(DDH_KIND_MONITOR, monitor, base_of(user, "monitor.plugins"));
  return out;
}

// Files that the user gives as data, weights or options of the model, and that this host has.
std::vector<std::string> data_files(const UserConfig& user) {
  std::vector<std::string> out;
  for (const Wish& wish : user.wishes()) {
    const std::string section = wish.key.substr(0, wish.key.find('.'));
    const bool is_input = section == "data" || section == "model" || wish.key == "train.init_from";
    const std::string text = wish.value.is_string() ? wish.value.get<std::string>() : "";
    if (wish.replaced || !is_input || text.empty() || wish.key == "model.plugin") continue;
    std::error_code ec;
    const fs::path file = (wish.base.empty() ? fs::current_path() : wish.base) / text;
    if (fs::exists(file, ec)) out.push_back(file.lexically_normal().string());
  }
  return out;
}

std::vector<std::string> exported_names(const Config& host, const Registry& registry) {
  std::vector<std::string> names = exported_variables(registry.name_folders());
  for (const std::string& name : host.get<std::vector<std::string>>("launch.export")) names.push_back(name);
  return names;
}

bool are_able(const std::vector<SurveyedHost>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [](const SurveyedHost& one) { return one.problems.empty(); });
}

// The hosts of a run that starts again. They may need a moment, for example behind a network switch that was off, or to mount a
// disk. So all are asked again until they are `enough`, for at most launch.timeout. Throws JoinEnded.
std::vector<SurveyedHost> survey_until(SurveySettings settings, std::chrono::milliseconds timeout,
                                       const std::function<bool(const std::vector<SurveyedHost>&)>& are_enough) {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSlice{100}, kPause{1000}, kLeastPatience{5000};
  const SignalsWhileJoining waiting;
  const auto until = steady_clock::now() + timeout;
  for (bool is_first = true;; is_first = false) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
    settings.patience = std::clamp(left, std::min(kLeastPatience, settings.patience), settings.patience);
    std::vector<SurveyedHost> hosts = survey_hosts(settings, /*own_talk=*/false);
    if (are_enough(hosts) || steady_clock::now() + kPause >= until) return hosts;
    if (is_first) {
      for (const SurveyedHost& one : hosts)
        for (const std::string& problem : one.problems) print_sentence(problem);
      print_sentence(
          ddh::str("the hosts are asked again until ", timeout.count() / 1000, " s have passed (launch.timeout)"));
    }
    for (auto slept = kSlice; slept <= kPause; slept += kSlice) {
      std::this_thread::sleep_for(kSlice);
      waiting.require_no_signal();
    }
  }
}

// All that can be wrong with a host is said before a rank starts.
void require_able_hosts(const UserConfig& user, const Config& host, const Registry& registry, bool is_restart) {
  const SurveySettings settings = survey_settings(user, host, registry);
  // With launch.min_nodes a restart has waited for its hosts before (without_lost_hosts).
  constexpr std::chrono::milliseconds kOnceMore{10'000};
  const std::chrono::milliseconds timeout = time_of(host, "launch.timeout");
  const bool has_waited = host.get<int64_t>("launch.min_nodes") > 0;
  const std::vector<SurveyedHost> hosts =
      is_restart ? survey_until(settings, has_waited ? std::min(timeout, kOnceMore) : timeout, are_able)
                 : survey_hosts(settings, /*own_talk=*/false);
  if (!are_able(hosts) || !host.get<bool>("run.quiet"))
    std::cerr << table_of(hosts, terminal_columns(STDERR_FILENO)) << std::flush;
  for (const SurveyedHost& one : hosts)
    for (const std::string& problem : one.problems) print_sentence(problem);
  if (!are_able(hosts)) throw CommandLineExit{1};
}

}  // namespace

std::vector<Host> hosts_of(const Config& host) {
  const std::string& file = host.text("launch.hostfile");
  HostChoice choice{host.text("launch.include"), host.text("launch.exclude"),
                    static_cast<int>(host.get<int64_t>("launch.num_nodes")),
                    static_cast<int>(host.get<int64_t>("launch.nproc_per_node")), 0};
  if (const Json nproc = host.find("run.nproc")->value; !nproc.is_null()) choice.world_size = nproc.get<int>();
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  const ddh::InputFile in(file, {"hostfile", "write one line for each host: node1 slots=4"});
  return chosen_hosts(parse_hostfile(in.read(kMostBytes), file), choice);
}

SurveySettings survey_settings(const UserConfig& user, const Config& host, const Registry& registry) {
  SurveySettings settings;
  const bool has_hostfile = !host.text("launch.hostfile").empty();
  if (has_hostfile) settings.hosts = hosts_of(host);
  for (Host& one : settings.hosts) one.is_here = is_this_host(one.name);
  if (!has_hostfile) settings.hosts = {{host_name(), 0, true}};
  settings.ssh_config = host.text("launch.ssh_config");
  settings.values = environment_for_others(exported_names(host, registry));
  const std::string& run_dir = host.text("run.dir");
  settings.run_dir = run_dir.empty() ? fs::current_path() / "runs" : fs::path(run_dir);
  settings.plugins = plugin_files(user, host, registry, settings.hosts.size());
  settings.files = data_files(user);
  settings.known_problems = connection_texts(registry.name_folders());
  settings.patience = std::min(settings.patience, time_of(host, "launch.timeout"));
  return settings;
}

std::unique_ptr<Cluster> join_cluster(const CommandLine& line, const UserConfig& user, const Config& host,
                                      const Registry& registry, const std::shared_ptr<RemoteAgents>& agents) {
  ClusterSettings settings;
  std::optional<Placement> placement;
  if (line.agent_order) {
    placement = Placement{kSsh, line.agent_order->task, line.agent_order->n_tasks, false, "", ""};
    settings.meeting = line.agent_order->meeting;
  } else if (const std::string& file = host.text("launch.hostfile"); !file.empty()) {
    settings.hosts = hosts_of(host);
    if (agents == nullptr) require_able_hosts(user, host, registry, line.restarts > 0);
    settings.agents = agents;
    settings.ssh_config = host.text("launch.ssh_config");
    settings.words = line.words;
    settings.exported = exported_names(host, registry);
    placement = Placement{};
  } else {
    require_hostfile(host);
    placement = find_placement(launchers(registry.name_folders()), host.get<std::string>("launch.from"));
  }
  if (!placement) return nullptr;
  settings.rendezvous = host.get<std::string>("launch.rendezvous");
  settings.interface = host.get<std::string>("launch.interface");
  settings.ports = host.get<std::string>("launch.ports");
  settings.timeout = time_of(host, "launch.timeout");
  settings.heartbeat = time_of(host, "launch.heartbeat");
  if (const Json nproc = host.find("run.nproc")->value; !nproc.is_null()) settings.world_size = nproc.get<int>();
  return Cluster::join(*placement, settings);
}

bool has_cluster(const CommandLine& line, const Config& host, const Registry& registry) {
  return line.agent_order || !host.text("launch.hostfile").empty() ||
         find_placement(launchers(registry.name_folders()), host.get<std::string>("launch.from")).has_value();
}

namespace {

// The hosts that answer, and the others.
struct HostsLeft {
  int64_t all_ranks = 0, ranks = 0, n_hosts = 0;
  std::string lost, included;         // names; what launch.include takes
  std::vector<std::string> problems;  // of those that are lost
  bool are_ready = true;              // those that answer

  explicit HostsLeft(const std::vector<SurveyedHost>& hosts) {
    for (const SurveyedHost& one : hosts) {
      all_ranks += one.host.slots;
      const std::string name = one.host.name.substr(one.host.name.find('@') + 1);
      if (!one.facts) {
        lost += (lost.empty() ? "" : ", ") + name;
        problems.insert(problems.end(), one.problems.begin(), one.problems.end());
        continue;
      }
      are_ready = are_ready && one.problems.empty();
      ranks += one.host.slots;
      n_hosts += 1;
      std::string slots;
      for (int slot = 0; slot < one.host.slots; ++slot) slots += (slot == 0 ? ":" : ",") + std::to_string(slot);
      included += (included.empty() ? "" : "@") + name + slots;
    }
  }
};

}  // namespace

std::vector<Override> without_lost_hosts(const UserConfig& user, const Config& host, const Registry& registry) {
  const int64_t least = host.get<int64_t>("launch.min_nodes");
  if (least == 0 || host.text("launch.hostfile").empty()) return {};
  const auto accumulated_by_all = [&](const HostsLeft& left) {
    return host.get<int64_t>("train.grad_accum_steps") * left.all_ranks;
  };
  const HostsLeft left(survey_until(survey_settings(user, host, registry), time_of(host, "launch.timeout"),
                                    [&](const std::vector<SurveyedHost>& hosts) {
                                      const HostsLeft now(hosts);
                                      return now.are_ready &&
                                             (now.lost.empty() ||
                                              (now.n_hosts >= least && accumulated_by_all(now) % now.ranks == 0));
                                    }));
  if (left.lost.empty() || left.n_hosts < least) return {};
  const int64_t accumulated = accumulated_by_all(left), ranks = left.ranks;
  if (accumulated % ranks != 0) {
    print_sentence(
        ddh::str("without ", left.lost, " the ", ranks, " ranks that are left can't compute the ", accumulated,
                 " micro-batches of a step; the run needs all hosts, or a number of ranks that divides them"));
    return {};
  }
  for (const std::string& problem : left.problems) print_sentence(problem);
  print_sentence(ddh::str("without ", left.lost, " the run goes on with ", ranks, " ranks and train.grad_accum_steps=",
                          accumulated / ranks, ", so that a step has the same samples"));
  const char* const source = "launch.min_nodes";
  std::vector<Override> out = {{"launch.include", left.included, source},
                               {"launch.exclude", "", source},
                               {"launch.num_nodes", "0", source},
                               {"launch.nproc_per_node", "0", source},
                               {"run.nproc", std::to_string(ranks), source},
                               {"train.grad_accum_steps", std::to_string(accumulated / ranks), source}};
  if (left.n_hosts == 1 && host.get<int64_t>("checkpoint.memory_copies") > 1) {
    print_sentence("checkpoint.memory_copies is 1 from here on, because one host is left");
    out.push_back({"checkpoint.memory_copies", "1", source});
  }
  return out;
}

bool is_further_task(const Config& host, const Registry& registry) {
  if (!host.text("launch.hostfile").empty()) return false;
  const auto placement = find_placement(launchers(registry.name_folders()), host.get<std::string>("launch.from"));
  return placement && placement->task > 0;
}

void place_on_hosts(const Config& host, RunPlace& place) {
  if (host.text("launch.hostfile").empty()) return;
  const std::vector<Host> hosts = hosts_of(host);
  place.world_size = 0;
  for (const Host& one : hosts) place.world_size += one.slots;
  place.local_size = hosts.front().slots;
  place.ranks_of_hosts.clear();
  if (hosts.size() > 1)
    for (const Host& one : hosts) place.ranks_of_hosts.push_back(one.slots);
  place.has_other_launchers = hosts.size() > 1;
}

RunPlace place_of(const RunPlace& place, int world_size, const Config& host) {
  RunPlace out{.device = place.device, .world_size = world_size};
  place_on_hosts(host, out);
  return out;
}

}  // namespace ddhost
