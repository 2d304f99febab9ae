// SPDX-License-Identifier: Apache-2.0
//
// A member: it finds the head, gets its ranks from it, and ends with its verdict.
#include <thread>

#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/control_link.hpp"
#include "launch/cluster/door.hpp"

namespace ddhost {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{50};

class AsMember final : public Cluster {
 public:
  AsMember(const Placement& placement, const ClusterSettings& settings) : placement_(placement), settings_(settings) {
    const auto deadline = SteadyClock::now() + settings.timeout;
    find_head(deadline);
    wait_for_start(deadline);
  }

  [[nodiscard]] bool is_head() const override { return false; }

  [[nodiscard]] std::vector<Fd> store_sockets(int count) override {
    std::vector<Fd> sockets;
    for (int i = 0; i < count; ++i) {
      Admission admission = enter(meeting_.at, meeting_.token, GuestKind::kStore, placement_.task,
                                  SteadyClock::now() + settings_.timeout);
      if (!admission.socket)
        ddh::fail(DDH_UNAVAILABLE, "the head of the run at ", meeting_.at.text(),
                  " can't be reached: ", admission.problem);
      sockets.push_back(*std::move(admission.socket));
    }
    return sockets;
  }

  [[nodiscard]] std::vector<pollfd> poll_set() const override { return {link_->to_poll()}; }
  [[nodiscard]] int timeout_ms() const override { return waits() ? link_->timeout_ms() : -1; }

  [[nodiscard]] ClusterNews serve(const std::vector<pollfd>& /*polled*/) override {
    ClusterNews news;
    for (const Json& message : link_->serve()) {
      if (message.contains("failed")) news.failures.push_back({message.at("failed").get<std::string>(), true});
      if (message.contains("signal")) news.signals.push_back(message.at("signal").get<int>());
      if (message.contains("save")) news.save = true;
      if (message.contains("near_end")) link_->set_heartbeat(heartbeat_, settings_.timeout);
      if (message.contains("end")) exit_code_ = message.at("end").get<int>();
      news.again |= message.value("again", false);
    }
    if (!exit_code_ && !link_->lost().empty()) {
      exit_code_ = 1;
      news.failures.push_back({ddh::str("the head of the run at ", meeting_.at.text(), " is gone: ", link_->lost(),
                                        "; the ranks of this host have ended"),
                               false, true});
    }
    news.exit_code = exit_code_;
    return news;
  }

  [[nodiscard]] bool waits() const override { return !exit_code_; }
  void tell_failure(const std::string& sentence, bool caused_by_peer) override {
    link_->send({{"failed", sentence}, {"by_peer", caused_by_peer}});
  }
  void tell_signal(int number) override { link_->send({{"signal", number}}); }
  void tell_save() override { link_->send({{"save", true}}); }
  void tell_end(const AgentEnd& end) override {
    link_->send({{"end", end.exit_code}, {"begun", end.has_begun}, {"ranks", end.numbers}});
  }
  void forget() override { link_.reset(); }

 private:
  void find_head(SteadyClock::time_point deadline) {
    const std::optional<Meeting> of_variables = settings_.meeting ? settings_.meeting : meeting_of_variables();
    const auto path = of_variables ? std::filesystem::path() : rendezvous_path(settings_.rendezvous, placement_.job);
    std::string problem = "its rendezvous file '" + path.string() + "' does not appear";
    for (; SteadyClock::now() < deadline; std::this_thread::sleep_for(kPause)) {
      waiting_.require_no_signal();
      const std::optional<Meeting> meeting = of_variables ? of_variables : read_rendezvous(path);
      if (!meeting) continue;
      Admission admission = enter(meeting->at, meeting->token, GuestKind::kAgent, placement_.task, deadline);
      if (admission.socket) {
        meeting_ = *meeting;
        const std::string address = local_address(*admission.socket);
        link_ = std::make_unique<ControlLink>(*std::move(admission.socket), settings_.timeout);
        return say_who(address);
      }
      problem = ddh::str("at ", meeting->at.text(), " ", admission.problem);
    }
    ddh::fail(DDH_DEADLINE_EXCEEDED, "task ", placement_.task, " has not found the head of the run within ",
              settings_.timeout.count() / 1000, " s (launch.timeout): ", problem,
              "; its own output says more, and docs/cluster.md how hosts meet");
  }

  void say_who(const std::string& address) {
    const AgentIdentity me = own_identity();
    link_->send({{"join",
                  {{"task", placement_.task},
                   {"tasks", placement_.n_tasks},
                   {"host", me.host},
                   {"machine", me.machine},
                   {"program", me.program},
                   {"address", address}}}});
  }

  void wait_for_start(SteadyClock::time_point deadline) {
    while (SteadyClock::now() < deadline) {
      waiting_.require_no_signal();
      pollfd set = link_->to_poll();
      ::poll(&set, 1, 100);
      for (const Json& message : link_->serve()) {
        if (message.contains("refused")) ddh::fail(DDH_FAILED_PRECONDITION, message.at("refused").get<std::string>());
        if (message.contains("start")) return take_place(message.at("start"));
      }
      if (!link_->lost().empty())
        ddh::fail(DDH_UNAVAILABLE, "the head of the run at ", meeting_.at.text(),
                  " has ended before the run began; its ", "output says why");
    }
    ddh::fail(DDH_DEADLINE_EXCEEDED, "the run has not begun within ", settings_.timeout.count() / 1000,
              " s (launch.timeout); the head of the run names the tasks that have not come");
  }

  void take_place(const Json& start) {
    mine_ = {start.at("first").get<int>(), start.at("count").get<int>()};
    run_id_ = start.at("run_id").get<uint64_t>();
    Nodes nodes(start.at("nodes").at("ranks").get<std::vector<int32_t>>());
    nodes.set_addresses(start.at("nodes").at("addresses").get<std::vector<std::string>>());
    nodes_ = std::make_shared<const Nodes>(std::move(nodes));
    heartbeat_ = std::chrono::milliseconds(start.at("heartbeat_ms").get<int64_t>());
    link_->set_heartbeat(heartbeat_, settings_.timeout);
  }

  const Placement placement_;
  const ClusterSettings settings_;
  const SignalsWhileJoining waiting_;
  Meeting meeting_;
  std::unique_ptr<ControlLink> link_;
  std::chrono::milliseconds heartbeat_{};
  std::optional<int> exit_code_;
};

}  // namespace

std::unique_ptr<Cluster> join_as_member(const Placement& placement, const ClusterSettings& settings) {
  return std::make_unique<AsMember>(placement, settings);
}

}  // namespace ddhost
