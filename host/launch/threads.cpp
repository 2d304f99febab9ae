// SPDX-License-Identifier: Apache-2.0
//
// launch/threads.cpp: one thread for each rank. Threads can't be killed; the launcher kills the process.
#include "launch/threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "launch/exit_guard.hpp"
#include "launch/verdict.hpp"

namespace ddhost {
namespace {

// What the calling thread is doing, if it belongs to a rank; for a signal handler.
struct ThreadPlaces {
  const Progress& progress;
  LoaderRecord& record;
  int world_size;

  static bool describe(const void* self, char* text, size_t capacity) {
    const auto& places = *static_cast<const ThreadPlaces*>(self);
    const pid_t me = ::gettid();
    for (int rank = 0; rank < places.world_size; ++rank) {
      for (size_t t = 0; t < kRankThreads; ++t) {
        const auto thread = static_cast<RankThread>(t);
        if (places.progress.lane(rank, thread).thread() != me) continue;
        std::array<char, 32> who{};
        std::snprintf(who.data(), who.size(), "rank %d was in ", rank);
        const size_t used = std::min(std::strlen(who.data()), capacity - 1);
        std::memcpy(text, who.data(), used);
        places.progress.write_place(rank, thread, text + used, capacity - used);
        if (text[used] != '\0') return true;
        std::strncpy(text + used, "the host's code", capacity - used - 1);
        return false;
      }
    }
    std::strncpy(text, "a thread that a plugin started was running", capacity - 1);
    return true;
  }
  static void report(const void* self, const char* sentence) {
    static_cast<const ThreadPlaces*>(self)->record.set_failure(sentence);
  }
};

// Data shared by the threads.
struct World {
  KvLocal kv;
  std::atomic<bool> failed{false};
};

void rank_thread(World& world, const LaunchArgs& args, int rank, const RankFunction& rank_function, Progress& progress,
                 uint64_t run_id) {
  const SignalStack signal_stack;
  ProgressOfRank record(progress, rank);
  RankSeat seat = make_seat(args, rank, world.kv, record, run_id);
  progress.lane(rank).set_thread(::gettid());
  if (run_seat(rank_function, seat, progress) == 0) return;
  world.failed = true;
  world.kv.abort(ddh::str("rank ", rank, " has ended with an error"));
}

}  // namespace

int run_threads(const LaunchArgs& args, const RankFunction& rank_function, Progress& progress, LoaderRecord& record,
                uint64_t run_id) {
  World world;
  const ThreadPlaces places{progress, record, args.world_size};
  const ExitGuard guard(&ThreadPlaces::describe, &ThreadPlaces::report, &places,
                        args.world_size * static_cast<int>(kRankThreads));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < args.world_size; ++rank) {
    try {
      threads.emplace_back([&, rank] { rank_thread(world, args, rank, rank_function, progress, run_id); });
    } catch (const std::system_error& error) {
      record.set_failure(ddh::str("can't start a thread for rank ", rank, ": ", error.what(), "; start fewer ranks"));
      ::_exit(1);  // the ranks that run would wait for this one
    }
  }
  threads.clear();
  return world.failed ? 1 : 0;
}

}  // namespace ddhost
