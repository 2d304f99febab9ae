// SPDX-License-Identifier: Apache-2.0
//
// cli/agent.cpp: `ddhost agent`, which the head of a run starts on another host over SSH. All that it has to do comes as one
// line of JSON on stdin, and one more for each time that the run starts again; it is not for people. Before a run it is asked
// questions instead (survey/answers.hpp).
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/kv.hpp"
#include "plan/ask_device.hpp"
#include "survey/answers.hpp"

namespace ddhost {
namespace {

constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";

constexpr const char* kOrders = "orders";  // in an order: the descriptor from which the next comes

// The C library reads this variable when a program begins.
[[noreturn]] void begin_again(Json order, const std::string& library_path) {
  ::setenv(kLibraryPath, library_path.c_str(), 1);
  order[kOrders] = ::fcntl(STDIN_FILENO, F_DUPFD, STDERR_FILENO + 1);
  const std::string text = json_line(order) + "\n";
  const Fd file(::memfd_create("orders", MFD_CLOEXEC));
  const bool is_written =
      file.get() >= 0 && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (is_written && ::lseek(file.get(), 0, SEEK_SET) == 0 && ::dup2(file.get(), STDIN_FILENO) >= 0)
    ::execl("/proc/self/exe", "ddhost", "agent", nullptr);
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "the agent can't begin again with another ", kLibraryPath, ": ",
            std::strerror(errno));
}

// The descriptor from which further orders come. It is stdin no more, because ranks inherit that and must not read orders.
std::shared_ptr<const Fd> take_orders(const Json& said) {
  auto orders = std::make_shared<const Fd>(said.contains(kOrders) ? said.at(kOrders).get<int>()
                                                                  : ::fcntl(STDIN_FILENO, F_DUPFD, STDERR_FILENO + 1));
  if (orders->get() < 0) ddh::fail(DDH_RESOURCE_EXHAUSTED, "no descriptor for further orders: ", std::strerror(errno));
  ::fcntl(orders->get(), F_SETFD, FD_CLOEXEC);
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  return orders;
}

CommandLine obeyed(const AgentOrder& order, std::shared_ptr<const Fd> orders) {
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
  out.orders = std::move(orders);
  return out;
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
  if (wanted != order.values.end() && (mine == nullptr || wanted->second != mine)) begin_again(said, wanted->second);
  return obeyed(order, take_orders(said));
}

std::optional<CommandLine> next_order(const CommandLine& line, std::chrono::milliseconds patience) {
  const SignalsWhileJoining waiting;
  constexpr std::chrono::milliseconds kPause{100};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string text;
  while (!text.ends_with('\n')) {
    waiting.require_no_signal();
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    pollfd orders{line.orders->get(), POLLIN, 0};
    if (::poll(&orders, 1, static_cast<int>(kPause.count())) <= 0) continue;
    char c = 0;
    if (::read(orders.fd, &c, 1) != 1) return std::nullopt;  // the head has ended
    text += c;
  }
  return obeyed(agent_order(read_json(text)), line.orders);
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
