// SPDX-License-Identifier: Apache-2.0
//
// The transport plugin of ranks on one machine, over the Memory of its derived class.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/comm_groups.hpp"
#include "ddh/sdk/options.hpp"
#include "group.hpp"

namespace same_host {

class Transport : public ddh::CommShared {
 public:
  Transport(const ddh_create& create, std::unique_ptr<Memory> memory);

  void init(const ddh_comm_init& args) override;
  ddh_group* world() override { return handle(*world_.load()); }
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) override;
  void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) override;
  void all_reduce(const ddh_coll& args) override { of(args.group).all_reduce(args); }
  void reduce_scatter(const ddh_coll& args) override { of(args.group).reduce_scatter(args); }
  void all_gather(const ddh_coll& args) override { of(args.group).all_gather(args); }
  void broadcast(const ddh_coll& args) override { of(args.group).broadcast(args); }
  void all_to_all(const ddh_coll& args) override { of(args.group).all_to_all(args); }
  void send_to(const ddh_coll& args) override { of(args.group).send(args); }
  void receive_from(const ddh_coll& args) override { of(args.group).recv(args); }
  void barrier(ddh_group* group) override { of(group).barrier(); }
  void abort(const char* reason) override;
  void finalize() override { world_.load()->barrier(); }
  void plan(const ddh_comm_init& args, uint32_t n_ranks, ddh_comm_plan& out) override;

  ddh_region* region_create(ddh_group* group, const char* name, uint64_t bytes, void*& base) override;
  void region_destroy(ddh_region* region) override;
  uint32_t marks_create(ddh_group* group, uint32_t n) override { return of(group).marks_create(n); }
  void mark_set(ddh_group* group, uint32_t mark, uint64_t value) override { of(group).mark_set(mark, value); }
  void mark_wait(ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what) override {
    of(group).mark_wait(peer, mark, value, what);
  }

 private:
  // The type of ddh_region. It has a pointer to its group, for destroy.
  struct RegionHandle {
    Group* group;
    Region* region;
  };

  static Group& of(ddh_group* group) { return ddh::CommGroups<Group>::of(group); }
  static ddh_group* handle(Group& group) { return ddh::CommGroups<Group>::handle(group); }
  Group& make_group(ddh::GroupPlace place, uint32_t reduce_block);
  [[nodiscard]] uint64_t staging_bytes() const {
    return ControlLayout::align(static_cast<uint64_t>(options.i64("staging_bytes")));
  }

  std::unique_ptr<Memory> memory_;
  int32_t first_rank_ = 0;  // of the run, for messages
  ddh::CommGroups<Group> groups_{host};
  std::vector<std::unique_ptr<RegionHandle>> regions_;
  std::atomic<Group*> world_{nullptr};  // abort may come from any thread
};

// The options of both transports.
inline constexpr ddh::Option kOptions[] = {
    {"spin_us", "integer", "20", R"("minimum": 0, "maximum": 1000000, "x-unit": "us")",
     "time that a wait spins before it sleeps; a rank that shares its core yields it meanwhile"},
    {"staging_bytes", "integer", "1048576",
     R"("minimum": 65536, "maximum": 1073741824, "x-unit": "bytes", "x-affects": "memory")",
     "size of each of a rank's three buffers: two for staging, one for send"},
    {"bypass_caches", "string", R"("auto")", R"("enum": ["auto", "always", "never"])",
     "whether large pieces go into staging past the caches; auto: where the cores of the ranks share no cache, as "
     "measured at large collectives"},
};

}  // namespace same_host
