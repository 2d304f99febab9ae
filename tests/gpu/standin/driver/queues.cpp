// SPDX-License-Identifier: Apache-2.0
#include "driver/queues.hpp"

#include <algorithm>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace standin {

std::shared_ptr<Stream> Queues::create(int device) {
  streams_.push_back(std::make_shared<Stream>());
  streams_.back()->device = device;
  return streams_.back();
}

void Queues::destroy(const std::shared_ptr<Stream>& stream) {
  complete(stream);
  std::erase(streams_, stream);
}

bool Queues::invalidate_captures(const char* fault) {
  bool any = false;
  for (const auto& stream : streams_) {
    if (stream->recording == nullptr || stream->recording->thread != std::this_thread::get_id()) continue;
    stream->recording->fault = fault;
    any = true;
  }
  return any;
}

void Queues::push(Stream& stream, std::function<void()> work) {
  if (stream.recording != nullptr) return stream.recording->works.push_back(std::move(work));
  stream.queue.push_back({std::move(work), {}});
  ++stream.queued;
}

void Queues::push_wait(Stream& stream, const Mark& mark) {
  stream.queue.push_back({nullptr, mark});
  ++stream.queued;
}

void Queues::complete(const Mark& mark) {
  while (!is_done(mark)) {
    if (order_ == Order::random) run_others(*mark.stream);
    if (!is_done(mark)) run_first(*mark.stream);
  }
}

void Queues::advance(const Mark& mark) {
  if (!is_done(mark)) run_first(*mark.stream);
}

void Queues::run_first(Stream& stream) {
  const Stream::Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.is_busy = true;
  if (work.run)
    work.run();
  else
    complete(work.mark);  // of work that was queued earlier, so this ends
  stream.is_busy = false;
  ++stream.completed;
}

void Queues::run_others(const Stream& than) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const std::shared_ptr<Stream> stream = streams_[i];
    if (stream.get() == &than || stream->is_busy || stream->queue.empty() || next_random() % 2 == 0) continue;
    const Stream::Work& work = stream->queue.front();
    if (work.run || is_done(work.mark)) run_first(*stream);
  }
}

uint64_t Queues::next_random() {
  state_ += ddh::kMixStep;
  return ddh::mix64(state_);
}

}  // namespace standin
