// SPDX-License-Identifier: Apache-2.0
//
// mesh.hpp: a connection from each rank of a group to each other one, and `exchange`, on which every collective is built.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace sockets {

inline constexpr uint32_t kJoinTimeoutMs = 120'000;  // that a rank waits for another one

// A file descriptor, closed with the object.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Which collective a rank is in. It travels before the data, so that ranks that make different calls notice it.
struct Call {
  const char* name;   // "all_gather"
  const char* label;  // of ddh_coll; may be NULL
  uint32_t kind;      // a number for each name
  int32_t dtype;
};

// What goes to one rank of the group and what comes from it, in elements of the call's dtype.
struct Part {
  int32_t peer;
  const std::byte* out;
  uint64_t out_numel;
  std::byte* in;
  uint64_t in_numel;
};

class Mesh {
 public:
  struct Member {
    std::string name;                  // of the group; equal on all its ranks, and of no other group of the run
    std::vector<int32_t> world_ranks;  // ascending
    int32_t rank;                      // this rank's place among them
    uint64_t run_id;
  };
  // Throws: the connection to this rank of the world has ended.
  using Lost = std::function<void(int32_t world_rank)>;

  // Connects to all members, who find each other through ddh.kv. [collective]
  Mesh(const ddh::Host& host, Member member, Lost lost);

  // Sends and receives all parts at once, so that no order of ranks can make them wait in a circle. Both ranks of a pair
  // name each other. Parts of the result may be where parts of the data are once these have left.
  void exchange(const Call& call, const std::vector<Part>& parts);

  // Ends all connections: waits here and on the other ranks end in `lost`. Callable from any thread.
  void end() noexcept;

  [[nodiscard]] int32_t rank() const { return member_.rank; }
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(member_.world_ranks.size()); }

 private:
  struct Transfer;
  void connect_to(const ddh::Host& host, int32_t peer);
  void accept_from_others(const Fd& listener);
  bool send_some(Transfer& transfer);
  bool receive_some(const Call& call, Transfer& transfer);
  void copy_own(const Call& call, const Part& part) const;
  void check_numel(const Call& call, int32_t sender, uint64_t sent, int32_t receiver, uint64_t expected) const;
  [[nodiscard]] int32_t world_rank(int32_t peer) const { return member_.world_ranks[static_cast<size_t>(peer)]; }
  [[nodiscard]] std::string key_of(int32_t peer) const { return ddh::str(member_.name, ", rank ", peer); }

  const Member member_;
  const Lost lost_;
  std::vector<Fd> peers_;  // by rank of the group; none for this rank
};

}  // namespace sockets
