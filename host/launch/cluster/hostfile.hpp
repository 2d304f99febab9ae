// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/hostfile.hpp: the hosts of a run that ddhost itself starts over SSH, and the ranks of each.
//
//   # a comment
//   node1 slots=4
//   user@node2 slots=2
//
// --include and --exclude choose hosts, and slots of them, in DeepSpeed's form: "node1@node2:0,2".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddhost {

struct Host {
  std::string name;      // as ssh takes it: [user@]name
  int slots = 0;         // ranks
  bool is_here = false;  // it is this host; Cluster::join finds out
};

// The text of a hostfile; `file` is for errors. Error: an ill-formed line (its number is named), a host twice, or no host.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& file);

struct HostChoice {
  std::string include = {}, exclude = {};
  int num_nodes = 0, nproc_per_node = 0;  // 0: all hosts; all slots
  int world_size = 0;                     // 0: all slots
};
// The hosts that take part, with at least one rank each, in the order of the file. Error: a choice that does not fit.
std::vector<Host> chosen_hosts(std::vector<Host> hosts, const HostChoice& choice);

// Whether the name is one of this machine.
bool is_this_host(const std::string& name);

}  // namespace ddhost
