// SPDX-License-Identifier: Apache-2.0
//
// Whether the plans of ranks fit into what they share: a device, a process, the machine.
#include "engine/loop/memory_fit.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/text.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"

using namespace ddhost;
using Catch::Contains;

namespace {

constexpr uint64_t kMuch = UINT64_MAX;

SeenMemory rank_on(int rank, const char* uuid, uint64_t device_left, uint64_t optim) {
  SeenMemory seen{};
  seen.planned.rank = rank;
  seen.planned.optim = optim;
  seen.device.free_bytes = device_left;
  std::strncpy(seen.device.name, "a GPU", sizeof seen.device.name - 1);
  std::memcpy(seen.device.uuid, uuid, std::strlen(uuid));
  seen.addresses_left = seen.host_left = kMuch;
  return seen;
}

const FitQuestion kGpus{"gpu", true, false};

class Seat {
 public:
  Seat(const Nodes& nodes, int rank)
      : record_(progress_, rank), seat_{rank, std::make_shared<Nodes>(nodes), kv_, record_, 0} {}
  [[nodiscard]] const RankSeat& get() const { return seat_; }

 private:
  KvLocal kv_;
  Progress progress_{2};
  ProgressOfRank record_;
  RankSeat seat_;
};

}  // namespace

TEST_CASE("ranks on one device share its memory, and ranks on two do not", "[unit]") {
  const std::vector<SeenMemory> apart = {rank_on(0, "A", 100, 60), rank_on(1, "B", 100, 60)};
  CHECK_FALSE(first_shortage(apart, kGpus).has_value());
  const std::vector<SeenMemory> unknown = {rank_on(0, "", 100, 60), rank_on(1, "", 100, 60)};
  CHECK_FALSE(first_shortage(unknown, kGpus).has_value());
  const std::vector<SeenMemory> together = {rank_on(0, "A", 100, 60), rank_on(1, "A", 100, 60)};
  const std::optional<DoesNotFit> found = first_shortage(together, kGpus);
  REQUIRE(found.has_value());
  CHECK(found->shortage.kind == MemoryKind::kDevice);
  CHECK(found->shortage.bytes_left == 100);
  CHECK(found->shortage.n_ranks == 2);
  CHECK_THAT(found->sentence, Contains("2 ranks will take 120 bytes more") && Contains("device 'gpu' (a GPU)") &&
                                  Contains("100 bytes of memory left") && Contains("suffice for optim"));
}

TEST_CASE("pinned memory does not count for the device", "[unit]") {
  std::vector<SeenMemory> ranks = {rank_on(0, "A", 50, 60)};
  REQUIRE(first_shortage(ranks, kGpus).has_value());
  ranks[0].planned.pinned = 20;
  CHECK_FALSE(first_shortage(ranks, kGpus).has_value());
}

TEST_CASE("ranks that are threads share the addresses of a process", "[unit]") {
  std::vector<SeenMemory> ranks = {rank_on(0, "", 0, 60), rank_on(1, "", 0, 60)};
  const uint64_t reserve = reserve_of_rank({}, MemoryKind::kAddresses, false);
  for (SeenMemory& rank : ranks) rank.addresses_left = 100 + 2 * reserve;
  CHECK_FALSE(first_shortage(ranks, {"cpu", false, false}).has_value());
  const std::optional<DoesNotFit> found = first_shortage(ranks, {"cpu", false, true});
  REQUIRE(found.has_value());
  CHECK(found->shortage.kind == MemoryKind::kAddresses);
  CHECK(found->shortage.n_ranks == 2);
}

TEST_CASE("pages that ranks share count once on the machine, and in each process", "[unit]") {
  RankMemory rank;
  rank.param = 100, rank.shared = 75, rank.grad = 10;
  CHECK(sum(rank.in(MemoryKind::kHost, false)) == 35);
  CHECK(sum(rank.in(MemoryKind::kAddresses, false)) == 110);
  CHECK(sum(rank.in(MemoryKind::kDevice, false)) == 0);
}

TEST_CASE("what the machine has not is refused, with the tag that takes it", "[unit]") {
  std::vector<SeenMemory> ranks = {rank_on(0, "", 0, 8)};
  ranks[0].planned.grad = uint64_t{1} << 60;
  see_host(ranks[0], Seat(Nodes(1, 0), 0).get());
  const std::optional<DoesNotFit> found = first_shortage(ranks, {"cpu", false, false});
  REQUIRE(found.has_value());
  CHECK(found->shortage.kind == MemoryKind::kHost);
  CHECK_THAT(found->sentence, Contains("rank 0 will take") && Contains("suffice for grad"));
}

