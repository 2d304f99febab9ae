// SPDX-License-Identifier: Apache-2.0
//
// base/child_process.hpp: runs code that is not trusted in a child process, which sends one answer over a pipe. The child
// is killed, with what it has started, when the object ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace ddhost {

class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;

  // Forks. The child has no standard input, output and error and no other descriptors but `kept`, writes no core, ends with
  // this process, and sends what `answer` returns. `purpose`: for the error if there is no process: "to inspect 'x.so'".
  ChildProcess(const std::string& purpose, const std::function<std::string()>& answer, int kept = -1);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  // The whole answer, or nullopt: it has not come until `end`, or the child ended without one, or it is longer than
  // kMostAnswer. May be called again.
  std::optional<std::string> answer(Clock::time_point end);
  // Whether the child can send nothing more.
  [[nodiscard]] bool is_silent() const { return is_silent_; }
  [[nodiscard]] bool is_too_long() const { return text_.size() >= kMostAnswer; }
  // Its status as from waitpid, or nullopt if it has not ended until `end`.
  std::optional<int> wait(Clock::time_point end);
  [[nodiscard]] pid_t pid() const { return pid_; }

  static constexpr size_t kMostAnswer = size_t{64} << 20;  // bytes

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string text_;
  bool is_silent_ = false, is_reaped_ = false;
};

}  // namespace ddhost
