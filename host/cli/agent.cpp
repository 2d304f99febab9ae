// SPDX-License-Identifier: Apache-2.0
//
// cli/agent.cpp: `ddhost agent`, which the head of a run starts on another host over SSH. All that it has to do comes as one
// line of JSON on stdin; it is not for people. Before a run it is asked questions instead (survey/answers.hpp).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/kv.hpp"
#include "plan/ask_device.hpp"
#include "survey/answers.hpp"

namespace ddhost {
namespace {

constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";

// The C library reads this variable when a program begins.
void begin_again(const std::string& line, const std::string& library_path) {
  ::setenv(kLibraryPath, library_path.c_str(), 1);
  const std::string text = line + "\n";
  const Fd file(::memfd_create("orders", MFD_CLOEXEC));
  const bool is_written =
      file.get() >= 0 && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!is_written || ::lseek(file.get(), 0, SEEK_SET) != 0 || ::dup2(file.get(), STDIN_FILENO) < 0) return;
  ::execl("/proc/self/exe", "ddhost", "agent", nullptr);
}

}  // namespace

CommandLine agent_command_line(std::istream& in) {
  std::string line;
  if (!std::getline(in, line))
    ddh::fail(DDH_INVALID_ARGUMENT,
              "`ddhost agent` gets its orders on stdin, and there are none; use ddhost --hostfile FILE");
  const Json said = read_json(line);
  if (said.contains(kFactsQuestion)) {
    for (const auto& [name, value] : said.at("values").items())
      ::setenv(name.c_str(), value.get<std::string>().c_str(), 1);
    CommandLine out;
    out.command = Command::kAnswer;
    out.first_question = line;
    return out;
  }
  const AgentOrder order = agent_order(said);
  const auto wanted = order.values.find(kLibraryPath);
  const char* const mine = std::getenv(kLibraryPath);
  if (wanted != order.values.end() && (mine == nullptr || wanted->second != mine)) begin_again(line, wanted->second);
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

int answer_as_agent(const CommandLine& line, const Registry& registry, std::istream& in, std::ostream& out) {
  answer_questions(line.first_question, in, out, [&] {
    Json devices = Json::array();
    for (const std::filesystem::path& file : registry.files_of(DDH_KIND_DEVICE))
      for (const DeviceAnswer& device : ask_devices(file, registry.lookup(), ""))
        devices.push_back({{"plugin", device.plugin}, {"present", device.present}, {"problem", device.problem}});
    return devices;
  });
  return 0;
}

}  // namespace ddhost
