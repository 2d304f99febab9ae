// SPDX-License-Identifier: Apache-2.0
//
// survey/host_talk.hpp: questions to a host before a run, as lines of JSON to `ddhost agent` there. It is started over SSH, or
// as a child if it is this host. It ends with its standard input.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "launch/cluster/hostfile.hpp"
#include "launch/kv.hpp"

namespace ddhost {

class HostTalk {
 public:
  using Clock = std::chrono::steady_clock;

  HostTalk(const Host& host, const std::string& ssh_config);
  HostTalk(const HostTalk&) = delete;
  HostTalk& operator=(const HostTalk&) = delete;
  ~HostTalk();

  void say(const Json& question);
  // The next answer; nullopt: the other end has ended, or said nothing until `deadline`. [blocks]
  std::optional<Json> hear(Clock::time_point deadline);
  // The exit code of the other end, if it has ended; after hear() has given nothing. [blocks for a moment]
  std::optional<int> exit_code();
  // What it has written to stderr.
  [[nodiscard]] std::string errors() const;

 private:
  pid_t pid_ = -1;
  Fd to_, from_, errors_;
  std::string in_;
  std::optional<int> exit_code_;
};

}  // namespace ddhost
