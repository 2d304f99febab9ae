// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/comm.hpp: the C++ base class of a transport. Each virtual function is the slot of that name in
// ddh/kind/comm.h, which documents it, but for three that would hide functions of the C library: send_to is `send`,
// receive_from is `recv`, and check is `poll`. A transport whose ranks share memory derives from CommShared, every other from
// CommBackend. Failures are thrown; DDH_UNAVAILABLE and DDH_ABORTED are fatal for all ranks.
#pragma once

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class CommBackend : public Instance {
 public:
  using Instance::Instance;
  virtual void init(const ddh_comm_init& args) = 0;
  [[nodiscard]] virtual ddh_group* world() = 0;
  [[nodiscard]] virtual ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) = 0;
  virtual void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) = 0;
  virtual void all_reduce(const ddh_coll& args) = 0;
  virtual void reduce_scatter(const ddh_coll& args) = 0;
  virtual void all_gather(const ddh_coll& args) = 0;
  virtual void broadcast(const ddh_coll& args) = 0;
  virtual void all_to_all(const ddh_coll& args) = 0;
  virtual void send_to(const ddh_coll& args) = 0;
  virtual void receive_from(const ddh_coll& args) = 0;
  virtual void barrier(ddh_group* group) = 0;
  virtual void abort(const char* reason) = 0;
  virtual void finalize() = 0;
  virtual void buffer_register(ddh_group* /*group*/, void* /*p*/, uint64_t /*bytes*/) {}
  virtual void buffer_unregister(ddh_group* /*group*/, void* /*p*/) {}
  [[nodiscard]] virtual void* buffer_allocate(ddh_group* /*group*/, uint64_t /*bytes*/) { return nullptr; }
  virtual void buffer_release(ddh_group* /*group*/, void* /*p*/) {}
  virtual void check() {}
  // Called instead of init. Error: by default DDH_UNIMPLEMENTED, "not known".
  virtual void plan(const ddh_comm_init& args, uint32_t n_ranks, ddh_comm_plan& out);

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

class CommShared : public CommBackend {
 public:
  using CommBackend::CommBackend;
  [[nodiscard]] virtual ddh_region* region_create(ddh_group* group, const char* name, uint64_t bytes, void*& base) = 0;
  virtual void region_destroy(ddh_region* region) = 0;
  [[nodiscard]] virtual uint32_t marks_create(ddh_group* group, uint32_t n) = 0;
  virtual void mark_set(ddh_group* group, uint32_t mark, uint64_t value) = 0;
  virtual void mark_wait(ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what) = 0;

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
