// SPDX-License-Identifier: Apache-2.0
//
// launch/threads.cpp: ranks as threads. The launching thread waits for them and for the user's signals.
#include "launch/threads.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "launch/exit_guard.hpp"
#include "launch/kv_socket.hpp"
#include "launch/signals.hpp"
#include "launch/verdict.hpp"

namespace ddhost {
namespace {

using Clock = std::chrono::steady_clock;

// Data shared by the threads.
struct World {
  explicit World(int world_size) : progress(world_size), ended_event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (ended_event.get() < 0)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't create an event descriptor: ", std::strerror(errno));
  }
  Progress progress;
  KvLocal kv;
  Fd ended_event;  // raised by each rank at its end
  std::atomic<int> running{0};
  std::atomic<bool> failed{false};
};

// What the calling thread is doing, if it belongs to a rank; for a signal handler.
struct ThreadPlaces {
  const Progress& progress;
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
};

void rank_thread(World& world, const LaunchArgs& args, int rank, const RankFunction& rank_function, uint64_t run_id) {
  const SignalStack signal_stack;
  ProgressOfRank record(world.progress, rank);
  RankSeat seat = make_seat(args, rank, world.kv, record, run_id);
  world.progress.lane(rank).set_thread(::gettid());
  if (run_seat(rank_function, seat, world.progress) != 0) {
    world.failed = true;
    world.kv.abort(ddh::str("rank ", rank, " has ended with an error"));
  }
  --world.running;
  const uint64_t one = 1;
  static_cast<void>(!::write(world.ended_event.get(), &one, sizeof one));
}

// Threads can't be killed. If they don't end, the process ends.
[[noreturn]] void end_process(const Outcome& outcome) {
  print_sentence(outcome.sentence.empty() ? "some ranks did not end; the run was ended" : outcome.sentence);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(outcome.exit_code == 0 ? 1 : outcome.exit_code);
}

RunEnd wait_for_threads(World& world, const LaunchArgs& args, const SignalWatch& signals) {
  RunEnd end;
  std::optional<Clock::time_point> deadline;
  const auto set_deadline = [&](std::chrono::milliseconds from_now) {
    if (!deadline || Clock::now() + from_now < *deadline) deadline = Clock::now() + from_now;
  };
  bool failure_seen = false;
  Watchdog watchdog(world.progress, args.world_size, args.watchdog);
  while (world.running > 0) {
    pollfd set[] = {{signals.fd(), POLLIN, 0}, {world.ended_event.get(), POLLIN, 0}};
    int timeout = watchdog.interval() ? static_cast<int>(watchdog.interval()->count()) : -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      const int mine = static_cast<int>(std::max<int64_t>(left, 0));
      timeout = timeout < 0 ? mine : std::min(timeout, mine);
    }
    ::poll(set, 2, timeout);
    uint64_t count = 0;
    static_cast<void>(!::read(world.ended_event.get(), &count, sizeof count));
    for (const auto& [signal, sender] : signals.take()) {
      if (signal == SIGUSR1) world.progress.request_save();
      if (signal == SIGCHLD || signal == SIGUSR1) continue;
      const bool is_first = end.stop_signal == 0;
      note_stop(end, signal, world.progress, args.echo);
      if (is_first && args.stop_limit) set_deadline(*args.stop_limit);
      if (end.killed_by_signal) set_deadline(std::chrono::milliseconds{0});
    }
    end.failed = world.failed;
    if (!end.failed && note_watchdog(end, watchdog)) end_process(verdict(end, world.progress, args.world_size));
    if (end.failed && !failure_seen) set_deadline(args.grace);
    failure_seen = end.failed;
    if (deadline && Clock::now() >= *deadline && world.running > 0) {
      end.killed_after_stop = end.stop_signal != 0;
      end_process(verdict(end, world.progress, args.world_size));
    }
  }
  end.failed = world.failed;
  return end;
}

}  // namespace

Outcome launch_threads(const LaunchArgs& args, const RankFunction& rank_function) {
  World world(args.world_size);
  const uint64_t run_id = make_run_id();
  const SignalWatch signals;
  const ThreadPlaces places{world.progress, args.world_size};
  const ExitGuard guard(&ThreadPlaces::describe, &places, args.world_size * static_cast<int>(kRankThreads));
  std::vector<std::jthread> threads;
  world.running = args.world_size;
  for (int rank = 0; rank < args.world_size; ++rank) {
    try {
      threads.emplace_back([&, rank] { rank_thread(world, args, rank, rank_function, run_id); });
    } catch (const std::system_error& error) {
      end_process({1, ddh::str("can't start a thread for rank ", rank, ": ", error.what(), "; start fewer ranks")});
    }
  }
  const RunEnd end = wait_for_threads(world, args, signals);
  threads.clear();
  return verdict(end, world.progress, args.world_size);
}

}  // namespace ddhost
