// SPDX-License-Identifier: Apache-2.0
//
// The head: it waits for all members, gives each its ranks, lets their ranks into the store, and tells all how the run ends.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/control_link.hpp"
#include "launch/cluster/door.hpp"
#include "launch/cluster/remote_agents.hpp"
#include "launch/verdict.hpp"

namespace ddhost {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Member {
  std::unique_ptr<ControlLink> link;
  AgentIdentity identity;
  std::string address;
  RankRange ranks;
  int store_guests = 0;
  bool has_ended = false;
  bool has_said_so = false;      // it has not just vanished
  bool has_begun = false;        // as it has said
  Json numbers = Json::array();  // of its ranks, if they have failed
};

std::string ranks_text(RankRange ranks) {
  return ranks.count == 1 ? ddh::str("rank ", ranks.first) : ddh::str("ranks ", ranks.first, " to ", ranks.end() - 1);
}

class Head final : public Cluster {
 public:
  Head(const Placement& placement, const ClusterSettings& settings)
      : placement_(placement),
        settings_(settings),
        meeting_(meeting_for(placement, settings)),
        door_(listen_at(meeting_.at.address, ports_for(settings)), meeting_.token) {
    run_id_ = make_run_id();
    members_.resize(static_cast<size_t>(placement.n_tasks));
    members_[0].identity = own_identity();
    members_[0].address = door_.endpoint().address;
    members_[0].has_ended = true;
    if (settings.hosts.empty()) {
      if (!is_by_variables_) announce();
      divide();
    } else {
      start_hosts();
    }
    meet();
    file_.reset();  // nobody needs it any more, and a head that is killed later leaves none
    find_nodes();
    start();
    waiting_.require_no_signal();
  }

  [[nodiscard]] bool is_head() const override { return true; }
  [[nodiscard]] std::vector<Fd> store_sockets(int /*count*/) override { return {}; }

  [[nodiscard]] std::vector<pollfd> poll_set() const override {
    std::vector<pollfd> set = door_.poll_set();
    for (const Member& member : members_)
      set.push_back(member.link == nullptr ? pollfd{-1, 0, 0} : member.link->to_poll());
    return set;
  }
  [[nodiscard]] int timeout_ms() const override {
    int timeout = door_.timeout_ms();
    for (const Member& member : members_) {
      if (member.link == nullptr || member.has_ended) continue;
      const int its = member.link->timeout_ms();
      timeout = timeout < 0 ? its : std::min(timeout, its);
    }
    return timeout;
  }

  [[nodiscard]] ClusterNews serve(const std::vector<pollfd>& polled) override {
    ClusterNews news;
    const auto of_door = polled.end() - static_cast<std::ptrdiff_t>(members_.size());
    for (Guest& guest : door_.serve({polled.begin(), of_door})) admit(std::move(guest), news);
    for (size_t task = 1; task < members_.size(); ++task) hear(task, news);
    return news;
  }

  [[nodiscard]] bool waits() const override {
    return std::any_of(members_.begin(), members_.end(), [](const Member& member) { return !member.has_ended; });
  }
  void tell_failure(const std::string& sentence, bool /*caused_by_peer*/) override { tell_all({{"failed", sentence}}); }
  void tell_signal(int number) override { tell_all({{"signal", number}}); }
  void tell_save() override { tell_all({{"save", true}}); }
  void tell_end_is_near() override {
    tell_all({{"near_end", true}});
    for (Member& member : members_)
      if (member.link != nullptr) member.link->flush(SteadyClock::now() + std::chrono::milliseconds(100));
  }
  void tell_end(const AgentEnd& end) override {
    tell_all({{"end", end.exit_code}, {"again", end.again}});
    const auto deadline = SteadyClock::now() + std::chrono::seconds(2);
    for (Member& member : members_)
      if (member.link != nullptr) member.link->finish(deadline);
  }
  [[nodiscard]] bool members_have_begun() const override {
    return std::any_of(members_.begin() + 1, members_.end(),
                       [](const Member& m) { return m.has_begun || !m.has_said_so; });
  }
  [[nodiscard]] Json numbers_of_members() const override {
    Json out = Json::array();
    for (const Member& member : members_) out.insert(out.end(), member.numbers.begin(), member.numbers.end());
    return out;
  }
  [[nodiscard]] std::shared_ptr<RemoteAgents> waiting_agents() const override {
    const bool all = std::all_of(members_.begin() + 1, members_.end(), [](const Member& m) { return m.has_said_so; });
    return all ? ssh_ : nullptr;
  }
  void forget() override {
    if (ssh_ != nullptr) ssh_->forget();
    door_.forget();
    members_.clear();
  }

