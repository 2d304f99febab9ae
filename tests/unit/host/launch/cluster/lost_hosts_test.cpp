// SPDX-License-Identifier: Apache-2.0
//
// How a launcher ends a run when it has lost the other one.
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "launch/launch.hpp"

using namespace ddhost;
using namespace std::chrono_literals;

namespace {

int rank_that_waits(RankSeat&) {
  while (true) std::this_thread::sleep_for(10ms);
}

LaunchArgs two_ranks(Cluster& cluster) {
  LaunchArgs args;
  args.world_size = 2;
  args.cluster = &cluster;
  args.failure_grace = 300ms;
  return args;
}

// A run of two launchers, of which the other one fails at once, or is lost.
class FailingCluster final : public Cluster {
 public:
  FailingCluster(bool is_head, bool is_lost) : is_head_(is_head), is_lost_(is_lost) {
    nodes_ = std::make_shared<const Nodes>(std::vector<int32_t>{1, 1});
    mine_ = {is_head ? 0 : 1, 1};
  }
  [[nodiscard]] bool is_head() const override { return is_head_; }
  [[nodiscard]] std::vector<Fd> store_sockets(int count) override {
    std::vector<Fd> out;
    for (int i = 0; i < count; ++i) {
      SocketPair pair = make_socket_pair();
      servers_.push_back(std::move(pair.server));
      out.push_back(std::move(pair.client));
    }
    return is_head_ ? std::vector<Fd>() : std::move(out);
  }
  [[nodiscard]] std::vector<pollfd> poll_set() const override { return {}; }
  [[nodiscard]] int timeout_ms() const override { return 10; }
  [[nodiscard]] ClusterNews serve(const std::vector<pollfd>& /*polled*/) override {
    ClusterNews news;
    if (!std::exchange(has_failed_, true)) news.failures.push_back({"the other host is gone", false, is_lost_});
    if (!is_head_) news.exit_code = 1;
    return news;
  }
  [[nodiscard]] bool waits() const override { return !has_failed_; }
  void tell_failure(const std::string& /*sentence*/, bool /*caused_by_peer*/) override {}
  void tell_signal(int /*number*/) override {}
  void tell_save() override {}
  void tell_end(const AgentEnd& /*end*/) override {}
  [[nodiscard]] bool members_have_begun() const override { return members_have_begun_; }
  // A head whose members have all ranks.
  void give_ranks_away(bool have_begun) {
    mine_ = {0, 0};
    members_have_begun_ = have_begun;
  }
  void forget() override {}

 private:
  const bool is_head_, is_lost_;
  bool has_failed_ = false, members_have_begun_ = false;
  std::vector<Fd> servers_;
};

}  // namespace

TEST_CASE("a host that is lost before the first step ends a run, unless it has started again", "[launch]") {
  const auto end_of = [](bool is_restart, bool is_lost) {
    FailingCluster cluster(/*is_head=*/true, is_lost);
    LaunchArgs args = two_ranks(cluster);
    args.may_restart = true;
    args.is_restart = is_restart;
    const Outcome end = launch(args, rank_that_waits);
    CHECK(end.exit_code == 1);
    CHECK_FALSE(end.lost_head);
    return end.again;
  };
  CHECK(end_of(/*is_restart=*/true, /*is_lost=*/true));
  CHECK_FALSE(end_of(/*is_restart=*/false, /*is_lost=*/true));
  CHECK_FALSE(end_of(/*is_restart=*/true, /*is_lost=*/false));
}

TEST_CASE("the ranks of other hosts start again only if one of them had begun its work", "[launch]") {
  const bool have_begun = GENERATE(false, true);
  FailingCluster cluster(/*is_head=*/true, /*is_lost=*/false);
  cluster.give_ranks_away(have_begun);
  LaunchArgs args = two_ranks(cluster);
  args.may_restart = true;
  const Outcome end = launch(args, rank_that_waits);
  CHECK(end.exit_code == 1);
  CHECK(end.again == have_begun);
}

TEST_CASE("a member that has lost the head does not know how the run has ended", "[launch]") {
  const bool is_lost = GENERATE(false, true);
  FailingCluster cluster(/*is_head=*/false, is_lost);
  const Outcome end = launch(two_ranks(cluster), rank_that_waits);
  CHECK(end.exit_code == 1);
  CHECK(end.lost_head == is_lost);
}
