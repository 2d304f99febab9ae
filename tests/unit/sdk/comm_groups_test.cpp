// SPDX-License-Identifier: Apache-2.0
//
// The places of ranks in groups, and the keys by which they find each other (ddh/sdk/comm_groups.hpp).
#include "ddh/sdk/comm_groups.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "fixtures/harness/fake_host.hpp"

using namespace ddhost::test;
using Catch::Matchers::Contains;

namespace {

// A rank of a run of three, with the store that all of them share.
struct Rank {
  Rank(int32_t rank, std::shared_ptr<FakeKv> kv, uint64_t run_id = 7) : fake({}, std::move(kv)), host(fake.get()) {
    ddh_comm_init args{};
    args.struct_size = sizeof args;
    args.rank = rank, args.world_size = 3, args.run_id = run_id;
    groups.init(args, 1000);
  }
  FakeHost fake;
  const ddh::Host host;
  ddh::CommGroups<std::string> groups{host};
};

}  // namespace

TEST_CASE("members of a group have one key, and every group another") {
  const auto kv = std::make_shared<FakeKv>();
  Rank first(0, kv), last(2, kv), of_another_run(0, kv, 8);
  std::set<std::string> keys;
  for (const auto& [name, ranks] : std::vector<std::pair<std::string, std::vector<int32_t>>>{
           {"pair", {0, 2}}, {"pair", {0, 2}}, {"other", {0, 2}}, {"pair", {0, 1, 2}}}) {
    const ddh::GroupPlace mine = first.groups.place(name, ranks), theirs = last.groups.place(name, ranks);
    CHECK(mine.name == name);
    CHECK(mine.key == theirs.key);
    CHECK(mine.rank == 0);
    CHECK(theirs.rank == theirs.size() - 1);
    CHECK(theirs.ranks == ranks);
    CHECK(keys.insert(mine.key).second);
    CHECK(keys.insert(of_another_run.groups.place(name, ranks).key).second);
  }
  const ddh::GroupPlace world = last.groups.world();
  CHECK(world.ranks == std::vector<int32_t>{0, 1, 2});
  CHECK(world.rank == 2);
}

TEST_CASE("the first member's value is the value of all members") {
  const auto kv = std::make_shared<FakeKv>();
  Rank first(0, kv), last(2, kv);
  const ddh::GroupPlace mine = first.groups.place("pair", {0, 2}), theirs = last.groups.place("pair", {0, 2});
  CHECK(first.groups.share<int>(mine, [] { return 41; }) == 41);
  CHECK(last.groups.share<int>(theirs, []() -> int { throw std::logic_error("made twice"); }) == 41);
}

TEST_CASE("wrong members of a group are refused") {
  Rank rank(1, std::make_shared<FakeKv>());
  for (const std::vector<int32_t>& ranks :
       std::vector<std::vector<int32_t>>{{}, {0, 2}, {1, 0}, {1, 1}, {-1, 1}, {1, 3}})
    CHECK_THROWS_WITH(rank.groups.place("odd", ranks),
                      Contains("group 'odd' needs ascending ranks below 3 with rank 1"));
}

TEST_CASE("groups keep their addresses, which are handles") {
  Rank rank(0, std::make_shared<FakeKv>());
  std::string& first = rank.groups.add(std::make_unique<std::string>("first"));
  ddh_group* const handle = ddh::CommGroups<std::string>::handle(first);
  for (int i = 0; i < 100; ++i) rank.groups.add(std::make_unique<std::string>("more"));
  CHECK(ddh::CommGroups<std::string>::of(handle) == "first");
  CHECK(**rank.groups.begin() == "first");
}
