// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/queues.hpp: streams that run their work as late as they may. Nothing runs when it is queued. A
// wait of the host runs what it waits for, and what that waits for by events; all other work stays in its queue. So work
// that no event orders runs in the wrong order in every run, and not once in a thousand.
//
// With Order::random, the wait also runs work of other streams that could run, chosen by a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace standin {

struct Stream;

// The place in a stream where an event was recorded. It outlives the stream, which is done when it is destroyed.
struct Mark {
  std::shared_ptr<Stream> stream;  // null: never recorded, which counts as done
  uint64_t ticket = 0;             // the wait ends when the stream has completed this number of works
};

// Work that a capture has recorded, and why the capture is invalid, if it is.
struct Recording {
  std::vector<std::function<void()>> works;
  const char* fault = nullptr;
  std::thread::id thread = std::this_thread::get_id();
};

struct Stream {
  struct Work {
    std::function<void()> run;  // null: waits for `mark`
    Mark mark;
  };
  int device = 0;
  std::deque<Work> queue;
  std::unique_ptr<Recording> recording;  // a capture is going on
  uint64_t queued = 0, completed = 0;
  bool is_busy = false;  // its first work is running, or waits
};

enum class Order : uint8_t { late, random };

class Queues {
 public:
  Queues(Order order, uint64_t seed) : order_(order), state_(seed) {}

  // Makes every capture of this thread that is going on invalid. False: there is none.
  bool invalidate_captures(const char* fault);

  std::shared_ptr<Stream> create(int device);
  [[nodiscard]] size_t n_streams() const { return streams_.size(); }
  void destroy(const std::shared_ptr<Stream>& stream);
  // While the stream is captured, the work is recorded.
  static void push(Stream& stream, std::function<void()> work);
  static void push_wait(Stream& stream, const Mark& mark);
  [[nodiscard]] static Mark mark(const std::shared_ptr<Stream>& stream) { return {stream, stream->queued}; }
  [[nodiscard]] static bool is_done(const Mark& mark) {
    return mark.stream == nullptr || mark.stream->completed >= mark.ticket;
  }
  // Runs work until the mark is done.
  void complete(const Mark& mark);
  void complete(const std::shared_ptr<Stream>& stream) { complete(mark(stream)); }
  // Runs one piece of work at most: what a query of an unfinished stream does.
  void advance(const Mark& mark);

 private:
  // Runs the first piece of work, and before it what it waits for.
  void run_first(Stream& stream);
  void run_others(const Stream& than);
  uint64_t next_random();

  const Order order_;
  uint64_t state_;
  std::vector<std::shared_ptr<Stream>> streams_;
};

}  // namespace standin
