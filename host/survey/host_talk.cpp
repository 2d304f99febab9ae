// SPDX-License-Identifier: Apache-2.0
#include "survey/host_talk.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/remote_agents.hpp"

namespace ddhost {
namespace {

struct Pipe {
  Fd out, in;  // to read from, to write to
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't make a pipe: ", std::strerror(errno), "; raise the limit of open files");
  return {Fd(ends[0]), Fd(ends[1])};
}

constexpr std::string_view kBegin = "{\"ddhost\":";

}  // namespace

HostTalk::HostTalk(const Host& host, const std::string& ssh_config) : errors_(::memfd_create("errors", MFD_CLOEXEC)) {
  Pipe questions = make_pipe(), answers = make_pipe();
  const std::vector<std::string> words =
      host.is_here ? std::vector<std::string>{own_program(), "agent"} : remote_command(host.name, ssh_config);
  pid_ = ::fork();
  if (pid_ < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no process can be started for host ", host.name, ": ", std::strerror(errno));
  if (pid_ == 0) become_program(words, questions.out.get(), answers.in.get(), errors_.get());
  to_ = std::move(questions.in);
  from_ = std::move(answers.out);
}

HostTalk::~HostTalk() {
  if (exit_code_) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

void HostTalk::say(const Json& question) {
  const std::string line = json_line(question) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(to_.get(), line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // it has ended, which hear() reports
    done += static_cast<size_t>(n);
  }
}

std::optional<Json> HostTalk::hear(Clock::time_point deadline) {
  constexpr size_t kMost = size_t{1} << 20;
  for (;;) {
    for (size_t end = 0; (end = in_.find('\n')) != std::string::npos;) {
      const std::string line = in_.substr(0, end);
      in_.erase(0, end + 1);
      if (!line.starts_with(kBegin)) continue;  // a shell may print a greeting
      return read_json(line).at("ddhost");
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd set{from_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&set, 1, static_cast<int>(left)) == 0) return std::nullopt;
    std::array<char, 4096> part{};
    const ssize_t n = ::read(from_.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || in_.size() > kMost) return std::nullopt;
    in_.append(part.data(), static_cast<size_t>(n));
  }
}

std::optional<int> HostTalk::exit_code() {
  constexpr int kTries = 50;
  for (int i = 0; !exit_code_ && i < kTries; ++i) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_)
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return exit_code_;
}

std::string HostTalk::errors() const {
  std::array<char, 8192> text{};
  const ssize_t n = ::pread(errors_.get(), text.data(), text.size(), 0);
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

}  // namespace ddhost
