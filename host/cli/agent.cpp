// SPDX-License-Identifier: Apache-2.0
//
// cli/agent.cpp: `ddhost agent`, which the head of a run starts on another host over SSH. All that it has to do comes as one
// line of JSON on stdin; it is not for people.
#include <cstdlib>
#include <iostream>

#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

CommandLine agent_command_line(std::istream& in) {
  std::string line;
  if (!std::getline(in, line))
    ddh::fail(DDH_INVALID_ARGUMENT,
              "`ddhost agent` gets its orders on stdin, and there are none; use ddhost --hostfile FILE");
  const AgentOrder order = agent_order(read_json(line));
  for (const auto& [name, value] : order.values) ::setenv(name.c_str(), value.c_str(), 1);
  std::error_code ec;
  std::filesystem::current_path(order.folder, ec);
  if (ec)
    ddh::fail(DDH_NOT_FOUND, "the folder '", order.folder.string(),
              "', where the run was started, does not exist on this host: ", ec.message(),
              "; start it in a folder that all hosts share by the same path");
  std::vector<const char*> argv = {"ddhost"};
  for (const std::string& word : order.words) argv.push_back(word.c_str());
  CommandLine out = parse_command_line(static_cast<int>(argv.size()), argv.data());
  out.agent_order = order;
  return out;
}

}  // namespace ddhost
