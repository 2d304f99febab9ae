// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include <algorithm>
#include <cstring>

#include "flat.hpp"

namespace sim {
namespace {

constexpr size_t kHost = 0;  // the actor

const char* word(bool writes) { return writes ? "writes" : "reads"; }
const char* kind_word(bool device) { return device ? "DDH_MEM_DEVICE" : "the host's memory"; }

ddh_access read_of(const void* p, uint64_t bytes) { return {p, bytes, DDH_ACCESS_READ, 0}; }

ddh::Accesses list_of(const ddh_access* accesses, uint32_t n) {
  ddh::Accesses out;
  for (uint32_t i = 0; i < n; ++i) {
    const ddh_access& a = accesses[i];
    if ((a.mode & DDH_ACCESS_READ) != 0) out.reads(a.data, a.bytes);
    if ((a.mode & DDH_ACCESS_WRITE) != 0) out.writes(a.data, a.bytes);
  }
  return out;
}

}  // namespace

Context::Context(const Settings& settings, Log log)
    : settings_(settings), log_(std::move(log)), blocks_(settings.capacity_bytes, settings.quarantine_bytes) {
  (void)Context::stream_create("default");
}

Context::~Context() {
  drain_all();
  queues_.clear();
  const std::string sentence = blocks_.damaged();
  if (settings_.check && !sentence.empty()) log_(sentence);
}

ddh_device_info Context::info() {
  const std::lock_guard lock(mutex_);
  const uint64_t capacity_bytes = blocks_.capacity_bytes();
  return {sizeof(ddh_device_info), 0, capacity_bytes, capacity_bytes - blocks_.used_bytes(), "sim", "", {}};
}

void* Context::allocate(const ddh_alloc_args& args) {
  const std::lock_guard lock(mutex_);
  return blocks_.allocate(args).begin;
}

void Context::release(void* p, int32_t) {
  const std::lock_guard lock(mutex_);
  const Block* block = blocks_.find(p);
  if (block == nullptr)
    return note_mistake("a block is released that this device does not have; release each block once");
  const OperationPtr user = checker_.unfinished(block->begin, block->bytes, host_clock_);
  if (user != nullptr)
    note_mistake(ddh::str("'", block->name, "' is released while ", text_of(*user),
                          " may still use it; synchronize that stream first"));
  // Without the check, wait for all work: the poison must not overwrite memory that it still uses.
  if (user != nullptr || !settings_.check) drain_all();
  checker_.forget(block->begin, block->bytes);
  const std::string sentence = blocks_.release(p);
  if (settings_.check && !sentence.empty()) note_mistake(sentence);
}

// ---- streams and events ---------------------------------------------------------------------------------------------

ddh_stream* Context::stream_create(const char* name) {
  const std::lock_guard lock(mutex_);
  Delays delays = settings_.delays;
  delays.seed += next_actor_ * 7919;  // each queue has an order of its own
  queues_.push_back(std::make_unique<Queue>(name, next_actor_++, delays));
  return reinterpret_cast<ddh_stream*>(queues_.back().get());
}

void Context::stream_destroy(ddh_stream* stream) {
  const std::lock_guard lock(mutex_);
  const Queue* const queue = &queue_of(stream);
  host_clock_.join(queue->clock);
  std::erase_if(queues_, [queue](const auto& mine) { return mine.get() == queue; });
}

ddh_event* Context::event_create() { return reinterpret_cast<ddh_event*>(std::make_unique<Event>().release()); }

void Context::event_destroy(ddh_event* event) { std::unique_ptr<Event>(&event_of(event)).reset(); }

void Context::record(ddh_event* handle, ddh_stream* stream) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  Queue& queue = queue_of(stream);
  Event& event = event_of(handle);
  event.signal = std::make_shared<Signal>();
  event.clock = queue.clock;
  queue.push([signal = event.signal] { signal->set(); });
}

void Context::wait(ddh_stream* stream, ddh_event* handle) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  const Event& event = event_of(handle);
  if (event.signal == nullptr) return;
  Queue& queue = queue_of(stream);
  queue.clock.join(event.clock);
  queue.push([signal = event.signal] { signal->wait(); });
}

void Context::synchronize(ddh_stream* stream) {
  queue_of(stream).drain();
  const std::lock_guard lock(mutex_);
  host_clock_.join(queue_of(stream).clock);
  checker_.forget_known(host_clock_);
  const std::string sentence = settings_.check ? blocks_.damaged() : "";
  if (!sentence.empty()) note_mistake(sentence);
  throw_if_failed();
}

// ---- work -----------------------------------------------------------------------------------------------------------

void Context::submit(Queue& queue, const std::string& name, const ddh::Accesses& accesses, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  queue.clock.join(host_clock_);
  if (settings_.check) {
    const std::string who = ddh::str("'", name, "' on stream '", queue.name(), "'");
    for (uint32_t i = 0; i < accesses.size(); ++i) {
      check_place(accesses.data()[i], who);
      check_order(accesses.data()[i], who, queue.actor(), queue.clock);
    }
    queue.clock.set(queue.actor(), ++queue.operations);
    const auto operation =
        std::make_shared<const Operation>(Operation{name, queue.name(), queue.actor(), queue.operations});
    for (uint32_t i = 0; i < accesses.size(); ++i) checker_.note(accesses.data()[i], operation);
  }
  queue.push([this, &queue, work = std::move(work)] {
    queue.delay();
    try {
      work();
    } catch (const ddh::Error& error) {
      fail_once(error);
    } catch (const std::exception& error) {
      fail_once(ddh::Error(DDH_INTERNAL, error.what()));
    }
  });
}