TEST_CASE("each host has its own memory, and its name is in the error", "[unit]") {
  const uint64_t reserve = reserve_of_rank({}, MemoryKind::kHost, false);
  std::vector<SeenMemory> ranks = {rank_on(0, "", 0, 60), rank_on(1, "", 0, 60)};
  for (SeenMemory& rank : ranks) rank.host_left = 60 + reserve;
  CHECK(first_shortage(ranks, {"cpu", false, false}).has_value());  // both on one
  Nodes nodes(2, 1);
  see_host(ranks[1], Seat(nodes, 1).get());
  CHECK(ranks[1].host == 0);  // simulated nodes
  nodes.set_addresses({"10.0.0.1", "10.0.0.2"});
  see_host(ranks[1], Seat(nodes, 1).get());
  CHECK(ranks[1].host == 1);
  ranks[1].host_left = 60 + reserve;
  CHECK_FALSE(first_shortage(ranks, {"cpu", false, false}).has_value());
  --ranks[1].host_left;
  const std::optional<DoesNotFit> found = first_shortage(ranks, {"cpu", false, false});
  REQUIRE(found.has_value());
  CHECK_THAT(found->sentence, Contains("rank 1 will take") && Contains("(host 10.0.0.2) has"));
}

TEST_CASE("a run needs a reserve for each rank, which its error names", "[unit]") {
  const uint64_t reserve = reserve_of_rank({}, MemoryKind::kAddresses, false);
  CHECK(reserve > 0);
  CHECK(reserve_of_rank({}, MemoryKind::kDevice, true) == 0);
  std::vector<SeenMemory> ranks = {rank_on(0, "", 0, 60)};
  ranks[0].addresses_left = 60 + reserve;
  CHECK_FALSE(first_shortage(ranks, {"cpu", false, false}).has_value());
  --ranks[0].addresses_left;
  const std::optional<DoesNotFit> found = first_shortage(ranks, {"cpu", false, false});
  REQUIRE(found.has_value());
  CHECK_THAT(found->sentence, Contains("a reserve of " + bytes_text(reserve) + " for heaps and libraries") &&
                                  Contains("does not suffice for this reserve"));
}

TEST_CASE("the reserve grows with activations in the host's memory", "[unit]") {
  RankMemory small, large;
  large.act = uint64_t{1} << 30;
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kAddresses}) {
    const uint64_t none = reserve_of_rank(small, kind, false), share = reserve_of_rank(large, kind, false) - none;
    CHECK(share > large.act / 4);
    CHECK(share < large.act);
    CHECK(reserve_of_rank(large, kind, true) == none);  // they are in the device's
  }
  CHECK(reserve_of_rank(large, MemoryKind::kDevice, true) == 0);
}

TEST_CASE("checkpoints take memory of the host beside the ranks, and of the process that copies", "[unit]") {
  const uint64_t reserve = reserve_of_rank({}, MemoryKind::kHost, false);
  std::vector<SeenMemory> ranks = {rank_on(0, "", 0, 60), rank_on(1, "", 0, 60)};
  FitQuestion question{"cpu", false, false, {}};
  question.checkpoints = {1000, 90, 8};  // those in memory, the copies of all ranks, what each rank takes beside
  for (SeenMemory& rank : ranks) rank.host_left = 120 + 2 * reserve + 1000 + 90 + 2 * 8;
  CHECK_FALSE(first_shortage(ranks, question).has_value());
  for (SeenMemory& rank : ranks) --rank.host_left;
  const std::optional<DoesNotFit> host = first_shortage(ranks, question);
  REQUIRE(host.has_value());
  CHECK_THAT(host->sentence, Contains("without 1106 bytes for checkpoints, has"));
  // A rank copies no more than it holds: 60 of 90.
  for (SeenMemory& rank : ranks) rank.host_left = kMuch;
  const uint64_t addresses = reserve_of_rank({}, MemoryKind::kAddresses, false);
  ranks[1].addresses_left = 60 + addresses + 60 + 8;
  CHECK_FALSE(first_shortage(ranks, question).has_value());
  --ranks[1].addresses_left;
  const std::optional<DoesNotFit> process = first_shortage(ranks, question);
  REQUIRE(process.has_value());
  CHECK_THAT(process->sentence, Contains("rank 1 will take") && Contains("without 68 bytes for checkpoints, has"));
  question.ranks_are_threads = true;  // then they share the copies: 90 and twice 8
  for (SeenMemory& rank : ranks) rank.addresses_left = 120 + 2 * addresses + 106;
  CHECK_FALSE(first_shortage(ranks, question).has_value());
  for (SeenMemory& rank : ranks) --rank.addresses_left;
  CHECK(first_shortage(ranks, question).has_value());
}
