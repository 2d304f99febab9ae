// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks on one host: its common memory, its marks, and collectives on them.
//
// Every collective runs in rounds. In a round a rank writes into its half of staging (round & 1), raises kPublished, waits
// for its peers, reads theirs, and raises kConsumed. A half is written again two rounds later, after every peer has
// consumed it, so no barrier is needed. Small payloads travel in the first round, with the description of the call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../ordered_sum.hpp"
#include "control.hpp"
#include "ddh/kind/comm.h"
#include "ddh/sdk/comm_groups.hpp"
#include "distance.hpp"
#include "memory.hpp"

namespace same_host {

struct GroupSettings : ddh::GroupPlace {
  uint32_t reduce_block = 1;  // at least 1
  int64_t spin_us = 20;
  uint64_t staging_bytes = 1 << 20;
  BypassCaches bypass_caches = BypassCaches::automatic;
};

// Memory that all ranks of a group map.
struct Region {
  std::string name;
  std::unique_ptr<Mapping> mapping;
};

class Group {
 public:
  // Exchanges a ticket before ranks share memory: rank 0 of the group sets it, the others get it.
  struct Rendezvous {
    std::function<void(const std::string& key, const Ticket&)> set;
    std::function<Ticket(const std::string& key)> get;
  };
  // [collective] `world`: the group of all ranks, whose abort also ends waits of this group; nullptr if this is that
  // group.
  Group(Memory& memory, const Rendezvous& rendezvous, GroupSettings settings, Group* world);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int32_t rank() const { return settings_.rank; }
  [[nodiscard]] int32_t size() const { return layout_.size; }
  [[nodiscard]] uint64_t control_bytes_per_rank() const { return layout_.bytes_per_rank(); }

  void all_reduce(const ddh_coll& c);
  void reduce_scatter(const ddh_coll& c);
  void all_gather(const ddh_coll& c);
  void broadcast(const ddh_coll& c);
  void all_to_all(const ddh_coll& c);
  void send(const ddh_coll& c);
  void recv(const ddh_coll& c);
  void barrier();

  // [collective] A failure on one rank is thrown on all.
  Region* region_create(const std::string& name, uint64_t bytes);
  void region_destroy(Region* region);

  // [collective] Reserves n marks; throws when there are no more.
  uint32_t marks_create(uint32_t n);
  void mark_set(uint32_t mark, uint64_t value) { mark_raise(user_line(settings_.rank, mark), value); }
  void mark_wait(int32_t peer, uint32_t mark, uint64_t value, const char* what);

  void abort(const char* reason);

 private:
  // Pieces of all ranks one after the other, in bytes.
  struct Pieces {
    std::vector<uint64_t> size, offset;  // by rank
    uint64_t largest = 0;
    // `counts`: elements of each rank's piece; null: c.count each.
    void set(const ddh_coll& c, int32_t ranks, const uint64_t* counts);
  };

  [[nodiscard]] MarkLine& line(int32_t rank, uint32_t index) const;
  [[nodiscard]] MarkLine& user_line(int32_t rank, uint32_t mark) const;
  [[nodiscard]] CallSlot& call_slot(int32_t rank, uint64_t round) const;
  [[nodiscard]] std::byte* staging(int32_t rank, uint64_t round) const;
  [[nodiscard]] std::byte* channel(int32_t rank) const;
  [[nodiscard]] Control& control() const { return *reinterpret_cast<Control*>(mapping_->base()); }
  [[nodiscard]] std::atomic<int64_t>& pid(int32_t rank) const;

  void wait(MarkLine& line, uint64_t value, int32_t peer, const char* what);
  void wait_all(uint32_t internal_mark, uint64_t value, const char* what);
  struct Fault {
    ddh_rc code = DDH_OK;
    std::string sentence;
  };
  // The reason why a rank will never raise its mark; DDH_OK if there is none.
  [[nodiscard]] Fault find_fault(int32_t awaited, const char* what) const;
  void wake_everybody();

  // A round: begin waits until this rank's half may be written; publish makes it available and waits for the other
  // ranks.
  uint64_t begin_round(const char* what);
  void publish(uint64_t round, const char* what);
  void consume(uint64_t round) { mark_raise(line(settings_.rank, kConsumed), round); }
  uint64_t begin_call(const ddh_coll& c, uint32_t kind, const void* payload, uint64_t payload_bytes);
  void check_same_call(uint64_t round, const char* label) const;
  void measure_distance(const ddh_coll& c, uint64_t round);
  // Whether a copy of `n_bytes` into staging bypasses the caches. The answer does not change during a collective.
  [[nodiscard]] bool bypasses_caches(uint64_t n_bytes) const {
    return n_bytes >= kLargeCopyBytes && (settings_.bypass_caches == BypassCaches::always ||
                                          (settings_.bypass_caches == BypassCaches::automatic && distance_.is_far()));
  }
  void stage(std::byte* to, const std::byte* from, uint64_t n) const { stage_bytes(to, from, n, bypasses_caches(n)); }

  // A peer's buffer, if it is in a region.
  [[nodiscard]] std::byte* resolve(uint64_t region, uint64_t offset) const;
  void locate(const void* p, uint64_t& region, uint64_t& offset) const;
  [[nodiscard]] bool all_send_in_regions(uint64_t round) const;
  [[nodiscard]] bool all_recv_in_regions(uint64_t round) const;

  // A message between two ranks; used by sender and receiver.
  struct Message;
  void check_message(const ddh_coll& c, const Message& message, int32_t sender, int32_t receiver) const;

  void gather_pieces(const ddh_coll& c, uint32_t kind, const Pieces& pieces);
  uint64_t agree_on_pieces(const ddh_coll& c);
  void reduce_staged(const ddh_coll& c, uint64_t count);
  void reduce_in_place(const ddh_coll& c, uint64_t round, uint64_t count);

  Memory& memory_;
  const GroupSettings settings_;
  Group* const world_;
  const ControlLayout layout_;
  const SpinPolicy spin_;
  std::unique_ptr<Mapping> mapping_;
  std::vector<std::unique_ptr<Region>> regions_;  // by number; null = destroyed
  std::vector<std::unique_ptr<Offer>> kept_offers_;
  PeerDistance distance_;
  uint64_t round_ = 0;
  uint32_t marks_used_ = 0;
  std::vector<uint64_t> sent_, taken_;  // chunks, per peer
  // Of the call that runs; kept, so that the next call needs no memory.
  Pieces pieces_, received_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

}  // namespace same_host
