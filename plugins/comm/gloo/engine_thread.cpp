// SPDX-License-Identifier: Apache-2.0
#include "engine_thread.hpp"

#include <dirent.h>
#include <sched.h>

#include <cstdlib>
#include <memory>

namespace gloo_links {

std::set<int> threads_now() {
  std::set<int> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), closedir);
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder.get()))
    if (*entry->d_name != '.') threads.insert(std::atoi(entry->d_name));
  return threads;
}

void let_new_threads_give_way(const std::set<int>& before) {
  const sched_param no_priority{};
  for (const int thread : threads_now())
    if (!before.contains(thread) && ::sched_getscheduler(thread) == SCHED_OTHER)
      static_cast<void>(::sched_setscheduler(thread, SCHED_BATCH, &no_priority));
}

}  // namespace gloo_links