void Context::run(ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
                  const char* name) {
  submit(queue_of(stream), name, list_of(accesses, n), [fn, arg] { ddh::call(fn, arg); });
}

void Context::copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
                   ddh_stream* stream) {
  if (bytes == 0) return;
  if (settings_.check) {
    const std::lock_guard lock(mutex_);
    const std::string who = ddh::str("'copy' on stream '", queue_of(stream).name(), "'");
    // Check first that the memory exists: released memory has no kind.
    check_place(read_of(dst, bytes), who);
    check_place(read_of(src, bytes), who);
    check_kind("to", dst, dst_memory);
    check_kind("from", src, src_memory);
  }
  submit(queue_of(stream), "copy", ddh::Accesses().reads(src, bytes).writes(dst, bytes),
         [=] { std::memcpy(dst, src, bytes); });
}

void Context::fill(void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* stream) {
  submit_flat(stream, "fill", ddh::Accesses().writes(dst, numel * ddh_dtype_bytes(dtype)),
              flat::fill(dst, dtype, numel, value));
}

void Context::cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel,
                   ddh_stream* stream) {
  const uint64_t dst_bytes = numel * ddh_dtype_bytes(dst_dtype), src_bytes = numel * ddh_dtype_bytes(src_dtype);
  submit_flat(stream, "cast", ddh::Accesses().reads(src, src_bytes).writes(dst, dst_bytes),
              flat::cast(dst, dst_dtype, src, src_dtype, numel));
}

void Context::scale(float* dst, uint64_t numel, double factor, ddh_stream* stream) {
  submit_flat(stream, "scale", ddh::Accesses().updates(dst, numel * sizeof(float)),
              flat::scale(dst, numel, static_cast<float>(factor)));
}

void Context::add(float* dst, const float* src, uint64_t numel, ddh_stream* stream) {
  const uint64_t bytes = numel * sizeof(float);
  submit_flat(stream, "add", ddh::Accesses().reads(src, bytes).updates(dst, bytes), flat::add(dst, src, numel));
}

void Context::touch(const ddh_access* list, uint32_t n, const char* name) {
  if (!settings_.check) return;
  const ddh::Accesses accesses = list_of(list, n);
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  const std::string who = ddh::str("'", name, "' of the caller");
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    const ddh_access& access = accesses.data()[i];
    const Block* block = check_place(access, who);
    if (block != nullptr && block->memory == DDH_MEM_DEVICE)
      ddh::fail(DDH_FAILED_PRECONDITION, who, " accesses '", block->name,
                "', which is the device's memory; copy it, or queue the work with run");
    check_order(access, who, kHost, host_clock_);
  }
}

// ---- checks ---------------------------------------------------------------------------------------------------------

void Context::check_reachable(const ddh::Accesses& arrays, const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < arrays.size(); ++i) {
    const void* p = arrays.data()[i].data;
    if (blocks_.find(p) != nullptr || blocks_.find_released(p) != nullptr) continue;  // released: reported elsewhere
    ddh::fail(DDH_INVALID_ARGUMENT, "'", name, "' was given memory of the host, which the device can't reach; use ",
              "DDH_MEM_DEVICE or DDH_MEM_PINNED");
  }
}

const Block* Context::check_place(const ddh_access& access, const std::string& who) const {
  const Block* block = blocks_.find(access.data);
  if (block != nullptr) {
    const auto end = static_cast<const char*>(access.data) + access.bytes;
    if (end > block->end())
      ddh::fail(DDH_OUT_OF_RANGE, who, " reaches ", end - block->end(), " bytes beyond the end of '", block->name, "'");
    return block;
  }
  if (const Block* released = blocks_.find_released(access.data))
    ddh::fail(DDH_FAILED_PRECONDITION, who, " uses '", released->name,
              "', which was released; keep the block until its last use is done");
  return nullptr;
}

void Context::check_kind(const char* side, const void* p, int32_t said) const {
  const Block* block = blocks_.find(p);
  const bool is_device = block != nullptr && block->memory == DDH_MEM_DEVICE, said_device = said == DDH_MEM_DEVICE;
  if (is_device == said_device) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "a copy ", side, " ", kind_word(said_device), " was given '",
            name_of(static_cast<const char*>(p)), "', which lies in ", kind_word(is_device),
            "; its direction is wrong");
}

void Context::check_order(const ddh_access& access, const std::string& who, size_t actor,
                          const VectorClock& now) const {
  const Checker::Conflict conflict = checker_.find_conflict(access, actor, now);
  if (conflict.earlier == nullptr) return;
  const char* const cure = actor == kHost ? "synchronize that stream first"
                                          : "record an event after it and let this stream wait for the event";
  ddh::fail(DDH_FAILED_PRECONDITION, who, " ", word(conflict.later_writes), " '", name_of(conflict.at), "', which ",
            text_of(*conflict.earlier), " ", word(conflict.earlier_writes), ", and nothing orders the two; ", cure);
}

std::string Context::name_of(const char* p) const {
  const Block* block = blocks_.find(p);
  return block != nullptr ? block->name : "memory of the host";
}

void Context::drain_all() {
  // Queues wait only for queues, so one pass over all of them is enough.
  for (const auto& queue : queues_) queue->drain();
}

void Context::note_mistake(const std::string& sentence) {
  log_(sentence);
  fail_once(ddh::Error(DDH_FAILED_PRECONDITION, sentence));
}

void Context::fail_once(const ddh::Error& error) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = error;
}

void Context::throw_if_failed() {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) throw *failure_;
}

}  // namespace sim
