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

namespace ddhost {
namespace {

constexpr size_t kLongestLine = 8192;  // a longer one becomes several

void write_all(int stream, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(stream, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // ssh, which has the same terminal or file, makes it so
      pollfd until_ready{stream, POLLOUT, 0};
      ::poll(&until_ready, 1, -1);
      continue;
    }
    if (n <= 0) return;  // nobody reads it any more, which must not hold up the rank
    done += static_cast<size_t>(n);
  }
}

// The lines of one stream of one rank.
class NamedLines {
 public:
  NamedLines(int stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  void add(const char* text, size_t bytes) {
    for (const char* const end = text + bytes; text != end; ++text) {
      if (*text == '\n' || line_.size() >= kLongestLine) write_line();
      if (*text != '\n') line_ += *text;
    }
  }
  void end() {
    if (!line_.empty()) write_line();
  }

 private:
  void write_line() {
    write_all(stream_, name_ + line_ + "\n");
    line_.clear();
  }
  const int stream_;
  const std::string name_;
  std::string line_;
};

// Of C's stdout: a line is worth writing at once, also into a pipe or a file.
void write_lines_at_once() {
  std::fflush(nullptr);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
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
  if (process_ == 0) {
    in_child();
    relay(output.host, launcher);
  }
  for (Pipe& pipe : pipes_) pipe.read.reset();
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
        lines[i].add(chunk.data(), static_cast<size_t>(n));
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
    ::dup2(pipe.write.get(), pipe.stream);
  }
  process_ = 0;
  pipes_.clear();
}

void OutputRelay::finish() {
  pipes_.clear();
  if (process_ == 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (::waitpid(process_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= end) ::kill(process_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process_ = 0;
}

void send_output_to(const std::string& file) {
  const Fd to(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (to.get() < 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "'", file, "' can't be opened for the output of a rank: ", std::strerror(errno),
              "; see whether the folder can be written, or leave launch.output out");
  write_lines_at_once();
  ::dup2(to.get(), STDOUT_FILENO);
  ::dup2(to.get(), STDERR_FILENO);
}

}  // namespace ddhost
