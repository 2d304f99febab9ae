// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "ddh/sdk/plugin.hpp"

namespace same_host {
namespace {

// By CallKind.
constexpr const char* kKinds[] = {"nothing",   "all_reduce", "reduce_scatter", "all_gather",
                                  "broadcast", "all_to_all", "barrier",        "region_create"};

}  // namespace

Group::Group(Memory& memory, const Rendezvous& rendezvous, GroupSettings settings, Group* world)
    : memory_(memory),
      settings_(std::move(settings)),
      world_(world),
      layout_(static_cast<int32_t>(settings_.ranks.size()), settings_.staging_bytes),
      spin_(SpinPolicy::choose(settings_.spin_us, world_ == nullptr ? layout_.size : world_->size())),
      sent_(settings_.ranks.size(), 0),
      taken_(settings_.ranks.size(), 0) {
  const std::string what = ddh::str("the control block of group '", settings_.name, "'");
  std::unique_ptr<Offer> offer;
  if (settings_.rank == 0) {
    Created made = memory_.create(what, layout_.bytes);
    mapping_ = std::move(made.mapping);
    offer = std::move(made.offer);
    rendezvous.set(settings_.key, offer->ticket());
  } else {
    mapping_ = memory_.attach(rendezvous.get(settings_.key), what, layout_.bytes);
  }
  pid(settings_.rank).store(getpid());
  barrier();  // all ranks are attached: the offer may be destroyed
}

MarkLine& Group::line(int32_t rank, uint32_t index) const {
  auto* lines = reinterpret_cast<MarkLine*>(mapping_->base() + layout_.marks_offset);
  return lines[static_cast<uint64_t>(rank) * layout_.lines_per_rank + index];
}
MarkLine& Group::user_line(int32_t rank, uint32_t mark) const {
  return line(rank, kInternalMarks + 2 * static_cast<uint32_t>(layout_.size) + mark);
}
CallSlot& Group::call_slot(int32_t rank, uint64_t round) const {
  auto* slots = reinterpret_cast<CallSlot*>(mapping_->base() + layout_.calls_offset);
  return slots[static_cast<uint64_t>(rank) * 2 + (round & 1)];
}
std::byte* Group::staging(int32_t rank, uint64_t round) const {
  return mapping_->base() + layout_.staging_offset +
         (static_cast<uint64_t>(rank) * 2 + (round & 1)) * layout_.staging_bytes;
}
std::byte* Group::channel(int32_t rank) const {
  return mapping_->base() + layout_.channels_offset + static_cast<uint64_t>(rank) * layout_.staging_bytes;
}
std::atomic<int64_t>& Group::pid(int32_t rank) const {
  return reinterpret_cast<std::atomic<int64_t>*>(mapping_->base() + layout_.pids_offset)[rank];
}

// ---- Waiting -------------------------------------------------------------------------------------------------------

void Group::wait(MarkLine& mark, uint64_t value, int32_t peer, const char* what) {
  Fault fault;
  same_host::mark_wait(
      mark, value, spin_, [&] { return (fault = find_fault(peer, what)).code != DDH_OK; },
      [&] { ddh::fail(fault.code, fault.sentence); });
}

void Group::wait_all(uint32_t internal_mark, uint64_t value, const char* what) {
  for (int32_t peer = 0; peer < layout_.size; ++peer) {
    if (peer != settings_.rank) wait(line(peer, internal_mark), value, peer, what);
  }
}

Group::Fault Group::find_fault(int32_t awaited, const char* what) const {
  for (const Group* group : {this, static_cast<const Group*>(world_)}) {
    if (group == nullptr || group->control().aborted.load(std::memory_order_acquire) != 2) continue;
    return {DDH_ABORTED,
            ddh::str("rank ", group->control().abort_rank, " gave up: ", group->control().abort_reason.data())};
  }
  // The awaited rank may itself wait for a dead rank.
  for (int32_t i = 0; i < layout_.size; ++i) {
    const int32_t peer = (awaited + i) % layout_.size, theirs = settings_.ranks[static_cast<size_t>(peer)];
    if (peer == settings_.rank || !memory_.died(theirs, pid(peer).load())) continue;
    return {DDH_UNAVAILABLE, ddh::str("rank ", theirs, " (pid ", pid(peer).load(), ") died while rank ",
                                      settings_.ranks[static_cast<size_t>(settings_.rank)], " waited for ", what)};
  }
  return {};
}

void Group::mark_wait(int32_t peer, uint32_t mark, uint64_t value, const char* what) {
  if (peer < 0 || peer >= layout_.size) ddh::fail(DDH_OUT_OF_RANGE, "peer ", peer, " of a group of ", layout_.size);
  wait(user_line(peer, mark), value, peer, what);
}

void Group::abort(const char* reason) {
  uint32_t expected = 0;
  if (!control().aborted.compare_exchange_strong(expected, 1)) return;  // the first reason counts
  control().abort_rank = settings_.ranks[static_cast<size_t>(settings_.rank)];
  std::snprintf(control().abort_reason.data(), kReasonBytes, "%s", reason);
  control().aborted.store(2, std::memory_order_release);
  wake_everybody();
}

// Of 200,000 marks few have a waiter, and each wake-up is a system call. A rank that begins to sleep meanwhile looks at the
// fault flags after 100 ms.
void Group::wake_everybody() {
  for (int32_t r = 0; r < layout_.size; ++r) {
    for (uint32_t i = 0; i < layout_.lines_per_rank; ++i)
      if (line(r, i).waiters.load(std::memory_order_seq_cst) != 0) mark_wake(line(r, i));
  }
}

// ---- Rounds ----------------------------------------------------------------------------------------------------------

uint64_t Group::begin_round(const char* what) {
  const uint64_t round = ++round_;
  if (round > 2) wait_all(kConsumed, round - 2, what);
  return round;
}

void Group::publish(uint64_t round, const char* what) {
  mark_raise(line(settings_.rank, kPublished), round);
  wait_all(kPublished, round, what);
}

// Publishes the description of the call, with a small payload, and waits until every rank has done so.
uint64_t Group::begin_call(const ddh_coll& c, uint32_t kind, const void* payload, uint64_t payload_bytes) {
  const char* label = c.label != nullptr ? c.label : kKinds[kind];
  const uint64_t round = begin_round(label);
  CallSlot& slot = call_slot(settings_.rank, round);
  uint64_t hash = 0;
  for (int32_t r = 0; c.counts != nullptr && r < layout_.size; ++r) hash = hash * 0x100000001b3 + c.counts[r] + 1;
  if (kind == kAllToAll) hash = c.counts != nullptr ? 1 : 0;
  const uint32_t has_initial = kind == kAllReduce && c.initial != nullptr ? 1 : 0;
  slot.call = {kind, c.dtype, c.op, c.root, c.counts != nullptr ? 0 : c.count, hash, 0, 0, 0, 0, has_initial};
  locate(c.send, slot.call.send_region, slot.call.send_offset);
  locate(c.recv, slot.call.recv_region, slot.call.recv_offset);
  if (payload_bytes > 0) std::memcpy(slot.payload.data(), payload, payload_bytes);
  publish(round, label);
  measure_distance(c, round);
  check_same_call(round, label);
  return round;
}

// At large calls, whose time a sample does not change. Peers take turns. The line is the description of the call, which the
// peer has just written.
void Group::measure_distance(const ddh_coll& c, uint64_t round) {
  constexpr uint64_t kLargeBytes = uint64_t{64} << 10;
  if (layout_.size == 1 || settings_.bypass_caches != BypassCaches::automatic) return;
  uint64_t count = c.count;
  if (c.counts != nullptr) count = std::accumulate(c.counts, c.counts + layout_.size, uint64_t{0});
  if (count * ddh_dtype_bytes(c.dtype) < kLargeBytes) return;
  const auto others = static_cast<uint64_t>(layout_.size - 1);
  const uint64_t peer = (static_cast<uint64_t>(settings_.rank) + 1 + distance_.samples() % others) % (others + 1);
  distance_.add(PeerDistance::time_of(&call_slot(static_cast<int32_t>(peer), round)));
}

void Group::check_same_call(uint64_t round, const char* label) const {
  const Call& mine = call_slot(settings_.rank, round).call;
  for (int32_t r = 0; r < layout_.size; ++r) {
    const Call& theirs = call_slot(r, round).call;
    if (theirs.kind == mine.kind && theirs.dtype == mine.dtype && theirs.op == mine.op && theirs.root == mine.root &&
        theirs.count == mine.count && theirs.counts_hash == mine.counts_hash &&
        theirs.has_initial == mine.has_initial) {
      continue;
    }
    const auto text = [](const Call& c) {
      return ddh::str(kKinds[c.kind < std::size(kKinds) ? c.kind : 0], " of ", c.count, " elements, dtype ", c.dtype,
                      ", op ", c.op, ", root ", c.root, c.counts_hash != 0 ? ", with counts" : "",
                      c.has_initial != 0 ? ", with a start value" : "");
    };
    ddh::fail(DDH_FAILED_PRECONDITION, "collective ", round, " of group '", settings_.name, "' (", label,
              ") differs: rank ", settings_.ranks[static_cast<size_t>(settings_.rank)], " called ", text(mine),
              "; rank ", settings_.ranks[static_cast<size_t>(r)], " called ", text(theirs),
              "; every rank must make the same calls in the same order");
  }
}

// ---- Regions and marks -------------------------------------------------------------------------------------------------

Region* Group::region_create(const std::string& name, uint64_t bytes) {
  struct Outcome {
    Ticket ticket;
    uint64_t bytes;
    int32_t code;
    char text[400];
  };
  static_assert(sizeof(Outcome) <= kInlineBytes);
  const std::string what = ddh::str("region '", name, "'");
  auto region = std::make_unique<Region>();
  region->name = name;
  std::unique_ptr<Offer> offer;
  const auto attempt = [bytes](auto&& body) {
    Outcome m{};
    m.bytes = bytes;
    try {
      body(m);
    } catch (const ddh::Error& e) {
      m.code = e.code();
      std::snprintf(m.text, sizeof m.text, "%s", e.what());
    }
    return m;
  };
  const auto check = [&](const Outcome& mine) {
    ddh_coll c{};
    c.label = what.c_str();
    const uint64_t round = begin_call(c, kRegionCreate, &mine, sizeof mine);
    std::vector<Outcome> all(static_cast<size_t>(layout_.size));
    for (int32_t r = 0; r < layout_.size; ++r) {
      std::memcpy(&all[static_cast<size_t>(r)], call_slot(r, round).payload.data(), sizeof(Outcome));
    }
    consume(round);
    for (size_t r = 0; r < all.size(); ++r) {
      if (all[r].code != 0) ddh::fail(all[r].code, all[r].text);
      if (all[r].bytes == all[0].bytes) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, what, ": rank ", settings_.ranks[0], " asks for ", all[0].bytes,
                " bytes, rank ", settings_.ranks[r], " for ", all[r].bytes, "; every rank must ask for the same");
    }
    return all[0].ticket;
  };
  const Ticket ticket = check(attempt([&](Outcome& m) {
    if (settings_.rank != 0) return;
    Created made = memory_.create(what, bytes);
    region->mapping = std::move(made.mapping);
    offer = std::move(made.offer);
    m.ticket = offer->ticket();
  }));
  try {
    check(attempt([&](Outcome&) {
      if (settings_.rank != 0) region->mapping = memory_.attach(ticket, what, bytes);
    }));
  } catch (...) {
    kept_offers_.push_back(std::move(offer));  // a peer may still be attaching
    throw;
  }
  regions_.push_back(std::move(region));
  return regions_.back().get();
}

