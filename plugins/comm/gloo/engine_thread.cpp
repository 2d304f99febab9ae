// SPDX-License-Identifier: Apache-2.0
#include "engine_thread.hpp"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace gloo_links {
namespace {

constexpr const char* kGlooThread = "gloo_tcp_loop";  // as Gloo names it

}  // namespace

void let_ranks_go_first() {
  std::error_code ignored;  // without /proc the threads stay as they are
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    const sched_param no_priority{};
    if (name == kGlooThread)
      static_cast<void>(::sched_setscheduler(std::atoi(thread.path().filename().c_str()), SCHED_BATCH, &no_priority));
  }
}

}  // namespace gloo_links
