// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// Closes all descriptors from 3 on but two: a lock that the parent holds must end with the parent.
void close_all_but(int first, int second) {
  unsigned from = STDERR_FILENO + 1;
  for (const int kept : {std::min(first, second), std::max(first, second)}) {
    if (kept < static_cast<int>(from)) continue;
    if (static_cast<unsigned>(kept) > from) ::close_range(from, static_cast<unsigned>(kept) - 1, 0);
    from = static_cast<unsigned>(kept) + 1;
  }
  ::close_range(from, ~0U, 0);
}

// Output of the code, and output that the C library flushes at exit, is discarded.
[[noreturn]] void run_child(const std::function<std::string()>& answer, int pipe, int kept, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it has ended before
  close_all_but(pipe, kept);
  ::signal(SIGBUS, SIG_DFL);  // a handler may report what happens here as a failure of the parent
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  std::string text;
  try {
    text = answer();
  } catch (...) {  // nothing may unwind into the parent's code
    ::_exit(1);
  }
  const char* at = text.c_str();
  for (size_t left = text.size() + 1; left > 0;) {  // with the NUL, which says that the answer is complete
    const ssize_t n = ::write(pipe, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += n;
    left -= static_cast<size_t>(n);
  }
  ::_exit(0);
}

}  // namespace

ChildProcess::ChildProcess(const std::string& purpose, const std::function<std::string()>& answer, int kept) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "a pipe could not be made: ", std::strerror(errno), "; close other programs");
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  const int error = errno;
  if (pid_ == 0) run_child(answer, ends[1], kept, parent);
  ::close(ends[1]);
  pipe_ = ends[0];
  if (pid_ < 0) {
    ::close(pipe_);
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "a process ", purpose, " could not be started: ", std::strerror(error),
              "; close other programs");
  }
  ::setpgid(pid_, pid_);
}

ChildProcess::~ChildProcess() {
  ::kill(-pid_, SIGKILL);
  if (!is_reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(pipe_);
}

std::optional<std::string> ChildProcess::answer(Clock::time_point end) {
  std::array<char, 4096> part{};
  while (!is_silent_ && !is_too_long() && (text_.empty() || text_.back() != '\0')) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waiting{pipe_, POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t n = ::read(pipe_, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      is_silent_ = true;
    else
      text_.append(part.data(), static_cast<size_t>(n));
  }
  if (text_.empty() || text_.back() != '\0') return std::nullopt;
  return text_.substr(0, text_.size() - 1);
}

std::optional<int> ChildProcess::wait(Clock::time_point end) {
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) != pid_) {
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_reaped_ = true;
  return status;
}

}  // namespace ddhost
