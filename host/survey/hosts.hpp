// SPDX-License-Identifier: Apache-2.0
//
// survey/hosts.hpp: asks all hosts of a run, before any rank starts, whether they can take part, and says which can't and why.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/launchers.hpp"
#include "launch/cluster/hostfile.hpp"
#include "survey/facts.hpp"
#include "survey/host_talk.hpp"

namespace ddhost {

struct SurveySettings {
  std::vector<Host> hosts;
  std::string ssh_config;
  std::map<std::string, std::string> values;  // of the environment, for the others
  std::filesystem::path run_dir;              // or the folder in which the run makes its own
  std::vector<std::string> plugins;           // files
  std::vector<std::string> files;             // data
  std::vector<ConnectionText> known_problems;
  std::chrono::milliseconds patience{30'000};
};

struct SurveyedHost {
  Host host;
  std::optional<Facts> facts;                      // nullopt: it was not reached
  std::string program = "same", plugins = "same";  // compared with those of this host, as a word
  double clock_s = 0;                              // its clock minus ours
  std::vector<std::string> problems;               // sentences: why it can't take part
  std::unique_ptr<HostTalk> talk;                  // goes on while it lives; null: this host, without a talk of its own
};

// Asks all at once. `own_talk`: this host has a talk too.
std::vector<SurveyedHost> survey_hosts(const SurveySettings& settings, bool own_talk);

// The answer to one more question, or its "problem".
Json ask(SurveyedHost& host, const Json& question);

// A row for each host. `columns`: of the terminal.
std::string table_of(const std::vector<SurveyedHost>& hosts, size_t columns);

}  // namespace ddhost
