// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/comm_groups.hpp: the groups of a transport: who their members are, how these find each other through ddh.kv, and
// the handles that the host gets.
//
//   groups_.init(args, kTimeoutMs);                                  // in CommBackend::init
//   const ddh::GroupPlace place = groups_.place(name, {ranks, ranks + n});
//   const Address address = groups_.share<Address>(place, [] { return listen(); });
//   return groups_.handle(groups_.add(std::make_unique<Group>(place, address)));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A new group, as this rank sees it.
struct GroupPlace {
  std::string name;            // for messages
  std::string key;             // for ddh.kv: the same on all members, and used by no other group of the run
  std::vector<int32_t> ranks;  // of the members in the world, ascending
  int32_t rank = 0;            // this rank's index in `ranks`
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(ranks.size()); }
};

// Makes places, and exchanges values of at most 1 MiB. Used on the main thread.
class GroupPlaces {
 public:
  // `host` outlives the object.
  explicit GroupPlaces(const Host& host) : host_(host) {}

  // Before all other functions. A rank waits at most `timeout_ms` for a value of another one.
  void init(const ddh_comm_init& args, uint32_t timeout_ms);
  // The group of all ranks, "world".
  [[nodiscard]] GroupPlace world();
  // `ranks`: of the members. Every member makes its groups of one name and the same ranks in the same order. Error: ranks
  // that are not ascending, not in the world, or without this rank.
  [[nodiscard]] GroupPlace place(std::string name, std::vector<int32_t> ranks);

  template <class T>
  void set(const std::string& key, const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>, "the bytes of a value go to other processes");
    call(host_.kv->set, host_.h, key.c_str(), &value, uint64_t{sizeof value});
  }
  // Waits until a rank has set it. Error: DDH_DEADLINE_EXCEEDED.
  template <class T>
  [[nodiscard]] T get(const std::string& key) const {
    static_assert(std::is_trivially_copyable_v<T>, "the bytes of a value come from other processes");
    T value{};
    uint64_t bytes = sizeof value;
    call(host_.kv->get, host_.h, key.c_str(), &value, &bytes, timeout_ms_);
    return value;
  }
  // The value that `make` gives on the first member of a group, on all members. [collective of the group]
  template <class T, class Make>
  [[nodiscard]] T share(const GroupPlace& place, const Make& make) const {
    if (place.rank != 0) return get<T>(place.key);
    const T value = make();
    set(place.key, value);
    return value;
  }

 private:
  const Host& host_;
  int32_t rank_ = 0, world_size_ = 0;
  uint64_t run_id_ = 0;
  uint32_t timeout_ms_ = 0;
  std::map<std::string, int> made_;  // groups of one name and the same members
};

// The same, and the groups themselves, which live as long as this. A ddh_group* points to a Group.
template <class Group>
class CommGroups : public GroupPlaces {
 public:
  using GroupPlaces::GroupPlaces;

  Group& add(std::unique_ptr<Group> group) { return *groups_.emplace_back(std::move(group)); }
  [[nodiscard]] auto begin() const { return groups_.begin(); }  // in the order of add
  [[nodiscard]] auto end() const { return groups_.end(); }

  static Group& of(ddh_group* group) { return *reinterpret_cast<Group*>(group); }
  static ddh_group* handle(Group& group) { return reinterpret_cast<ddh_group*>(&group); }

 private:
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
