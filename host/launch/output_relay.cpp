// SPDX-License-Identifier: Apache-2.0
#include "launch/output_relay.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"
#include "launch/named_lines.hpp"

namespace ddhost {
namespace {

// Into a pipe or a file C's stdout is written only when its buffer is full. Here it is written after each line. The C
// standard allows setvbuf before the first output alone, glibc at any time.
void write_lines_at_once() {
  std::fflush(nullptr);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
}

void redirect(int stream, const Fd& to, const std::string& what) {
  if (::dup2(to.get(), stream) < 0)
    ddh::fail(DDH_INTERNAL, "the output of a rank can't go to ", what, ": ", std::strerror(errno),
              "; set launch.output=plain");
}

}  // namespace

OutputRelay::OutputRelay(const NamedOutput& output, const std::function<void()>& in_child) {
  const auto refuse = [](const char* what) {
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no ", what, " for the output of the ranks: ", std::strerror(errno),
              "; raise the limit of open files, or set launch.output=plain");
  };
  for (int rank = output.ranks.first; rank < output.ranks.end(); ++rank)
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) refuse("pipe");
      pipes_.push_back({rank, stream, Fd(ends[0]), Fd(ends[1])});
    }
  if (pipes_.empty()) return;
  std::fflush(nullptr);
  const pid_t launcher = ::getpid();
  process_ = ::fork();
  if (process_ < 0) refuse("process");
  if (process_ == 0) live_in_child(output.host, launcher, in_child);
  for (Pipe& pipe : pipes_) pipe.read.reset();
}

// An exception must not go on in the child: it would become a second launcher.
void OutputRelay::live_in_child(const std::string& host, pid_t launcher,
                                const std::function<void()>& in_child) noexcept {
  try {
    in_child();
    relay(host, launcher);
  } catch (...) {
    ::_exit(1);
  }
}

void OutputRelay::relay(const std::string& host, pid_t launcher) {
  // Signals to the terminal's processes: the ranks still write what they make of them.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "ddhost-output");  // it is no rank
  std::vector<NamedLines> lines;
  std::vector<pollfd> set;
  for (Pipe& pipe : pipes_) {
    pipe.write.reset();
    lines.emplace_back(pipe.stream, ddh::str("[", host, " ", pipe.rank, "] "));
    set.push_back({pipe.read.get(), POLLIN, 0});
  }
  for (size_t open = set.size(); open > 0;) {
    // What a rank has started may hold its pipe for ever.
    const int ready = ::poll(set.data(), set.size(), 500);
    if (ready == 0 && ::getppid() != launcher) break;
    for (size_t i = 0; ready > 0 && i < set.size(); ++i) {
      if (set[i].fd < 0 || set[i].revents == 0) continue;
      std::array<char, 1 << 14> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): read fills it
      const ssize_t n = ::read(set[i].fd, chunk.data(), chunk.size());
      if (n > 0) {
        lines[i].add({chunk.data(), static_cast<size_t>(n)});
      } else if (n == 0 || errno != EINTR) {
        lines[i].end();
        set[i].fd = -1;
        --open;
      }
    }
  }
  for (NamedLines& of : lines) of.end();
  ::_exit(0);
}

void OutputRelay::take(int rank) {
  for (const Pipe& pipe : pipes_) {
    if (pipe.rank != rank) continue;
    write_lines_at_once();
    redirect(pipe.stream, pipe.write, "its pipe");
  }
  process_ = 0;
  pipes_.clear();
}

void OutputRelay::finish() {
  pipes_.clear();
  if (process_ == 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  bool is_killed = false;
  while (::waitpid(process_, nullptr, WNOHANG) == 0) {
    if (!is_killed && std::chrono::steady_clock::now() >= end) is_killed = ::kill(process_, SIGKILL) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process_ = 0;
  if (is_killed)
    print_sentence(
        "warning: the last output of the ranks is lost, because nobody has read it for a second after their end; look "
        "for what reads the output of ddhost, or set launch.output=files");
}

void send_output_to(const std::string& file) {
  const Fd to(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (to.get() < 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "'", file, "' can't be opened for the output of a rank: ", std::strerror(errno),
              "; see whether the folder can be written, or leave launch.output out");
  write_lines_at_once();
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) redirect(stream, to, "'" + file + "'");
}

}  // namespace ddhost