void Group::region_destroy(Region* region) {
  for (auto& mine : regions_) {
    if (mine.get() == region) mine.reset();  // its number is not reused, on any rank
  }
}

uint32_t Group::marks_create(uint32_t n) {
  if (n > kUserMarks - marks_used_) {
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "group '", settings_.name, "' has ", kUserMarks, " marks and ", marks_used_,
              " are in use; ", n, " more don't fit: use fewer windows (larger units)");
  }
  marks_used_ += n;
  return marks_used_ - n;
}

std::byte* Group::resolve(uint64_t region, uint64_t offset) const {
  return regions_[region - 1]->mapping->base() + offset;
}

void Group::locate(const void* p, uint64_t& region, uint64_t& offset) const {
  const auto* at = static_cast<const std::byte*>(p);
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i] == nullptr) continue;
    const Mapping& m = *regions_[i]->mapping;
    if (at < m.base() || at >= m.base() + m.bytes()) continue;
    region = i + 1;
    offset = static_cast<uint64_t>(at - m.base());
    return;
  }
}

bool Group::all_send_in_regions(uint64_t round) const {
  for (int32_t r = 0; r < layout_.size; ++r) {
    if (call_slot(r, round).call.send_region == 0) return false;
  }
  return true;
}
bool Group::all_recv_in_regions(uint64_t round) const {
  for (int32_t r = 0; r < layout_.size; ++r) {
    if (call_slot(r, round).call.recv_region == 0) return false;
  }
  return true;
}

}  // namespace same_host
