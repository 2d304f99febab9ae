// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/cluster.hpp: the agents of a run that several launchers share, which may be on several hosts. Each has
// consecutive ranks. The first, the head, prepares the run, serves the store, and decides how the run has ended; all agents end
// with its exit code. The others are members.
#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/services/nodes.hpp"
#include "launch/cluster/hostfile.hpp"
#include "launch/cluster/placement.hpp"
#include "launch/cluster/rendezvous.hpp"
#include "launch/kv.hpp"
#include "launch/rank_range.hpp"

namespace ddhost {

class RemoteAgents;

struct ClusterSettings {
  std::string rendezvous, interface, ports;  // launch.*
  std::chrono::milliseconds timeout{120'000}, heartbeat{5000};
  int world_size = 0;  // run.nproc; 0: a rank for each task
  // For a run whose hosts this program starts over SSH; else empty.
  std::vector<Host> hosts;
  std::string ssh_config;
  std::vector<std::string> words;        // of the command line, for the other hosts
  std::vector<std::string> exported;     // names of variables that go to them; name* stands for all that begin so
  std::shared_ptr<RemoteAgents> agents;  // of these hosts, which wait for an order; null: they are to be started
  std::optional<Meeting> meeting;        // what a host started so was told; nullopt: the rendezvous says it
};

// What the other agents have said since the last call.
struct ClusterNews {
  struct Failure {
    std::string sentence;
    bool caused_by_peer;
    bool is_lost = false;  // the other agent is gone
  };
  std::vector<Fd> store_guests;   // ranks and loaders of members, for the store
  std::vector<Failure> failures;  // of other agents, or of all
  std::vector<int> signals;       // that a member has got
  bool save = false;              // a checkpoint is wanted
  std::optional<int> exit_code;   // the head's verdict
  bool again = false;             // with it: the agents are to meet and start again
};

// What an agent says once its ranks have ended.
struct AgentEnd {
  int exit_code = 0;             // of the head: the verdict
  bool again = false;            // of the head: the agents are to meet and start again
  bool has_begun = false;        // of a member: a rank had begun its work
  Json numbers = Json::array();  // of a member: of its ranks that have failed (launch/rank_numbers.hpp)
};

class Cluster {
 public:
  // Meets the other agents. With settings.hosts `placement` is not used. [blocks]
  static std::unique_ptr<Cluster> join(const Placement& placement, const ClusterSettings& settings);
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  virtual ~Cluster() = default;

  [[nodiscard]] virtual bool is_head() const = 0;
  [[nodiscard]] const std::shared_ptr<const Nodes>& nodes() const { return nodes_; }
  [[nodiscard]] RankRange mine() const { return mine_; }
  [[nodiscard]] uint64_t run_id() const { return run_id_; }

  // Connections of a member's ranks and of its loader to the head's store. [blocks]
  [[nodiscard]] virtual std::vector<Fd> store_sockets(int count) = 0;

  // Of the loader, which exchanges what the head has decided with the other loaders.
  void set_loader_socket(Fd socket) { loader_kv_ = std::make_unique<KvClient>(std::move(socket)); }
  [[nodiscard]] Kv& loader_kv() { return *loader_kv_; }

  [[nodiscard]] virtual std::vector<pollfd> poll_set() const = 0;
  [[nodiscard]] virtual int timeout_ms() const = 0;
  // Takes the result of poll() for poll_set(). Never blocks.
  [[nodiscard]] virtual ClusterNews serve(const std::vector<pollfd>& polled) = 0;
  // A head: whether a member has not ended; a member: whether the head has not decided.
  [[nodiscard]] virtual bool waits() const = 0;
  virtual void tell_failure(const std::string& sentence, bool caused_by_peer) = 0;
  virtual void tell_signal(int number) = 0;
  virtual void tell_save() = 0;
  // The head, before tell_end: it will say nothing for a while.
  virtual void tell_end_is_near() {}
  virtual void tell_end(const AgentEnd& end) = 0;
  // The head of hosts that it has started, after tell_end with `again`: their agents, which wait for an order. Null: at
  // least one was lost.
  [[nodiscard]] virtual std::shared_ptr<RemoteAgents> waiting_agents() const { return nullptr; }
  // The head: whether a rank of a member may have begun its work.
  [[nodiscard]] virtual bool members_have_begun() const { return false; }
  // The head: those of all members that have ended.
  [[nodiscard]] virtual Json numbers_of_members() const { return Json::array(); }
  // In a child.
  virtual void forget() = 0;

 protected:
  std::shared_ptr<const Nodes> nodes_;
  RankRange mine_;
  uint64_t run_id_ = 0;

 private:
  std::unique_ptr<KvClient> loader_kv_;
};

// A signal that ends the run has come before the run began.
struct JoinEnded {
  int signal;
};
// While an agent waits for others, SIGINT, SIGTERM and SIGHUP wait too, so that files and processes are not left behind.
class SignalsWhileJoining {
 public:
  SignalsWhileJoining();
  SignalsWhileJoining(const SignalsWhileJoining&) = delete;
  SignalsWhileJoining& operator=(const SignalsWhileJoining&) = delete;
  ~SignalsWhileJoining();
  // Throws JoinEnded.
  void require_no_signal() const;

 private:
  sigset_t awaited_, before_;
};

// Error: more ranks than a run can have.
void require_possible(int64_t ranks);

// What each agent says of itself when it joins.
struct AgentIdentity {
  std::string host;     // its name
  std::string machine;  // agents of one machine can share pages if this is equal
  std::string program;  // version and ABI
};
AgentIdentity own_identity();

constexpr const char* kSsh = "ssh";  // the launcher of agents that this program starts

std::unique_ptr<Cluster> join_as_head(const Placement& placement, const ClusterSettings& settings);
std::unique_ptr<Cluster> join_as_member(const Placement& placement, const ClusterSettings& settings);

}  // namespace ddhost
