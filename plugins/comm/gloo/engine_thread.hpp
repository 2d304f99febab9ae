// SPDX-License-Identifier: Apache-2.0
//
// engine_thread.hpp: how the thread of Gloo that moves bytes shares a core with the rank.
#pragma once

namespace gloo_links {

// From now on a Gloo thread of this process that wakes up waits until the core's present thread sleeps or its time slice ends
// (SCHED_BATCH). Gloo's thread tries the lock of a connection over and over. If it interrupts the rank that holds the lock,
// it uses up a time slice of some milliseconds, while the rank can't go on. Where the kernel refuses, nothing changes.
void let_ranks_go_first();

}  // namespace gloo_links
