// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/layered_comm.hpp: the ranks of a run on several hosts over two transports, as one. It has the tables of
// a transport. Groups inside a host belong to the transport inside the host, with its shared pages; all others to the one
// between hosts. Large collectives of all ranks use both (layers/core.hpp).
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "ddh/ddh.h"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/sent_bytes.hpp"
#include "engine/services/comm/layers/core.hpp"
#include "engine/services/memory/memory.hpp"

namespace ddhost {

// The init of the transport inside a host, made of that of the run.
class InitInside {
 public:
  InitInside(const ddh_comm_init& run, const Nodes& nodes);
  InitInside(const InitInside&) = delete;
  InitInside& operator=(const InitInside&) = delete;
  [[nodiscard]] const ddh_comm_init& get() const { return init_; }

 private:
  const std::vector<int32_t> node_of_;  // all 0
  ddh_comm_init init_;
};

class LayeredComm {
 public:
  // An initialized transport, which outlives this object.
  struct Transport {
    ddh_inst* inst;
    const ddh_comm_backend_api* backend;
    const ddh_comm_shared_api* shared;  // nullptr: its ranks share no pages
  };
  // `between` connects all ranks, `inside` those of this rank's host. `nodes`, `clock` and `memory`, which count what it sends
  // and takes, outlive this object. [collective]
  LayeredComm(const Transport& inside, const Transport& between, const Nodes& nodes, int32_t rank,
              uint32_t reduce_block, Clock& clock, Memory& memory);
  LayeredComm(const LayeredComm&) = delete;
  LayeredComm& operator=(const LayeredComm&) = delete;
  ~LayeredComm();

  [[nodiscard]] ddh_inst* inst() { return reinterpret_cast<ddh_inst*>(this); }
  [[nodiscard]] static const ddh_comm_backend_api& table();
  [[nodiscard]] static const ddh_comm_shared_api& shared_table();
  // Of its own buffers on this rank.
  [[nodiscard]] static uint64_t bytes(const Nodes& nodes, int32_t rank);
  // Of the ranks in a group, whether one host has all of them.
  [[nodiscard]] static bool is_inside(const Nodes& nodes, const int32_t* ranks, uint32_t n);
  // In which order hosts take part in a sum, by the sizes of the hosts. A transport inside that can't do it makes it kFlat.
  [[nodiscard]] static layers::SumOrder order_of(const Nodes& nodes, uint32_t reduce_block);
  // How the sums of this run go over the hosts, and why: a sentence for people.
  [[nodiscard]] std::string order_text() const;

 private:
  using Slot = layers::Layer::Slot;
  struct Group {
    layers::Layer layer;
    bool is_world = false;
  };
  struct DestroyRegion {
    Transport transport;
    void operator()(ddh_region* region) const { transport.shared->region_destroy(transport.inst, region); }
  };

  static LayeredComm& of(ddh_inst* inst) { return *reinterpret_cast<LayeredComm*>(inst); }
  static Group& of(ddh_group* group) { return *reinterpret_cast<Group*>(group); }
  static ddh_group* handle(Group& group) { return reinterpret_cast<ddh_group*>(&group); }
  template <void (LayeredComm::*Collective)(const ddh_coll&)>
  static ddh_rc call(ddh_inst* inst, const ddh_coll* args, ddh_err* err) noexcept {
    return ddh::guard(err, [&] { (of(inst).*Collective)(*args); });
  }
  static ddh_comm_backend_api make_table();
  static ddh_comm_shared_api make_shared_table();

  // Why the transport inside can't do the sums of order_; "": it can.
  [[nodiscard]] std::string missing_for_sums() const;
  void make_core();
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n);
  void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps);
  void all_reduce(const ddh_coll& c);
  void reduce_scatter(const ddh_coll& c);
  void all_gather(const ddh_coll& c);
  void broadcast(const ddh_coll& c);
  void all_to_all(const ddh_coll& c);
  void send(const ddh_coll& c) { point_to_point(&ddh_comm_backend_api::send, "send", c, /*sends=*/true); }
  void recv(const ddh_coll& c) { point_to_point(&ddh_comm_backend_api::recv, "recv", c, /*sends=*/false); }
  void point_to_point(Slot slot, const char* name, const ddh_coll& c, bool sends);
  void barrier(ddh_group* group);
  void abort(const char* reason);
  void finalize();

  // Whether the layers do this sum of all ranks, of `count` elements.
  [[nodiscard]] bool is_layered_sum(const ddh_coll& c, uint64_t count) const;
  [[nodiscard]] std::vector<uint64_t> counts_of(const ddh_coll& c) const;
  void sum(const layers::SumCall& call);
  void gather(const ddh_coll& c, const std::vector<uint64_t>& counts, const void* mine);
  // Counts what the layers have sent since the last call.
  void count_layers();
  void count(uint64_t wire_bytes);
  [[nodiscard]] ddh::GroupRanks ranks() const {  // all
    return ddh::GroupRanks::strided(0, 1, places_.world_size(), places_.rank(), places_.nodes().node_of().data());
  }
  const Transport inside_, between_;
  const layers::Places places_;
  const uint32_t reduce_block_;
  layers::SumOrder order_;
  std::string lack_;  // of the transports, for the layers; "": nothing
  Clock& clock_;
  Memory& memory_;
  std::deque<Group> groups_;  // elements stay in place; the first has all ranks
  layers::Layer inside_world_;
  std::unique_ptr<std::byte[]> own_pack_;
  std::unique_ptr<ddh_region, DestroyRegion> pack_region_;
  std::unique_ptr<layers::Core> core_;  // nullptr: a transport lacks what it needs
  uint64_t counted_ = 0;
};

}  // namespace ddhost
