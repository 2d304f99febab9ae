// SPDX-License-Identifier: Apache-2.0
//
// cli/doctor.cpp: `ddhost doctor`.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ostream>

#include "base/child_process.hpp"
#include "base/table.hpp"
#include "base/terminal.hpp"
#include "cli/commands.hpp"
#include "cli/run_hosts.hpp"
#include "cli/user_files.hpp"
#include "config/replaced.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/proof.hpp"
#include "plan/prepare.hpp"

namespace ddhost {
namespace {

// One way between two hosts, by their places in the list.
struct Way {
  size_t from, to;
  Json answer;  // of the measurement
};

struct Examination {
  std::vector<SurveyedHost> hosts;
  std::vector<Json> devices, writes;  // of each host
  std::vector<Way> ways;
  Json run;                           // what a run would choose
  std::vector<std::string> problems;  // why it would be refused
};

// The second host listens. It is this host, if one of both is: then the address of the other is known.
Way measured_way(Examination& of, size_t from, size_t to, const Config& host) {
  if (of.hosts[from].host.is_here) std::swap(from, to);
  SurveyedHost &client = of.hosts[from], &server = of.hosts[to];
  const std::string token = Token::make().hex();
  const Json at = ask(server, {{"listen",
                                {{"interface", server.host.is_here ? host.text("launch.interface") : ""},
                                 {"toward", address_of_host(client.host.name, host.text("launch.ssh_config"))},
                                 {"ports", host.text("launch.ports")},
                                 {"token", token}}}});
  if (!at.is_string()) return {from, to, at};
  return {from, to, ask(client, {{"measure", {{"at", at}, {"token", token}}}})};
}

void measure(Examination& of, const Config& host, const std::string& run_dir) {
  for (SurveyedHost& one : of.hosts) {
    const bool is_reached = one.facts.has_value();
    of.devices.push_back(is_reached ? ask(one, {{"devices", true}}) : Json());
    of.writes.push_back(is_reached ? ask(one, {{"write", existing_folder(run_dir).string()}}) : Json());
    if (of.writes.back().is_object())
      of.problems.push_back("host " + one.host.name +
                            ": run.dir: " + of.writes.back().at("problem").get<std::string>());
  }
  for (size_t from = 0; from < of.hosts.size(); ++from)
    for (size_t to = from + 1; to < of.hosts.size(); ++to) {
      if (!of.hosts[from].facts || !of.hosts[to].facts) continue;
      const Way& way = of.ways.emplace_back(measured_way(of, from, to, host));
      if (way.answer.contains("problem"))
        of.problems.push_back("host " + of.hosts[way.from].host.name + " does not reach host " +
                              of.hosts[way.to].host.name + ": " + way.answer.at("problem").get<std::string>() +
                              "; open the ports between them (launch.ports), or set launch.interface");
    }
}

// In a child, because it loads the plugins.
std::string choices_of(const CommandLine& line, Registry& registry) {
  Json out;
  try {
    UserConfig user = read_user_files(line, line.overrides, registry).user;
    static_cast<void>(replace_excluded_options(user));
    const Config host(user, run_sections(user), /*plugin_sections=*/false);
    RunPlace place = choose_place(user, registry);
    place_on_hosts(host, place);
    const PreparedRun run = prepare_run(std::move(user), registry, place);
    out = {{"model", run.model.id()},         {"strategy", run.strategy.id()},
           {"transport", run.transports()},   {"device", run.device.id()},
           {"hosts", run.n_hosts()},          {"ranks", run.world_size},
           {"run_dir", run.run_dir.string()}, {"threads_per_rank", run.threads_per_rank}};
  } catch (const std::exception& error) {
    out = {{"problem", sentence_of(error)}};
  }
  return json_line(out);
}

Json choices(const CommandLine& line, Registry& registry) {
  constexpr std::chrono::seconds kForDryRun{60};
  ChildProcess child("to prepare the run", [&] { return choices_of(line, registry); });
  const std::optional<std::string> answer = child.answer(ChildProcess::Clock::now() + kForDryRun);
  if (!answer) return {{"problem", "the preparation of the run ended without an answer; start the run to see why"}};
  return read_json(*answer);
}

std::string rate_text(const Json& bytes_per_s) {
  return bytes_per_s.is_number() ? bytes_text(static_cast<uint64_t>(bytes_per_s.get<double>())) + "/s" : "-";
}

std::string devices_text(const Json& devices) {
  std::string text;
  if (!devices.is_array()) return "-";
  for (const Json& device : devices)
    if (device.at("present") != 0)
      text += (text.empty() ? "" : ", ") +
              ddh::str(device.at("present").get<int>(), " ", device.at("plugin").get<std::string>());
  return text.empty() ? "none" : text;
}

void print_hosts(const Examination& of, std::ostream& out) {
  const size_t columns = terminal_columns(STDOUT_FILENO);
  if (of.hosts.size() > 1 || !of.hosts.front().host.is_here) out << table_of(of.hosts, columns) << '\n';
  FittedTable table({"host", "cores", "memory", "free", "devices", "open files", "locked memory", "writes"});
  for (size_t i = 0; i < of.hosts.size(); ++i) {
    const SurveyedHost& host = of.hosts[i];
    if (!host.facts) continue;
    table.add({host.host.name, std::to_string(host.facts->cores), bytes_text(host.facts->memory),
               bytes_text(host.facts->free_memory), devices_text(of.devices[i]), std::to_string(host.facts->open_files),
               host.facts->locked_memory, rate_text(of.writes[i])});
  }
  out << table.text(columns);
  if (of.ways.empty()) return;
  FittedTable ways({"from", "to", "round trip", "rate"});
  for (const Way& way : of.ways) {
    const bool is_measured = way.answer.contains("round_trip_s");
    ways.add({of.hosts[way.from].host.name, of.hosts[way.to].host.name,
              is_measured ? ddh::str(std::lround(way.answer.at("round_trip_s").get<double>() * 1e6), " us") : "-",
              rate_text(is_measured ? way.answer.at("bytes_per_s") : Json())});
  }
  out << '\n' << ways.text(columns);
}

void print_run(const Json& run, std::ostream& out) {
  if (run.contains("problem")) return;
  const auto text = [&](const char* key) { return run.at(key).get<std::string>(); };
  out << "\n  a run here: model " << text("model") << ", strategy " << text("strategy") << ", "
      << counted(run.at("ranks").get<uint64_t>(), "rank") << " on " << counted(run.at("hosts").get<uint64_t>(), "host")
      << ", transport " << text("transport") << ", device " << text("device") << ", "
      << counted(run.at("threads_per_rank").get<uint64_t>(), "thread") << " for each rank\n"
      << "  its folder: " << text("run_dir") << '\n';
}

Json json_of(const Examination& of) {
  Json hosts = Json::array(), ways = Json::array();
  for (size_t i = 0; i < of.hosts.size(); ++i) {
    const SurveyedHost& host = of.hosts[i];
    Json& one =
        hosts.emplace_back(Json{{"name", host.host.name}, {"ranks", host.host.slots}, {"is_here", host.host.is_here}});
    one["is_reached"] = host.facts.has_value();
    if (!host.facts) continue;
    one.update(to_json(*host.facts));
    one["clock_s"] = host.clock_s;
    one["devices"] = of.devices[i];
    one["write_bytes_per_s"] = of.writes[i];
  }
  for (const Way& way : of.ways) {
    ways.push_back({{"from", of.hosts[way.from].host.name}, {"to", of.hosts[way.to].host.name}});
    ways.back().update(way.answer);
  }
  return {{"hosts", hosts},
          {"ways", ways},
          {"run", of.run},
          {"problems", of.problems},
          {"would_start", of.problems.empty()}};
}

}  // namespace

int examine_hosts(const CommandLine& line, Registry& registry, std::ostream& out) {
  UserConfig user = read_user_files(line, line.overrides, registry).user;
  static_cast<void>(replace_excluded_options(user));
  const Config host(user, run_sections(user), /*plugin_sections=*/false);
  const SurveySettings settings = survey_settings(user, host, registry);
  Examination of;
  of.hosts = survey_hosts(settings, /*own_talk=*/true);
  for (const SurveyedHost& one : of.hosts)
    of.problems.insert(of.problems.end(), one.problems.begin(), one.problems.end());
  measure(of, host, settings.run_dir.string());
  of.run = choices(line, registry);
  if (of.run.contains("problem")) of.problems.push_back(of.run.at("problem").get<std::string>());
  if (line.doctor_json) {
    out << json_document(json_of(of));
  } else {
    print_hosts(of, out);
    print_run(of.run, out);
  }
  if (!out.flush()) throw OutputError();
  for (const std::string& problem : of.problems) print_sentence(problem);
  return of.problems.empty() ? 0 : 1;
}

}  // namespace ddhost