 private:
  static PortRange ports_for(const ClusterSettings& settings) { return parse_ports(settings.ports); }

  Meeting meeting_for(const Placement& placement, const ClusterSettings& settings) {
    if (std::optional<Meeting> given = meeting_of_variables()) {
      is_by_variables_ = true;
      return *given;
    }
    const std::string toward = settings.hosts.empty() ? placement.toward : a_remote_address(settings);
    const std::string address =
        placement.is_one_host && settings.interface.empty() ? "127.0.0.1" : own_address(settings.interface, toward);
    return {{address, 0}, Token::make()};
  }

  void announce() {
    file_ = std::make_unique<RendezvousFile>(rendezvous_path(settings_.rendezvous, placement_.job),
                                             Meeting{door_.endpoint(), meeting_.token});
  }

  // Until all members have joined.
  void meet() {
    const auto deadline = SteadyClock::now() + settings_.timeout;
    std::vector<std::unique_ptr<ControlLink>> new_links;
    while (!missing().empty()) {
      waiting_.require_no_signal();
      if (SteadyClock::now() >= deadline)
        ddh::fail(DDH_DEADLINE_EXCEEDED, missing(), " of the ", members_.size(), " that ", placement_.launcher,
                  " started ", missing().find(',') == std::string::npos ? "has" : "have", " not come within ",
                  settings_.timeout.count() / 1000, " s (launch.timeout); see what ", placement_.launcher,
                  " says of it, or whether it can reach ", door_.endpoint().text());
      std::vector<pollfd> set = door_.poll_set();
      const size_t of_door = set.size();
      for (const auto& link : new_links) set.push_back(link->to_poll());
      ::poll(set.data(), set.size(), 100);
      require_joined_alive();
      if (ssh_ != nullptr) require_agents();
      for (Guest& guest : door_.serve({set.begin(), set.begin() + static_cast<std::ptrdiff_t>(of_door)}))
        if (guest.kind == GuestKind::kAgent)
          new_links.push_back(std::make_unique<ControlLink>(std::move(guest.socket), settings_.timeout));
      for (auto& link : new_links)
        for (const Json& message : link->serve())
          if (link != nullptr && message.contains("join")) take(std::move(link), message.at("join"));
      std::erase_if(new_links, [](const auto& link) { return link == nullptr || !link->lost().empty(); });
    }
  }

  // A signal to an agent that waited for an order is one to the run.
  void require_agents() {
    const std::optional<RemoteAgents::Ended> ended = ssh_->ended();
    if (!ended) return;
    if (ended->signal == 0 || settings_.agents == nullptr) ddh::fail(DDH_UNAVAILABLE, ended->sentence);
    print_sentence(ddh::str("signal ", ended->signal, " has come to a host before the run had started again: it ends"));
    throw JoinEnded{ended->signal};
  }

  void require_joined_alive() {
    for (Member& member : members_) {
      if (member.link == nullptr) continue;
      static_cast<void>(member.link->serve());
      if (!member.link->lost().empty())
        ddh::fail(DDH_UNAVAILABLE, "host ", member.identity.host, " joined the run and is gone: ", member.link->lost());
    }
  }

