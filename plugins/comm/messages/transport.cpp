// SPDX-License-Identifier: Apache-2.0
#include "transport.hpp"

namespace messages {
namespace {

constexpr uint32_t kReasonTimeoutMs = 500;
constexpr uint32_t kCaps = DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;  // ranks share no pages

}  // namespace

void Transport::init(const ddh_comm_init& args) {
  args_ = args;
  groups_.init(args, args.timeout_ms);
  world_ = &make_group(groups_.world(), args.reduce_block);
}

// reduce_block applies to the group of all ranks; any other group is one block.
ddh_group* Transport::group_create(const char* name, const int32_t* ranks, uint32_t n) {
  return handle(make_group(groups_.place(name, {ranks, ranks + n}), n));
}

void Transport::group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) {
  rank = of(group).rank();
  size = of(group).size();
  caps = kCaps;
}

void Transport::plan(const ddh_comm_init&, uint32_t n_ranks, ddh_comm_plan& out) {
  out.caps = kCaps;
  out.bytes = Group::bytes(n_ranks);
}

Group& Transport::make_group(const ddh::GroupPlace& place, uint32_t reduce_block) {
  std::unique_ptr<Links> links = place.size() > 1 ? connect(args_, place) : nullptr;
  auto made =
      std::make_unique<Group>(Group::Member{place.name, place.ranks, place.rank, reduce_block}, std::move(links));
  if (host.alloc != nullptr)
    host.alloc->account(host.h, DDH_TAG_COMM, static_cast<int64_t>(Group::bytes(static_cast<uint32_t>(place.size()))));
  const std::lock_guard lock(mutex_);
  return groups_.add(std::move(made));
}

// The reason is stored before the links end: a rank that sees their end finds it.
void Transport::abort(const char* reason) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) return;
  reason_ = *reason == '\0' ? "no reason was given" : reason;
  ddh::ErrorBuffer ignored;  // without the reason the others still see that the links end
  host.kv->set(host.h, reason_key(args_.rank).c_str(), reason_.data(), reason_.size(), ignored.get());
  for (const auto& group : groups_) group->end();
}

void Transport::require_not_aborted() {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) ddh::fail(DDH_ABORTED, reason_);
}

bool Transport::has_given_up(int32_t world_rank) const {
  char first = 0;
  uint64_t bytes = 0;  // the reason is not wanted yet: a value that does not fit is a value
  ddh::ErrorBuffer err;
  const ddh_rc rc = host.kv->get(host.h, reason_key(world_rank).c_str(), &first, &bytes, 0, err.get());
  return rc != DDH_DEADLINE_EXCEEDED;
}

void Transport::explain(const Group& group, const LinkLost& lost) {
  require_not_aborted();
  const int32_t peer = group.world_rank(lost.peer);
  std::string reason(4096, '\0');
  uint64_t bytes = reason.size();
  ddh::ErrorBuffer err;
  const ddh_rc rc = host.kv->get(host.h, reason_key(peer).c_str(), reason.data(), &bytes, kReasonTimeoutMs, err.get());
  if (rc == DDH_OK) ddh::fail(DDH_ABORTED, reason.substr(0, bytes));
  if (rc == DDH_ABORTED) err.check(rc);  // the launcher knows why
  ddh::fail(DDH_UNAVAILABLE, "the connection to rank ", peer,
            " has ended and the rank gave no reason, so its process or ", "its machine is gone (", lost.what(), ")");
}

}  // namespace messages
