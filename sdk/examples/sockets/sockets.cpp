// SPDX-License-Identifier: Apache-2.0
//
// sockets: a transport whose ranks are processes of one machine that share nothing but connections (Unix sockets). Each
// group has connections of its own, so the calls of different groups never mix.
//
//   ddhost --comm ./sockets.so --nproc 4
//
// mesh.hpp has the connections, collectives.hpp what is sent over them, fold.hpp the order of sums. This file is the
// plugin: groups, and how a rank's end reaches the others.
#include <list>
#include <mutex>

#include "collectives.hpp"
#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/comm_groups.hpp"

namespace sockets {
namespace {

constexpr uint32_t kReasonTimeoutMs = 500;
constexpr uint32_t kCaps = DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;  // no DDH_COMM_SHARED_VIEW: ranks share no pages

Group& of(ddh_group* group) { return *reinterpret_cast<Group*>(group); }
ddh_group* handle(Group& group) { return reinterpret_cast<ddh_group*>(&group); }

class Sockets final : public ddh::CommBackend {
 public:
  using CommBackend::CommBackend;

  void init(const ddh_comm_init& args) override {
    args_ = args;
    places_.init(args, kJoinTimeoutMs);
    world_ = &make_group(places_.world(), args.reduce_block);
  }
  ddh_group* world() override { return handle(*world_); }
  // reduce_block applies to the group of all ranks; any other group is one block.
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) override {
    return handle(make_group(places_.place(name, {ranks, ranks + n}), n));
  }
  void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) override {
    rank = of(group).mesh.rank();
    size = of(group).mesh.size();
    caps = kCaps;
  }
  void plan(const ddh_comm_init&, uint32_t, ddh_comm_plan& out) override { out.caps = kCaps; }  // no memory of its own

  void all_reduce(const ddh_coll& c) override { sockets::all_reduce(of(c.group), c); }
  void reduce_scatter(const ddh_coll& c) override { sockets::reduce_scatter(of(c.group), c); }
  void all_gather(const ddh_coll& c) override { sockets::all_gather(of(c.group), c); }
  void broadcast(const ddh_coll& c) override { sockets::broadcast(of(c.group), c); }
  void all_to_all(const ddh_coll& c) override { sockets::all_to_all(of(c.group), c); }
  void send_to(const ddh_coll& c) override { sockets::send(of(c.group), c); }
  void receive_from(const ddh_coll& c) override { sockets::recv(of(c.group), c); }
  void barrier(ddh_group* group) override { sockets::barrier(of(group)); }

  // The reason is stored before the connections end: a rank that sees their end finds it.
  void abort(const char* reason) override {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
    ddh::ErrorBuffer ignored;  // without the reason the others still see that the connections end
    host.kv->set(host.h, reason_key(args_.rank).c_str(), reason_.data(), reason_.size(), ignored.get());
    for (Group& group : groups_) group.mesh.end();
  }
  // After it no rank expects anything of another one.
  void finalize() override { sockets::barrier(*world_); }

 private:
  Group& make_group(ddh::GroupPlace place, uint32_t block) {
    if (block == 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "group '", place.name,
                "' has blocks of 0 ranks; give a reduce_block of at least 1");
    Mesh mesh(host, {std::move(place.key), std::move(place.ranks), place.rank, args_.run_id},
              [this](int32_t peer) { lost(peer); });
    const std::lock_guard lock(mutex_);
    Group& made = groups_.emplace_back(std::move(mesh), block);
    if (host.alloc != nullptr) host.alloc->account(host.h, DDH_TAG_COMM, static_cast<int64_t>(made.scratch.size()));
    return made;
  }

  // A connection has ended: this rank or the peer gave up, or the peer's process is dead.
  [[noreturn]] void lost(int32_t peer) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) ddh::fail(DDH_ABORTED, reason_);
    }
    std::string reason(4096, '\0');
    uint64_t bytes = reason.size();
    ddh::ErrorBuffer err;
    if (host.kv->get(host.h, reason_key(peer).c_str(), reason.data(), &bytes, kReasonTimeoutMs, err.get()) == DDH_OK)
      ddh::fail(DDH_ABORTED, reason.substr(0, bytes));
    ddh::fail(DDH_UNAVAILABLE, "rank ", peer,
              " closed its connection and gave no reason, so its process has ended; its log "
              "says more");
  }
  [[nodiscard]] std::string reason_key(int32_t rank) const {
    return ddh::str("end of rank ", rank, " of run ", args_.run_id);
  }

  ddh_comm_init args_{};
  ddh::GroupPlaces places_{host};
  std::mutex mutex_;         // abort comes from any thread
  std::list<Group> groups_;  // their addresses are handles
  std::string reason_;       // of this rank's abort
  Group* world_ = nullptr;
};

constexpr const char* kNeeds[] = {DDH_KV_IFACE, nullptr};
// Memory is counted where the host gives the service.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace
}  // namespace sockets

DDH_CXX_PLUGIN(sockets::Sockets, comm, "sockets", "0.1.0", "ranks are processes that talk over Unix sockets", nullptr,
               sockets::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_SINGLE_HOST, .wants = sockets::kWants);