  // "task 3", "tasks 1, 3", "hosts node2, node3"
  [[nodiscard]] std::string missing() const {
    std::string text;
    int count = 0;
    for (size_t task = 1; task < members_.size(); ++task)
      if (members_[task].link == nullptr)
        text += (count++ == 0 ? "" : ", ") + (ssh_ == nullptr ? std::to_string(task) : members_[task].identity.host);
    return count == 0 ? "" : (ssh_ == nullptr ? "task" : "host") + std::string(count == 1 ? " " : "s ") + text;
  }

  void take(std::unique_ptr<ControlLink> link, const Json& join) {
    const auto task = join.at("task").get<size_t>();
    const std::string host = plain_text(join.at("host").get<std::string>(), 100);
    const auto refuse = [&](const std::string& why) {
      link->send({{"refused", why}});
      link->flush(SteadyClock::now() + std::chrono::seconds(1));
      ddh::fail(DDH_FAILED_PRECONDITION, why);
    };
    if (join.at("tasks") != members_.size())
      refuse(ddh::str("task ", task, " on host ", host, " says that there are ", shown(join.at("tasks")),
                      " tasks, and task 0 that there are ", members_.size(), "; start all by one command"));
    if (task == 0 || task >= members_.size() || members_[task].link != nullptr)
      refuse(ddh::str("two tasks say that they are task ", task, ", one of them on host ", host,
                      "; start all by one command"));
    if (join.at("program") != members_[0].identity.program)
      refuse(ddh::str("host ", host, " has another version of the program (", shown(join.at("program")),
                      " instead of '", members_[0].identity.program, "'); install the same on all hosts"));
    Member& member = members_[task];
    member.link = std::move(link);
    member.identity = {host, join.at("machine").get<std::string>(), members_[0].identity.program};
    member.address = join.at("address").get<std::string>();
  }

  // Where ssh takes a host of the run to be.
  static std::string a_remote_address(const ClusterSettings& settings) {
    for (const Host& host : settings.hosts)
      if (!host.is_here) return address_of_host(host.name, settings.ssh_config);
    return "";
  }

  // This host is task 0, with ranks of its own if it is one of the hosts.
  void start_hosts() {
    std::vector<RemoteAgents::Agent> agents;
    int first = 0, task = 0;
    for (const Host& host : settings_.hosts) {
      const RankRange ranks{first, host.slots};
      first += host.slots;
      if (host.is_here) {
        members_[0].ranks = ranks;
        continue;
      }
      members_[static_cast<size_t>(++task)].ranks = ranks;
      members_[static_cast<size_t>(task)].identity.host = host.name;
      AgentOrder order{{door_.endpoint(), meeting_.token},
                       task,
                       placement_.n_tasks,
                       std::filesystem::current_path(),
                       settings_.words,
                       environment_for_others(settings_.exported)};
      agents.push_back({host.name, std::move(order)});
    }
    ssh_ = settings_.agents != nullptr
               ? settings_.agents
               : std::make_shared<RemoteAgents>(agents, settings_.ssh_config, settings_.heartbeat);
    if (settings_.agents != nullptr) ssh_->order_again(agents);
  }

  // The ranks of each task that another launcher has started.
  void divide() {
    const int tasks = placement_.n_tasks, world = settings_.world_size == 0 ? tasks : settings_.world_size;
    require_possible(world);
    if (world % tasks != 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "run.nproc=", world, " can't be divided equally among the ", tasks,
                " tasks that ", placement_.launcher, " started; give a multiple of ", tasks);
    for (int task = 0; task < tasks; ++task)
      members_[static_cast<size_t>(task)].ranks = {task * (world / tasks), world / tasks};
  }

