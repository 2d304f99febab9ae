// SPDX-License-Identifier: Apache-2.0
//
// transport.hpp: the transport plugin of ranks that exchange messages, over the Links of its derived class.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/comm_groups.hpp"
#include "group.hpp"

namespace messages {

class Transport : public ddh::CommBackend {
 public:
  using CommBackend::CommBackend;

  void init(const ddh_comm_init& args) override;
  ddh_group* world() override { return handle(*world_); }
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) override;
  void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) override;
  void plan(const ddh_comm_init& args, uint32_t n_ranks, ddh_comm_plan& out) override;
  void all_reduce(const ddh_coll& c) override { named(c, &Group::all_reduce); }
  void reduce_scatter(const ddh_coll& c) override { named(c, &Group::reduce_scatter); }
  void all_gather(const ddh_coll& c) override { named(c, &Group::all_gather); }
  void broadcast(const ddh_coll& c) override { named(c, &Group::broadcast); }
  void all_to_all(const ddh_coll& c) override { named(c, &Group::all_to_all); }
  void send_to(const ddh_coll& c) override { named(c, &Group::send); }
  void receive_from(const ddh_coll& c) override { named(c, &Group::receive); }
  void barrier(ddh_group* group) override {
    in_group(of(group), [](Group& g) { g.barrier(); });
  }
  void abort(const char* reason) override;
  void finalize() override { barrier(world()); }

 protected:
  // Connects the members of a group. [collective]
  virtual std::unique_ptr<Links> connect(const ddh_comm_init& args, const ddh::GroupPlace& place) = 0;
  // Whether a rank of the world has aborted, or the launcher has ended the run. For engines that do not notice the end of
  // a link. [any]
  [[nodiscard]] bool has_given_up(int32_t world_rank) const;

 private:
  static Group& of(ddh_group* group) { return ddh::CommGroups<Group>::of(group); }
  static ddh_group* handle(Group& group) { return ddh::CommGroups<Group>::handle(group); }
  void named(const ddh_coll& c, void (Group::*collective)(const ddh_coll&)) {
    in_group(of(c.group), [&](Group& g) { (g.*collective)(c); });
  }
  // A link that is lost becomes a sentence that names the rank.
  template <class Body>
  void in_group(Group& group, const Body& body) {
    require_not_aborted();
    try {
      body(group);
    } catch (const LinkLost& lost) {
      explain(group, lost);
    }
  }
  void require_not_aborted();
  [[noreturn]] void explain(const Group& group, const LinkLost& lost);
  Group& make_group(const ddh::GroupPlace& place, uint32_t reduce_block);
  [[nodiscard]] std::string reason_key(int32_t world_rank) const {
    return ddh::str("end of rank ", world_rank, " of run ", args_.run_id);
  }

  ddh_comm_init args_{};
  std::mutex mutex_;  // of the groups and the reason: abort comes from any thread
  ddh::CommGroups<Group> groups_{host};
  std::string reason_;  // of this rank's abort
  Group* world_ = nullptr;
};

}  // namespace messages
