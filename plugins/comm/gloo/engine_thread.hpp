// SPDX-License-Identifier: Apache-2.0
//
// engine_thread.hpp: how the thread of Gloo that moves bytes shares a core with the rank.
#pragma once

#include <set>

namespace gloo_links {

// Numbers of the threads of this process; empty without /proc.
std::set<int> threads_now();

// From now on a thread that is not among those `before` waits, when it wakes up, until the core's present thread sleeps or its
// time slice ends (SCHED_BATCH). Gloo's thread tries the lock of a connection over and over. If it interrupts the rank that
// holds the lock, it uses up a time slice of some milliseconds, while the rank can't go on. Where the kernel refuses, or
// the process has another policy than the usual one, nothing changes.
void let_new_threads_give_way(const std::set<int>& before);

}  // namespace gloo_links
