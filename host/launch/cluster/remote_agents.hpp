// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/remote_agents.hpp: agents on other hosts that this process starts over SSH. The remote command is this
// program, by the same path, and the word `agent`. All else goes to its stdin, because others can see the arguments and the
// environment of a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "launch/cluster/hostfile.hpp"
#include "launch/cluster/rendezvous.hpp"
#include "launch/kv.hpp"

namespace ddhost {

// What an agent gets on its stdin, as one line of JSON.
struct AgentOrder {
  Meeting meeting;
  int task = 0, n_tasks = 0;
  std::filesystem::path folder;               // current folder
  std::vector<std::string> words;             // of the command line
  std::map<std::string, std::string> values;  // of the environment
};
Json to_json(const AgentOrder& order);
AgentOrder agent_order(const Json& json);

// An agent whose run is to start again waits for another order on its stdin. It ends when its stdin is closed.
class RemoteAgents {
 public:
  struct Agent {
    std::string host;
    AgentOrder order;
  };
  // `ssh_config`: the file for ssh -F, or "". `heartbeat`: of the run; an ssh whose host is silent three times as long ends.
  RemoteAgents(const std::vector<Agent>& agents, const std::string& ssh_config, std::chrono::milliseconds heartbeat);
  // The next orders of agents that wait for one. ended() names an ssh that has ended meanwhile. Error: these are not their
  // hosts.
  void order_again(const std::vector<Agent>& agents);
  RemoteAgents(const RemoteAgents&) = delete;
  RemoteAgents& operator=(const RemoteAgents&) = delete;
  // Ends what is left of the ssh processes.
  ~RemoteAgents();

  struct Ended {
    std::string sentence;
    int signal = 0;  // SIGINT, SIGTERM or SIGHUP, if that ended the agent
  };
  // The first ssh that has ended since the last call; nullopt: all run.
  [[nodiscard]] std::optional<Ended> ended();
  // In a child: they belong to another process.
  void forget() { processes_.clear(); }

 private:
  RemoteAgents() = default;

  struct Process {
    pid_t pid;
    std::string host;
    Fd orders;  // its stdin
  };
  std::vector<Process> processes_;
};

// One word for a shell.
std::string quoted(const std::string& text);
// The words that start an agent on a host. `alive`: options of ssh about hosts that are silent.
std::vector<std::string> remote_command(const std::string& host, const std::string& ssh_config,
                                        const std::vector<std::string>& alive = {});
// In a forked child: runs a program with these descriptors as its standard streams. It ends with its parent. Ctrl-C of the
// terminal does not reach it: the parent tells it.
[[noreturn]] void become_program(std::vector<std::string> words, int in, int out, int errors);
// The file of this program.
std::string own_program();

// The address that ssh connects to for a host, or its name if ssh does not say.
std::string address_of_host(const std::string& host, const std::string& ssh_config);

// The environment of this process that goes to the other hosts: variables whose names are in `names`, or begin with one of them
// that ends with *.
std::map<std::string, std::string> environment_for_others(const std::vector<std::string>& names);

}  // namespace ddhost
