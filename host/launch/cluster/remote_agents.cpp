// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/remote_agents.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void become_program(std::vector<std::string> words, int in, int out, int errors) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string own_program() {
  std::error_code ec;
  return std::filesystem::read_symlink("/proc/self/exe", ec).string();
}

std::vector<std::string> remote_command(const std::string& host, const std::string& ssh_config,
                                        const std::vector<std::string>& alive) {
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes"};
  if (!ssh_config.empty()) words.insert(words.end(), {"-F", ssh_config});
  words.insert(words.end(), alive.begin(), alive.end());
  words.insert(words.end(), {"--", host, "exec " + quoted(own_program()) + " agent"});
  return words;
}

Json to_json(const AgentOrder& order) {
  return {{"at", order.meeting.at.text()},
          {"token", order.meeting.token.hex()},
          {"task", order.task},
          {"tasks", order.n_tasks},
          {"folder", order.folder},
          {"words", order.words},
          {"values", order.values}};
}

AgentOrder agent_order(const Json& json) {
  AgentOrder order;
  order.meeting = {parse_endpoint(json.at("at").get<std::string>(), "the address of the head"),
                   Token::from_hex(json.at("token").get<std::string>())};
  order.task = json.at("task").get<int>();
  order.n_tasks = json.at("tasks").get<int>();
  order.folder = json.at("folder").get<std::string>();
  order.words = json.at("words").get<std::vector<std::string>>();
  order.values = json.at("values").get<std::map<std::string, std::string>>();
  return order;
}

namespace {

void send_order(const Fd& to, const AgentOrder& order) {
  const std::string line = json_line(to_json(order)) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::send(to.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // ssh has ended, which ended() reports
    done += static_cast<size_t>(n);
  }
}

}  // namespace

RemoteAgents::RemoteAgents(const std::vector<Agent>& agents, const std::string& ssh_config,
                           std::chrono::milliseconds heartbeat)
    : RemoteAgents() {
  const auto seconds = std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(heartbeat).count());
  const std::vector<std::string> alive = {"-o", ddh::str("ServerAliveInterval=", seconds), "-o",
                                          "ServerAliveCountMax=3"};
  for (const Agent& agent : agents) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "no socket for host ", agent.host, ": ", std::strerror(errno));
    Fd mine(pair[0]);
    const Fd its(pair[1]);
    const pid_t pid = ::fork();
    if (pid < 0)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "ssh can't be started for host ", agent.host, ": ", std::strerror(errno));
    if (pid == 0)
      become_program(remote_command(agent.host, ssh_config, alive), its.get(), STDOUT_FILENO, STDERR_FILENO);
    send_order(mine, agent.order);
    processes_.push_back({pid, agent.host, std::move(mine)});
  }
}

void RemoteAgents::order_again(const std::vector<Agent>& agents) {
  for (const Agent& agent : agents) {
    const auto process =
        std::find_if(processes_.begin(), processes_.end(), [&](const Process& one) { return one.host == agent.host; });
    if (process == processes_.end() || agents.size() != processes_.size())
      ddh::fail(DDH_UNAVAILABLE, "the hostfile has other hosts than when the run began, such as ", agent.host);
    send_order(process->orders, agent.order);
  }
}

RemoteAgents::~RemoteAgents() {
  for (const Process& process : processes_) ::kill(process.pid, SIGTERM);
  for (const Process& process : processes_) ::waitpid(process.pid, nullptr, 0);
}

std::optional<RemoteAgents::Ended> RemoteAgents::ended() {
  for (auto at = processes_.begin(); at != processes_.end(); ++at) {
    int status = 0;
    if (::waitpid(at->pid, &status, WNOHANG) != at->pid) continue;
    const std::string host = at->host;
    processes_.erase(at);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
      return Ended{ddh::str("the program was not found on host ", host,
                            ", or there is no ssh here; install ddhost on all hosts by the same path, ",
                            own_program())};
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool by_signal = code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP;
    return Ended{
        ddh::str("host ", host, " did not join the run: ssh ended with code ", code, "; its output above says why"),
        by_signal ? code - 128 : 0};
  }
  return std::nullopt;
}

std::string address_of_host(const std::string& host, const std::string& ssh_config) {
  const std::string command =
      "ssh -G " + (ssh_config.empty() ? "" : "-F " + quoted(ssh_config)) + " -- " + quoted(host) + " 2>/dev/null";
  // NOLINTNEXTLINE(bugprone-command-processor): names of hosts are plain, and the path is quoted
  const std::unique_ptr<FILE, int (*)(FILE*)> out(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 1024> line{};
  while (out != nullptr && std::fgets(line.data(), line.size(), out.get()) != nullptr) {
    const std::string text(line.data());
    if (text.starts_with("hostname ")) return text.substr(9, text.find('\n') - 9);
  }
  return host.substr(host.find('@') + 1);
}

std::map<std::string, std::string> environment_for_others(const std::vector<std::string>& names) {
  std::map<std::string, std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const size_t equal = entry.find('=');
    const std::string name = entry.substr(0, equal);
    const bool goes = std::any_of(names.begin(), names.end(), [&](const std::string& wanted) {
      return wanted == name || (wanted.ends_with('*') && name.starts_with(wanted.substr(0, wanted.size() - 1)));
    });
    if (goes && equal != std::string::npos) out.emplace(name, entry.substr(equal + 1));
  }
  return out;
}

}  // namespace ddhost