  // A node has the ranks of neighbouring tasks on one machine.
  void find_nodes() {
    std::vector<size_t> by_rank;
    for (size_t task = 0; task < members_.size(); ++task)
      if (members_[task].ranks.count > 0) by_rank.push_back(task);
    std::sort(by_rank.begin(), by_rank.end(),
              [&](size_t a, size_t b) { return members_[a].ranks.first < members_[b].ranks.first; });
    std::vector<int32_t> sizes;
    std::vector<std::string> addresses;
    std::map<std::string, size_t> node_of_machine;
    std::string last;
    for (const size_t task : by_rank) {
      const Member& member = members_[task];
      const bool is_new = std::exchange(last, member.identity.machine) != member.identity.machine;
      if (is_new && !node_of_machine.emplace(member.identity.machine, task).second)
        ddh::fail(DDH_FAILED_PRECONDITION, "tasks ", node_of_machine[member.identity.machine], " and ", task,
                  " are on host ", member.identity.host, ", and tasks between them are not; tell ", placement_.launcher,
                  " to place neighbouring tasks on one host (a block distribution)");
      if (is_new) sizes.push_back(0), addresses.push_back(member.address);
      sizes.back() += member.ranks.count;
    }
    Nodes nodes(sizes);
    nodes.set_addresses(addresses);
    nodes_ = std::make_shared<const Nodes>(std::move(nodes));
    mine_ = members_[0].ranks;
  }

  void start() {
    const Json nodes = {{"ranks", nodes_->sizes()}, {"addresses", nodes_->addresses()}};
    for (size_t task = 1; task < members_.size(); ++task) {
      Member& member = members_[task];
      member.link->send({{"start",
                          {{"first", member.ranks.first},
                           {"count", member.ranks.count},
                           {"nodes", nodes},
                           {"run_id", run_id_},
                           {"heartbeat_ms", settings_.heartbeat.count()}}}});
      member.link->set_heartbeat(settings_.heartbeat, settings_.timeout);
    }
  }

  // A member has a connection to the store for each rank, and one for its loader.
  void admit(Guest guest, ClusterNews& news) {
    const auto task = static_cast<size_t>(guest.task);
    if (guest.kind != GuestKind::kStore || task == 0 || task >= members_.size()) return;
    if (members_[task].store_guests++ <= members_[task].ranks.count)
      news.store_guests.push_back(std::move(guest.socket));
  }

  void hear(size_t task, ClusterNews& news) {
    Member& member = members_[task];
    if (member.link == nullptr) return;
    for (const Json& message : member.link->serve()) {
      if (message.contains("failed"))
        news.failures.push_back({"host " + member.identity.host + ": " + message.at("failed").get<std::string>(),
                                 message.value("by_peer", false)});
      if (message.contains("signal")) news.signals.push_back(message.at("signal").get<int>());
      if (message.contains("save")) news.save = true;
      if (!message.contains("end")) continue;
      member.has_ended = member.has_said_so = true;
      member.has_begun = message.value("begun", true);
      member.numbers = message.at("ranks");
    }
    if (member.link->lost().empty() || member.has_ended) return;
    member.has_ended = true;
    news.failures.push_back({ddh::str("host ", member.identity.host, " with ", ranks_text(member.ranks),
                                      " is gone: ", member.link->lost(), "; the run has ended"),
                             false, true});
  }

  void tell_all(const Json& message) {
    for (Member& member : members_)
      if (member.link != nullptr) member.link->send(message);
  }

  const Placement placement_;
  const ClusterSettings settings_;
  const SignalsWhileJoining waiting_;
  bool is_by_variables_ = false;
  const Meeting meeting_;
  Door door_;
  std::unique_ptr<RendezvousFile> file_;
  std::shared_ptr<RemoteAgents> ssh_;
  std::vector<Member> members_;  // by task; the first is this agent, without a link
};

}  // namespace

std::unique_ptr<Cluster> join_as_head(const Placement& placement, const ClusterSettings& settings) {
  return std::make_unique<Head>(placement, settings);
}

}  // namespace ddhost
